"""Clients that take many local steps between two messages do not hide their records by it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from generated import visits
from sklearn.datasets import load_breast_cancer

from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.data import digits
from overheard.data.dataset import Dataset
from overheard.data.victim import VICTIM
from overheard.evaluation.baselines import imputation, majority_share
from overheard.evaluation.metrics import attribute_hits, balanced_accuracy, calibration_error
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.programs.records import Records
from overheard.transcript.knowledge import AttributeDomain
from overheard.transcript.observe import observe, recipe_of
from overheard.transcript.store import Recording
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch


def recorded(tmp_path, dataset, hidden=(32,), **training):
    model = {"name": "mlp", "hidden": list(hidden)} if hidden else {"name": "logistic"}
    config = parse_config({"data": {"source": "file"}, "model": model, "training": training})
    return Recording.open(simulate(plan(config, dataset), tmp_path / "run"))


def attacked(recording, secret="v0", client="a", attack=None):
    view = observe(recording, EAVESDROPPER, attribute(secret), client)
    return launch(attack or MaxEntropy(), view, 0), recording.truth()[client][secret]


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
    view = observe(false, EAVESDROPPER, attribute("v0"), "a")
    from overheard.transcript.knowledge import Link

    true_view = observe(recording, EAVESDROPPER, attribute("v0"), "a")
    knowledge = {kind: view.know(kind) for kind in view.kinds}
    knowledge[Link] = true_view.know(Link)
    mixed = type(view)(view.client, view.target, view.threat, knowledge)
    guess = launch(MaxEntropy(), mixed, 0)
    sure = guess.probabilities.max(axis=1).mean()
    assert guess.diagnostics["fit"] == "poor" or sure < 0.8


@pytest.mark.parametrize(("rate", "seed"), [(0.1, 0), (0.3, 1), (1.0, 2)])
@pytest.mark.parametrize("column", ["c043", "c010"])
def test_never_an_unflagged_collapse(tmp_path, rate, seed, column):
    """Small batches and large steps: better than the majority guess and than a stranger, flagged,
    or by its own word undecided; and never surer than right. ``reliability/collapses.py`` looks at
    many more."""
    config = parse_config(
        {
            "seed": seed,
            "data": {"source": "digits"},
            "model": {"name": "mlp", "hidden": [32]},
            "training": {"rounds": 2, "learning_rate": rate, "batch_size": 8},
        }
    )
    data = digits.load(seed=seed, victim=200, participants=2, attributes=(column,))
    recording = Recording.open(simulate(plan(config, data), tmp_path / "run"))
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


def tumours(share, recoded, people=100):
    """A client whose secret is whether a tumour is among the largest; recoded from x to 1 - x."""
    table, label = load_breast_cancer(return_X_y=True)
    table = (table - table.mean(axis=0)) / table.std(axis=0)
    secret = (table[:, 0] > np.quantile(table[:, 0], 1 - share)).astype(np.float64)
    columns = {f"x{j}": table[:people, j] for j in range(1, 12)}
    return Dataset(
        name="tumours",
        records=Records(
            {
                **columns,
                "s": (1 - secret if recoded else secret)[:people],
                "y": label[:people].astype(np.float64),
                "at": np.array(["a"] * people),
            }
        ),
        client="at",
        target="y",
        task="classification",
        sensitive=("s",),
        origin="scikit-learn",
        licence="none",
    )


def test_how_a_column_is_coded_does_not_matter(tmp_path):
    """The same people, once with ones for the rare value and once with zeros."""
    hits = []
    for recoded in (False, True):
        recording = recorded(
            tmp_path / str(recoded), tumours(0.2, recoded), hidden=(64,), rounds=2,
            learning_rate=0.03, batch_size=32, epochs=3,
        )  # fmt: skip
        guess, secret = attacked(recording, "s")
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
