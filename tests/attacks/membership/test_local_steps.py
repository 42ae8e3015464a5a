"""Members behind mini-batches and local epochs: found, and where they cannot be found, said so."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from federations import simulated
from generated import tumours, visits

from overheard.attacks.membership import CandidateDecode, pool_candidates
from overheard.errors import ChooseAnotherAttack
from overheard.programs.recipe import PrivateSteps
from overheard.programs.simulated import encoded
from overheard.programs.training import local_training, shards
from overheard.transcript.knowledge import (
    AppliedDefence,
    AttributeDomain,
    CandidatePool,
    Link,
    LocalTraining,
)
from overheard.transcript.side import MEMBER_COLUMN
from overheard.transcript.store import Recording
from overheard.transcript.target import membership
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch, observe

pytestmark = pytest.mark.slow


@pytest.fixture
def heard(tmp_path: Any) -> Any:
    """``heard(people, **training)``: a view of a pool half of which are members; truth."""

    def record(people: int = 48, seed: int = 0, **training: Any) -> Any:
        config = {
            "seed": seed,
            "data": {"source": "file"},
            "model": {"name": "mlp", "hidden": [24]},
            "training": {"rounds": 3, "learning_rate": 0.1, **training},
            "audit": {"membership": people // 2},
        }
        return asked(simulated(tmp_path / f"run-{seed}", config, visits(people, 40, seed=seed)))

    return record


def asked(recording: Recording, column: str = "v0", client: str = "a") -> Any:
    """What is heard of a client, who is a member, and the attribute."""
    view = observe(recording, EAVESDROPPER, membership(column), client)
    truth = recording.truth("Membership", f"membership.{column}")[client]
    return view, truth[MEMBER_COLUMN] == 1, truth[column]


@pytest.mark.parametrize(
    "training",
    [
        {"batch_size": 8},
        {"batch_size": 10, "epochs": 3, "learning_rate": 0.03},  # 24 members: a smaller last batch
        {"batch_size": 64, "epochs": 4},  # every batch is all of them
        {"batch_size": 8, "steps": 6},
        {"batch_size": 8, "algorithm": "fedprox", "proximal": 0.1},
        {"batch_size": 8, "optimiser": {"name": "sgd", "momentum": 0.9}, "learning_rate": 0.02},
        {"epochs": 3, "optimiser": {"name": "adam"}, "learning_rate": 0.005},
    ],
    ids=str,
)
def test_members_of_many_local_steps(heard: Any, training: dict[str, Any]) -> None:
    view, member, secret = heard(**training)
    guess = launch(CandidateDecode(), view, 0)
    assert np.mean(guess.choice() == member) >= 0.97
    assert guess.diagnostics["fit"] == "good"
    assert "flag" not in guess.diagnostics
    assert guess.probabilities.sum() == pytest.approx(member.sum(), abs=0.5)
    right = guess.attribute.choice()[member] == secret[member]
    assert right.mean() >= 0.9


def calibration_error(probabilities: Any, truth: Any) -> float:
    """Expected gap between what is said and what is so, in five bins of the probability."""
    bins = np.minimum((probabilities * 5).astype(int), 4)
    gaps = [abs((probabilities - truth)[bins == b].sum()) for b in range(5)]
    return float(np.sum(gaps) / len(truth))


@pytest.mark.parametrize("rate", [1.0, 30.0])
def test_large_learning_rates_are_refused_flagged_or_admitted(heard: Any, rate: float) -> None:
    """The sum is blurred beyond decoding: nothing may be claimed that is not so."""
    said, true = [], []
    for seed in range(2):
        view, member, _ = heard(learning_rate=rate, batch_size=4, seed=seed, rounds=1)
        try:
            guess = launch(CandidateDecode(), view, seed)
        except ChooseAnotherAttack:  # refused
            continue
        if guess.diagnostics["fit"] == "good":
            said.append(guess.probabilities)
            true.append(member)
            hits = np.mean(guess.choice() == member)
            assert hits >= 0.8 or {"flag", "undecided"} & guess.diagnostics.keys()
    if said:
        assert calibration_error(np.concatenate(said), np.concatenate(true)) <= 0.12


def test_a_pool_without_any_member_is_not_believed(heard: Any) -> None:
    """As many candidates as before, none of whom the client trained on."""
    view, member, _ = heard(people=72, batch_size=8)
    strangers = np.flatnonzero(~member)
    pool = view.know(CandidatePool)
    link = view.know(Link)
    fewer = dataclasses.replace(link, weights=np.full_like(link.weights, 18.0))
    emptied = view.knowing(
        CandidatePool(pool.records.take(strangers), pool.labels[strangers]), fewer
    )
    guess = launch(CandidateDecode(rounds=1), emptied, 0)
    assert guess.diagnostics["fit"] == "poor" or "flag" in guess.diagnostics


def test_parts_of_an_epoch_are_refused(heard: Any) -> None:
    view, _, _ = heard(batch_size=8, steps=4)
    with pytest.raises(ChooseAnotherAttack, match="4 mini-batch steps, not whole epochs"):
        launch(CandidateDecode(), view, 0)


def noisy(view: Any, factor: float) -> tuple[Any, float]:
    """The view with Gaussian noise on every update, in units of the first one's size; its size."""
    link = view.know(Link)
    sd = factor * float(np.sqrt(np.mean(link.updates()[0] ** 2)))
    added = np.random.default_rng(5).normal(0, sd, link.returned.shape)
    returned = (link.returned + added).astype(link.returned.dtype)
    return view.knowing(dataclasses.replace(link, returned=returned)), sd


