"""Clients that take many local steps between two messages do not hide their records by it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import guessed, simulated
from generated import tumours, visits

import overheard
import papers  # noqa: F401  # which knows Adult
from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.data.dealing import VICTIM
from overheard.errors import FixData
from overheard.evaluation.baselines import imputation, majority_share
from overheard.evaluation.metrics import attribute_hits, balanced_accuracy, calibration_error
from overheard.programs.records import Records
from overheard.transcript.knowledge import AttributeDomain, Link
from overheard.transcript.observe import observe, recipe_of
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch

pytestmark = pytest.mark.slow


def recorded(tmp_path, dataset, hidden=(32,), **training):
    model = {"name": "mlp", "hidden": list(hidden)}
    config = {"data": {"source": "file"}, "model": model, "training": training}
    return simulated(tmp_path / "run", config, dataset)


def attacked(recording, secret="v0", client="a"):
    return guessed(MaxEntropy(), recording, secret, client)


@pytest.mark.parametrize("batch", [8, 32])
@pytest.mark.parametrize("rate", [0.01, 0.1])
def test_random_batches_hide_nothing_when_public_columns_are_many(tmp_path, batch, rate):
    """As many public columns as people: what each contributed follows from them alone."""
    dataset = visits(people=60, columns=72, classes=6, rare=0.15)
    guess, secret = attacked(
        recorded(tmp_path, dataset, rounds=10, learning_rate=rate, batch_size=batch)
    )
    assert attribute_hits(guess, secret).mean() == 1.0
    assert calibration_error(guess, secret) <= 0.05
    assert guess.diagnostics["fit"] == "good"


def test_random_batches_of_more_people_than_columns(tmp_path):
    dataset = visits(people=150, columns=40, classes=6, rare=0.15)
    guess, secret = attacked(
        recorded(tmp_path, dataset, rounds=20, learning_rate=0.01, batch_size=8)
    )
    assert attribute_hits(guess, secret).mean() >= 0.99
    assert balanced_accuracy(guess, secret) >= 0.98
    assert calibration_error(guess, secret) <= 0.05


def test_several_local_epochs_of_batches(tmp_path):
    dataset = visits(people=75, columns=50, classes=6, rare=0.15)
    guess, secret = attacked(
        recorded(tmp_path, dataset, rounds=10, learning_rate=0.01, batch_size=25, epochs=3)
    )
    assert attribute_hits(guess, secret).mean() >= 0.99
    assert guess.diagnostics["fit"] == "good"


@pytest.mark.parametrize("model", [{"name": "mlp", "hidden": [16]}, {"name": "logistic"}])
def test_several_full_batch_epochs(federate, model):
    """Nothing is random: replaying the path leaves rounding only (least-squares network), and
    a logistic regression is read better than by a guess."""
    recording = federate(
        model, clients=1, people=60, columns=8, rounds=20, epochs=4, participation=1.0
    )
    guess, secret = attacked(recording, "s", "0")
    hits = attribute_hits(guess, secret).mean()
    majority = max(secret.mean(), 1 - secret.mean())
    assert hits >= (0.99 if model["name"] == "mlp" else majority + 0.1)
    assert guess.diagnostics["fit"] == "good"


def test_updates_of_other_people_are_flagged_or_unsure(tmp_path):
    """Records that are not the client's: no confident answer without a flag."""
    mine, other = visits(60, 40, 6, seed=1, rare=0.15), visits(60, 40, 6, seed=2, rare=0.15)
    training = {"rounds": 6, "learning_rate": 0.1, "batch_size": 8}
    recording = recorded(tmp_path, mine, **training)
    (tmp_path / "other").mkdir()
    false = recorded(tmp_path / "other", other, **training)
    view, heard = (observe(run, EAVESDROPPER, attribute("v0"), "a") for run in (false, recording))
    guess = launch(MaxEntropy(), view.knowing(heard.know(Link)), 0)
    sure = guess.probabilities.max(axis=1).mean()
    assert guess.diagnostics["fit"] == "poor" or sure < 0.8


