"""Clients that trained as declared are not suspected; those that did not are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import generated_people, recipe_in, recorded
from generated import by_class

from overheard.evaluation.record import Replay, pooled_rate
from overheard.evaluation.replay import ReplayTest, replays, together
from overheard.programs.recipe import Adam, Recipe, Sgd
from overheard.programs.records import Records
from overheard.transcript.store import Recording

pytestmark = pytest.mark.slow


def checked(
    recording: Recording, recipe: Recipe | None = None, truth: dict[str, Records] | None = None
) -> tuple[Replay, ...]:
    recipe, truth = recipe or recipe_in(recording), truth or recording.truth()
    return replays(recording, recipe, truth, recording.clients)


def outcomes(found: tuple[Replay, ...]) -> set[str]:
    return {replay.outcome for replay in found}


def defended(path: Path, *defences: dict[str, Any], **training: Any) -> Recording:
    usual = {"clients": 3, "people": 60, "rounds": 5, "participation": 1.0, **training}
    return recorded(path, defence=list(defences), **usual)


MLP = {"name": "mlp", "hidden": [12]}
MOMENTUM = Sgd(momentum=0.9)


@pytest.mark.parametrize(
    ("model", "training"),
    [
        ({"name": "linear"}, {}),
        ({"name": "logistic"}, {"epochs": 4}),
        (MLP, {"epochs": 3}),
        (MLP, {"algorithm": "fedsgd"}),
        (MLP, {"algorithm": "fedprox", "proximal": 0.5, "epochs": 2}),
        ({"name": "linear"}, {"batch_size": 16}),
        ({"name": "logistic"}, {"batch_size": 32, "epochs": 3}),
        (MLP, {"batch_size": 8, "epochs": 2}),
        (MLP, {"batch_size": 8, "steps": 5}),
        (MLP, {"batch_size": 500, "epochs": 2}),  # one batch, whatever its order
    ],
)
def test_who_trained_as_declared_fits(federate, model, training):
    found = checked(federate(model, rounds=6, **training))
    assert outcomes(found) == {"fits"}
    assert [replay.client for replay in found] == ["0", "1", "2", "3"]
    assert max(len(replay.rounds) for replay in found) >= 3
    exact = training.get("batch_size", 500) == 500
    for replay in found:
        assert replay.off is not None
        assert replay.round in replay.rounds
        assert (replay.by_chance == 0) is exact
        assert replay.off < (1e-4 if exact else 2 * replay.by_chance)


@pytest.mark.parametrize("batch_size", [0, 16])
@pytest.mark.parametrize(
    "wrong",
    [
        {"learning_rate": 0.03},
        {"epochs": 3},
        {"algorithm": "fedprox", "proximal": 5.0},
        {"optimiser": Adam()},
    ],
)
def test_another_recipe_does_not_fit(federate, wrong, batch_size):
    recording = federate(
        rounds=6, batch_size=batch_size, epochs=2, learning_rate=0.02, participation=1.0
    )
    recipe = recipe_in(recording).model_copy(update=wrong)
    assert outcomes(checked(recording, recipe)) == {"does not fit"}


@pytest.mark.parametrize("batch_size", [0, 16])
def test_swapped_clients_do_not_fit_and_the_others_do(federate, batch_size):
    recording = federate(rounds=6, batch_size=batch_size)
    truth = recording.truth()
    truth["0"], truth["1"] = truth["1"], truth["0"]
    found = checked(recording, truth=truth)
    assert [r.outcome for r in found] == ["does not fit", "does not fit", "fits", "fits"]


@pytest.mark.parametrize(
    "defences",
    [
        [{"name": "gaussian", "sd": 0.05}],
        [{"name": "clip", "norm": 0.1}],
        [{"name": "clip", "norm": 0.1}, {"name": "gaussian", "times_clip": 0.2}],
        [{"name": "dp_sgd", "clip": 1.0, "noise": 0.5}],
        [{"name": "top_k", "share": 0.5}],
        [{"name": "drop_column", "columns": ["x1"]}],
    ],
    ids=lambda defences: defences[-1]["name"],
)
@pytest.mark.parametrize("batch_size", [0, 16])
def test_defences_that_a_replay_can_repeat(tmp_path, defences, batch_size):
    recording = defended(tmp_path / "run", *defences, batch_size=batch_size)
    sparse = defences[0]["name"] == "top_k" and batch_size
    assert outcomes(checked(recording)) == {"cannot be checked" if sparse else "fits"}
    if defences[0]["name"] == "gaussian":  # noise widens what counts as close, and not for ever
        wild = recipe_in(recording).model_copy(update={"learning_rate": 1.0})
        assert outcomes(checked(recording, wild)) == {"does not fit"}


@pytest.mark.parametrize("batch_size", [0, 16])
def test_sums_are_replayed_as_sums(tmp_path, batch_size):
    """All of a sum's clients fit together, or none does: whose records were others nobody says."""
    rule = {"weighting": "equal", "batch_size": batch_size}
    recording = defended(tmp_path / "run", {"name": "secure_sum"}, **rule)
    assert outcomes(checked(recording)) == {"fits"}
    recipe, truth = recipe_in(recording), recording.truth()
    half = recipe.model_copy(update={"learning_rate": recipe.learning_rate / 2})
    assert outcomes(checked(recording, half)) == {"does not fit"}
    other = {**truth, "2": truth["2"].take(np.arange(5))}
    assert outcomes(checked(recording, truth=other)) == {"does not fit"}
    del truth["2"]
    assert {r.reason.split(", ")[-1] for r in checked(recording, truth=truth)} == {
        "and truth/ has no records of 2", "truth/ has no records of it",
    }  # fmt: skip