def test_noise_that_is_told_keeps_probabilities_calibrated(heard: Any) -> None:
    view, member, _ = heard(people=100, batch_size=8)
    blurred, sd = noisy(view, 1.0)
    told = blurred.knowing(AppliedDefence(("gaussian",), None, sd))
    guess = launch(CandidateDecode(rounds=1), told, 0)
    assert guess.diagnostics["fit"] == "good"
    assert 0.6 < np.mean(guess.choice() == member) < 1.0
    assert calibration_error(guess.probabilities, member) <= 0.08


def test_noise_that_is_not_told_is_noticed(heard: Any) -> None:
    view, _, _ = heard(batch_size=8)
    guess = launch(CandidateDecode(rounds=1), noisy(view, 1.0)[0], 0)
    assert guess.diagnostics["fit"] == "poor"
    assert guess.diagnostics["flag"].startswith("poor fit")


def private_view(heard: Any, noise: float, **training: Any) -> Any:
    """As ``heard``, of a client that takes private steps: its training is done again with them."""
    view, member, secret = heard(people=100, rounds=1, **training)
    recipe = view.know(LocalTraining).recipe.model_copy(
        update={"private": PrivateSteps(clip=1.0, noise=noise)}
    )
    pool, link = encoded(recipe, pool_candidates(view)[0]), view.know(Link)
    inputs, labels = pool.inputs[1:], pool.labels[1]
    value = (secret[member] == view.know(AttributeDomain).values[1]).astype(int)
    x = inputs[value, np.flatnonzero(member)].astype("float32")
    data = shards([x], [labels[member].astype("float32")], "float32")
    rng = np.random.default_rng(3)
    ends = [local_training(recipe, sent, data, rng)[0] for sent in link.sent]
    told = dataclasses.replace(link, returned=np.stack(ends))
    return view.knowing(told, LocalTraining(recipe)), member


def test_private_steps_of_little_noise_hide_only_who_was_never_drawn(heard: Any) -> None:
    """Records are drawn by chance: of five epochs one in e^5 members is never used."""
    view, member = private_view(heard, noise=0.01, batch_size=10, epochs=5, learning_rate=0.05)
    guess = launch(CandidateDecode(rounds=1), view, 0)
    assert guess.diagnostics["fit"] == "good"
    assert np.mean(guess.choice() == member) >= 0.95


def test_a_right_recipe_is_not_blamed_for_a_secret_that_goes_with_other_columns(
    tmp_path: Any,
) -> None:
    """Secrets drawn record by record would add noise alone; these move all members' sum."""
    config = {
        "data": {"source": "file"},
        "model": {"name": "mlp", "hidden": [16], "activation": "tanh"},
        "training": {"rounds": 1, "learning_rate": 0.03, "batch_size": 16},
        "audit": {"membership": 75},
    }
    view, member, _ = asked(simulated(tmp_path / "run", config, tumours(150, seed=0)))
    guess = launch(CandidateDecode(), view, 0)
    assert guess.diagnostics["fit"] == "good"
    assert "flag" not in guess.diagnostics
    sure = np.maximum(guess.probabilities, 1 - guess.probabilities).mean()
    assert sure < np.mean(guess.choice() == member) + 0.08
