"""The simulator against a loop that anybody would write, and the same bits for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import planned, view_of

from overheard.data.dataset import together
from overheard.errors import ChooseAnotherOutput, FixConfig, FixData
from overheard.federation.plan import Plan
from overheard.federation.simulate import (
    CHUNK,
    client_shards,
    participants,
    simulate,
    train_clients,
)
from overheard.programs.networks import initial
from overheard.programs.records import encode
from overheard.transcript.knowledge import Messages
from overheard.transcript.store import Recording
from overheard.transcript.target import LOCAL_MODEL
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.verify import verify
from overheard.transcript.view import observe

pytestmark = pytest.mark.slow

Settings = Callable[..., dict[str, Any]]


def all_bits(run: Path) -> dict[str, bytes]:
    return {str(p.relative_to(run)): p.read_bytes() for p in run.rglob("*") if p.is_file()}


TRAININGS: dict[str, dict[str, Any]] = {
    "fedavg": {"participation": 0.7},
    "fedavg, mini-batches": {"batch_size": 4, "epochs": 2, "participation": 0.7},
    "fedsgd": {"algorithm": "fedsgd"},
    "fedprox": {"algorithm": "fedprox", "proximal": 0.4, "epochs": 3},
}


@pytest.mark.parametrize("training", TRAININGS.values(), ids=TRAININGS)
def test_same_seed_same_bits(
    tmp_path: Path, settings_for: Settings, training: dict[str, Any]
) -> None:
    content = settings_for(training=training, seed=3)
    for name in ("one", "two"):
        simulate(planned(content), tmp_path / name)
    assert all_bits(tmp_path / "one") == all_bits(tmp_path / "two")
    simulate(planned({**content, "seed": 4}), tmp_path / "other")
    one, other = (Recording.open(tmp_path / name) for name in ("one", "other"))
    for client, records in one.truth().items():
        for column, values in records.columns.items():
            np.testing.assert_array_equal(values, other.truth()[client][column])
    last = "messages/round-000002.safetensors"
    sent = [all_bits(tmp_path / name)[last] for name in ("one", "other")]
    assert sent[0] != sent[1]
    assert verify(tmp_path / "one").sound


def test_the_rows_of_other_settings_do_not_shift_random_streams(
    tmp_path: Path, settings_for: Settings
) -> None:
    """More rounds are the same rounds and then more."""
    short, long = (
        simulate(
            planned(settings_for(training=TRAININGS["fedavg, mini-batches"] | {"rounds": r})),
            tmp_path / f"{r}",
        )
        for r in (2, 5)
    )
    for number in range(2):
        name = f"round-{number:06d}.safetensors"
        assert (short / "messages" / name).read_bytes() == (long / "messages" / name).read_bytes()


def naive_rounds(ready: Plan, who: list[list[int]]) -> list[tuple[Any, dict[str, Any]]]:
    """Linear least squares, one client and one record at a time, in float64."""
    recipe, training = ready.recipe, ready.config.training
    tables = [(encode(recipe.encoding, r), recipe.target.encode(r)) for r in ready.clients.values()]
    names = list(ready.clients)
    model = initial(recipe.model, ready.config.seed)
    history = []

    def gradient(theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        total = np.zeros_like(theta)
        for row, label in zip(x, y, strict=True):
            seen = np.append(row, 1.0)
            total += 2 * (seen @ theta - label) * seen / len(y)
        return total

    for chosen in who:
        back = {}
        for c in chosen:
            x, y = tables[c]
            theta = model.copy()
            if training.algorithm == "fedsgd":
                theta = gradient(model, x, y)
            else:
                for _ in range(training.epochs):
                    step = gradient(theta, x, y) + training.proximal * (theta - model)
                    theta = theta - training.learning_rate * step
            back[names[c]] = theta
        history.append((model, back))
        sizes = [len(tables[c][1]) if training.weighting == "size" else 1 for c in chosen]
        mean = np.average(list(back.values()), axis=0, weights=sizes)
        fedsgd = training.algorithm == "fedsgd"
        model = model - training.learning_rate * mean if fedsgd else mean
    return history


@pytest.mark.parametrize("weighting", ["size", "equal"])
@pytest.mark.parametrize(
    "training",
    [
        {},
        {"epochs": 4},
        {"participation": 0.67},
        {"algorithm": "fedsgd"},
        {"algorithm": "fedsgd", "participation": 0.3},
        {"algorithm": "fedprox", "proximal": 0.8, "epochs": 3},
    ],
    ids=str,
)
def test_the_recording_is_what_a_naive_loop_gives(
    tmp_path: Path, settings_for: Settings, weighting: str, training: dict[str, Any]
) -> None:
    wish = {"rounds": 4, "precision": "float64", "weighting": weighting, **training}
    ready = planned(settings_for(training=wish))
    recording = Recording.open(simulate(ready, tmp_path / "run"))
    assert recording.payload == ("gradient" if "fedsgd" in training.values() else "model")
    names = list(ready.clients)
    who = [
        [names.index(c) for way, c in entry.spans if way == "returned"]
        for entry in recording.rounds
    ]
    assert all(len(w) == max(1, round(3 * training.get("participation", 1))) for w in who)
    naive = naive_rounds(ready, who)
    for c, client in enumerate(names):
        if not any(c in chosen for chosen in who):
            continue
        link = observe(recording, EAVESDROPPER, LOCAL_MODEL, client).know(Messages)
        assert link.weights.tolist() == [len(ready.clients[client])] * len(link)
        for row, number in enumerate(link.rounds):
            sent, back = naive[number]
            assert np.allclose(link.sent[row], sent, rtol=1e-9, atol=1e-11)
            assert np.allclose(link.returned[row], back[client], rtol=1e-9, atol=1e-11)


def test_participation_is_uniform_and_without_replacement() -> None:
    seen = np.zeros(10)
    for number in range(2000):
        chosen = participants(10, 0.3, 1, number)
        assert len(set(chosen.tolist())) == 3
        assert (np.diff(chosen) > 0).all()
        seen[chosen] += 1
    assert np.abs(seen / 2000 - 0.3).max() < 0.05  # five standard deviations
    assert participants(10, 1.0, 1, 0).tolist() == list(range(10))
    assert len(participants(10, 0.01, 1, 0)) == 1


def test_many_clients_are_trained_in_chunks(settings_for: Settings) -> None:
    """More clients than fit one batch, of all sizes: each gets its own result back."""
    ready = planned(settings_for(training={"precision": "float64", "epochs": 2}))
    pool = together(*ready.clients.values())
    rng = np.random.default_rng(0)
    clients = {f"c{k}": pool.take(rng.choice(len(pool), 1 + k % 17)) for k in range(2 * CHUNK + 5)}
    data = client_shards(ready.recipe, clients)
    chosen = np.arange(len(clients))[::-1].copy()
    model = initial(ready.recipe.model, 0)
    batched = train_clients(ready.recipe, model, data, chosen, 0, 0)
    for row, c in enumerate(chosen):
        alone = train_clients(ready.recipe, model, data, np.array([c]), 0, 0)
        assert np.allclose(batched[row], alone[0], rtol=1e-12, atol=1e-13)


def test_a_client_without_records_is_named(tmp_path: Path, settings_for: Settings) -> None:
    ready = planned(settings_for())
    clients = {**ready.clients, "empty": ready.clients["site 0"].take(np.array([], int))}
    with pytest.raises(FixData, match="client 'empty' has no records; leave it out"):
        simulate(replace(ready, clients=clients), tmp_path / "run")


def test_divergence_stops_and_keeps_what_was_sent(tmp_path: Path, settings_for: Settings) -> None:
    ready = planned(settings_for(training={"learning_rate": 1e9, "rounds": 50}))
    with pytest.raises(FixConfig, match=r"round \d+: the training diverged .* lower learning_rate"):
        simulate(ready, tmp_path / "run")
    recording = Recording.open(tmp_path / "run")
    assert 0 < len(recording.rounds) < 50
    assert not recording.closed
    assert verify(tmp_path / "run").problems == ()
    assert np.isfinite(view_of(recording, client="site 0").know(Messages).returned).all()


def test_progress_is_told_and_nothing_is_overwritten(
    tmp_path: Path, settings_for: Settings
) -> None:
    told: list[tuple[int, int]] = []
    ready = planned(settings_for())
    simulate(ready, tmp_path / "run", lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]
    with pytest.raises(ChooseAnotherOutput, match="exists already"):
        simulate(ready, tmp_path / "run")