@pytest.mark.parametrize(("rate", "seed"), [(0.1, 0), (0.3, 1), (1.0, 2)])
@pytest.mark.parametrize("column", ["c043", "c010"])
def test_never_an_unflagged_collapse(tmp_path, rate, seed, column):
    """Small batches and large steps: better than the majority guess and than a stranger, flagged,
    or by its own word undecided; and never surer than right. ``reliability/unseen.py`` looks at
    many more."""
    options = {"seed": seed, "victim": 200, "participants": 2, "attributes": [column]}
    config = {
        "seed": seed,
        "data": {"source": "digits", "options": options},
        "model": {"name": "mlp", "hidden": [32]},
        "training": {"rounds": 2, "learning_rate": rate, "batch_size": 8},
    }
    recording = simulated(tmp_path / "run", config)
    truth, recipe = recording.truth(), recipe_of(recording)
    view = observe(recording, EAVESDROPPER, attribute(column), VICTIM)
    guess = launch(MaxEntropy(), view, seed)
    secret = truth[VICTIM][column]
    accuracy = float(attribute_hits(guess, secret).mean())
    values = view.know(AttributeDomain).values
    imputed = imputation(recipe, truth, VICTIM, column, values, seed)
    best = max(majority_share(secret, values), float(imputed.hits.mean()))
    said = guess.diagnostics
    assert accuracy > best or "flag" in said or "undecided" in said
    oversure = float(guess.probabilities.max(axis=1).mean()) - accuracy
    assert oversure <= 0.05 or oversure < 3 * np.sqrt(accuracy * (1 - accuracy) / len(secret))


def test_how_a_column_is_coded_does_not_matter(tmp_path):
    """The same people, once with ones for the rare value and once with zeros."""
    hits = []
    for recoded in (False, True):
        recording = recorded(
            tmp_path / str(recoded), tumours(100, 0.2, recoded), hidden=(64,), rounds=2,
            learning_rate=0.03, batch_size=32, epochs=3,
        )  # fmt: skip
        guess, secret = attacked(recording)
        assert "flag" not in guess.diagnostics
        hits.append(attribute_hits(guess, secret).mean())
    assert min(hits) >= 0.97


def test_mini_batch_least_squares_learns_how_common_the_value_is(federate):
    """A client in which the value is far commoner than at large, and goes with other columns."""

    def change(dataset):
        columns = dict(dataset.records.columns)
        rng, here = np.random.default_rng(5), columns["at"] == 0
        score = columns["x0"] + columns["x1"] + rng.normal(0, 0.5, len(here))
        common = np.where(here, score > np.median(score[here]), score > np.quantile(score, 0.95))
        columns["s"] = common.astype(np.float64)
        columns["y"] = columns["y"] + 1.5 * columns["s"]
        return replace(dataset, records=Records(columns))

    recording = federate(
        change=change, clients=4, people=400, rounds=30, learning_rate=0.01, batch_size=32,
        participation=1.0,
    )  # fmt: skip
    guess, secret = attacked(recording, "s", "0")
    hits = attribute_hits(guess, secret).mean()
    assert 0.4 < secret.mean() < 0.6
    assert "flag" not in guess.diagnostics
    assert hits >= 0.75
    assert abs(guess.probabilities.max(axis=1).mean() - hits) < 0.08


def found(path: Path, content: dict[str, Any], client: str, target: str) -> Any:
    recording = simulated(path, content)
    alone = overheard.AuditOptions(rounds=False)
    record = overheard.audit(recording, EAVESDROPPER, ["max_entropy"], [client], [target], alone)
    assert {replay.outcome for replay in record.replays} == {"fits"}
    (finding,) = record.findings
    return finding


def test_a_client_whose_share_is_far_from_the_population(tmp_path: Path) -> None:
    """Half of site 5 is black, a fifth of all are: the share is learned, not called noise."""
    content = {
        "data": {"source": "randhie"},
        "model": {"name": "linear"},
        "training": {"rounds": 60, "learning_rate": 0.01, "batch_size": 32},
        "audit": {"attributes": ["black"]},
    }
    finding = found(tmp_path / "run", content, "site 5", "black")
    assert "flag" not in finding.details
    assert finding.value >= 0.7
    assert finding.value > finding.imputation


def test_a_right_recipe_on_adult_is_not_called_a_poor_fit(tmp_path: Path) -> None:
    content = {
        "data": {"source": "adult"},
        "model": {"name": "mlp", "hidden": [32]},
        "training": {"rounds": 5, "learning_rate": 0.05, "batch_size": 64},
        "audit": {"attributes": ["sex"]},
    }
    try:
        finding = found(tmp_path / "run", content, "client 0", "sex")
    except FixData as error:
        pytest.skip(f"Adult is not at hand: {error}")
    assert "flag" not in finding.details
    assert finding.value >= 0.95