def test_what_cannot_be_checked_says_why(tmp_path, federate, monkeypatch):
    (reason,) = {
        r.reason for r in checked(defended(tmp_path / "q", {"name": "quantise", "bits": 4}))
    }
    assert reason.startswith("the defence quantise changes updates")
    recording = federate()
    truth = {c: r for c, r in recording.truth().items() if c != "2"}
    reasons = [r.reason for r in checked(recording, truth=truth)]
    assert reasons == ["", "", "truth/ has no records of it", ""]
    broken = "overheard.evaluation.replay.local_training"
    with monkeypatch.context() as patched:
        patched.setattr(broken, lambda *given: np.ones((2, 2)) @ np.ones(3))
        (reason,) = {r.reason for r in checked(recording)}
        assert reason.startswith("the replay ended in ValueError")
    monkeypatch.setattr("overheard.evaluation.replay.MOST_WORK", 1e5)
    (reason,) = {r.reason for r in checked(recording)}
    about = "(about 21.8 minutes; one is spent)"
    assert reason == f"too long {about} to repeat: 5 parameters (local steps: 1)"
    monkeypatch.setattr("overheard.evaluation.replay.MOST_WORK", 4e6)  # of each of four clients
    assert {r.reason for r in checked(recording)} == {""}


def test_one_more_of_the_same_is_not_strange_and_a_shift_is(rng):
    """Over noise of one and of many dimensions: false alarms are rare, what is off is seen."""
    for size in (1, 4, 200):
        mean = rng.normal(size=size) * 5
        called = {0.0: 0, 3.0: 0}
        for shift in called:
            for _ in range(100):
                chance = ReplayTest(32, size)
                for _ in range(3):
                    many = mean + rng.normal(size=(32, size))
                    one = mean + rng.normal(size=size) + shift * np.sign(mean)
                    chance.add(one, many, np.zeros(size))
                called[shift] += chance.exceeded(1e-3).any()
        assert called[0.0] <= 1
        assert called[3.0] >= 95


def test_the_readings_of_replays_are_those_of_one_left_out(rng):
    """Slowly: every replay in turn takes the place of the message, the others being the replays."""
    rounds, count, size = 3, 6, 4
    many = rng.normal(1.0, 1.0, (rounds, count, size))
    whole = ReplayTest(count, size)
    for replays_ in many:
        whole.add(replays_[0], replays_, np.full(size, 0.1))
    for left_out in range(count):
        part = ReplayTest(count - 1, size)
        for replays_ in many:
            others = np.delete(replays_, left_out, axis=0)
            part.add(replays_[left_out], others, np.full(size, 0.1))
        np.testing.assert_allclose(part.readings()[0], whole.readings()[1 + left_out])


def test_a_rate_that_no_small_client_gives_away_is_noticed_of_all_together(federate):
    """Fifteen clients of 100 records, one round: three fit one by one at twice the rate."""
    training = {"rounds": 1, "learning_rate": 0.05, "batch_size": 32, "participation": 1.0}
    recording = federate(MLP, by_class, clients=15, people=100, **training)
    right = checked(recording)
    assert outcomes(right) == {"fits"}
    pooled = pooled_rate(right)
    assert pooled is not None
    assert abs(pooled.off) < 4 * pooled.sd
    assert 1.02 < pooled.noticed < 2
    recipe = recipe_in(recording)
    wrong = recipe.model_copy(update={"learning_rate": 2 * recipe.learning_rate})
    found = checked(recording, wrong)
    assert outcomes(found) == {"does not fit"}
    assert any("clients together" in replay.reason for replay in found)


@pytest.mark.parametrize(
    ("people", "rounds", "part", "wrong"),
    [
        (100, 4, 1.06, {"batch_size": 16, "learning_rate": 0.1 / 7}),
        (100, 4, 1.06, {"batch_size": 32, "learning_rate": 0.1 / 4}),
        (60, 3, 1.12, {"batch_size": 32, "learning_rate": 0.1 / 2.9, "optimiser": MOMENTUM}),
    ],
)
def test_random_orders_do_not_absorb_what_a_full_batch_nearly_explains(
    federate, people, rounds, part, wrong
):
    """Columns were scaled by other numbers than declared: a full batch is off by some percent, and
    batches in random order, which scatter by more, must not pass for it. The two steps of momentum
    show it at no client alone: it is off alike in all rounds."""
    dataset, model = generated_people(3, people, 3, 2, True), {"name": "logistic"}
    recording = federate(model, lambda _: dataset, rounds=rounds, participation=1.0)
    recipe = recipe_in(recording)
    other = [
        block if block.column == "s" else block.model_copy(update={"scale": part * block.scale})
        for block in recipe.encoding.blocks
    ]
    encoding = recipe.encoding.model_copy(update={"blocks": tuple(other)})
    found = checked(recording, recipe.model_copy(update={"encoding": encoding, **wrong}))
    assert outcomes(found) == {"does not fit"}
    assert all("scatter otherwise" in replay.reason for replay in found)
    whole = checked(recording, recipe.model_copy(update={"encoding": encoding}))
    assert max(replay.off for replay in whole) < 0.1


@pytest.mark.parametrize(
    ("closer", "outcome"), [([2.2] * 2, "fits"), ([2.2] * 3, "does not fit"), ([50, 0, 0], "fits")]
)
def test_clients_together_refute_random_orders_and_one_does_not(closer, outcome):
    """What none of them shows alone, a full batch that is off by 5%, three show together."""
    line = Replay(client="0", outcome="fits", rounds=(0,), round=0, off=0.1, by_chance=0.1)
    found = together([line.model_copy(update={"scores": (0.0, score, 0.0)}) for score in closer])
    assert outcomes(found) == {outcome}
