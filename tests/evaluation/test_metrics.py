"""Scores against slow, obvious twins."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overheard.attacks.baselines import LastReturned
from overheard.errors import FixData
from overheard.evaluation import metrics
from overheard.evaluation.baselines import majority_share
from overheard.evaluation.scoring import Case
from overheard.programs.records import Records
from overheard.questions import label
from overheard.transcript.guess import AttributeValues, LabelValues, LocalModel
from overheard.transcript.kind import recipe_of
from overheard.transcript.target import LOCAL_MODEL
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch, observe


@given(seed=st.integers(0, 1000), m=st.integers(1, 40), k=st.integers(2, 4))
def test_attribute_scores_match_a_loop(seed, m, k):
    rng = np.random.default_rng(seed)
    values = tuple(float(v) for v in range(k))
    p = rng.dirichlet(np.ones(k), m)
    truth = rng.integers(0, k, m).astype(float)
    guess = AttributeValues(p, values)
    hits = [float(max(range(k), key=lambda j: p[i, j]) == truth[i]) for i in range(m)]
    assert metrics.attribute_hits(guess, truth).tolist() == hits
    bits = [
        np.log2(max(p[i, int(truth[i])], 1e-6)) - np.log2(np.mean(truth == truth[i]))
        for i in range(m)
    ]
    assert metrics.attribute_bits(guess, truth) == pytest.approx(bits)
    recalls = [np.mean([hits[i] for i in range(m) if truth[i] == v]) for v in set(truth)]
    assert metrics.balanced_accuracy(guess, truth) == pytest.approx(np.mean(recalls))
    assert majority_share(truth, values) == max(np.mean(truth == v) for v in values)


@given(seed=st.integers(0, 1000), m=st.integers(1, 40), bins=st.integers(1, 12))
def test_calibration_error_matches_a_loop(seed, m, bins):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(3), m)
    p[0] = 1.0, 0.0, 0.0  # a certainty belongs to the last bin
    truth = rng.integers(0, 3, m).astype(float)
    total = 0.0
    for k in range(bins):
        inside = [i for i in range(m) if k / bins <= p[i].max() < (k + 1) / bins + (k + 1 == bins)]
        gap = sum(float(p[i].argmax() == truth[i]) - p[i].max() for i in inside)
        total += abs(gap) / m
    guess = AttributeValues(p, (0.0, 1.0, 2.0))
    assert metrics.calibration_error(guess, truth, bins) == pytest.approx(total)


def test_errors_of_labels_and_of_group_means_by_hand():
    guess = LabelValues(np.array([1.0, 5.0]), np.zeros(2))
    assert label.label_errors(guess, np.array([3.0, 4.0])).tolist() == [2.0, 1.0]
    with pytest.raises(FixData, match="2 labels were guessed for 3"):
        label.label_errors(guess, np.zeros(3))
    groups, column = ("a", "b", "c"), np.array(["a", "c", "a"])
    labels = np.array([1.0, 10.0, 2.0])
    errors = label.group_mean_errors(np.array([1.0, 7.0, 12.0]), groups, column, labels)
    assert errors.tolist() == [0.5, 2.0]
    there = label.in_groups_present(np.array([1.0, 7.0, 12.0]), groups, column)
    assert there.tolist() == [1.0, 12.0]


@pytest.mark.parametrize("name", ["linear", "logistic", "mlp"])
def test_local_optimum_is_one(federate, name):
    """No small step away from it lowers the client's loss."""
    model = {"name": name, "hidden": [5]} if name == "mlp" else {"name": name}
    recording = federate(model, rounds=1)
    recipe, records = recipe_of(recording), recording.truth()["0"]
    start = 0.3 * np.random.default_rng(0).normal(size=recipe.model.size)
    optimum = metrics.local_optimum(recipe, records, start)
    best = metrics.client_losses(recipe, optimum, records).mean()
    for seed in range(20):
        step = 1e-3 * np.random.default_rng(seed).normal(size=len(optimum))
        assert metrics.client_losses(recipe, optimum + step, records).mean() >= best - 1e-9
    guess = LocalModel(optimum, optimum, 0)
    assert metrics.excess_losses(recipe, guess, optimum, records).mean() == 0.0


@pytest.mark.parametrize(
    ("truth", "chosen", "f1"),
    [
        ([0, 0, 0, 1], [0, 0, 0, 1], 1.0),
        ([0, 0, 0, 1], [0, 0, 0, 0], 0.0),  # accuracy 0.75, and the rare value is never found
        ([0, 0, 0, 1], [0, 0, 1, 1], 2 / 3),
        ([1, 1, 0], [1, 1, 1], 0.0),
        ([0, 0], [0, 0], 1.0),  # only one value occurs
    ],
)
def test_f1_of_the_rarest_value(truth, chosen, f1):
    guess = AttributeValues(np.eye(3)[chosen], (0.0, 1.0, 2.0))
    told = metrics.rare_value(guess, np.array(truth, dtype=float))
    assert told["rare_f1"] == pytest.approx(f1)
    assert told["rare_value"] in {"0", "1"}  # as a reader writes it


@pytest.mark.parametrize("classes", [2, 3])
def test_an_optimum_at_infinity_is_compared_under_a_penalty(federate, classes):
    """Separable records: the loss of ever longer models goes to zero, and no loss is a multiple of
    that. Records that no line separates are compared as they always were."""

    def separable(dataset):
        x = dataset.records["x0"]
        label = np.digitize(x, np.quantile(x, np.arange(1, classes) / classes)).astype(float)
        columns = {**dataset.records.columns, "y": label}
        if classes == 3:  # a line through the middle class too
            columns["x1"] = x**2
        return dataclasses.replace(
            dataset, records=Records(columns), task="classification", sensitive=("s",)
        )

    recording = federate({"name": "logistic"}, change=separable, rounds=3)
    recipe, records = recipe_of(recording), recording.truth()["0"]
    optimum, penalty = metrics.comparable_optimum(recipe, records)
    assert penalty == 1 / len(records)
    zero = np.zeros(recipe.model.size)
    found = metrics.excess_losses(recipe, LocalModel(zero, zero, 0), optimum, records, penalty)
    assert 0 < found.mean() < 100
    best = metrics.excess_losses(recipe, LocalModel(optimum, zero, 0), optimum, records, penalty)
    assert best.mean() == 0
    rng = np.random.default_rng(0)
    for _ in range(5):
        near = LocalModel(optimum + 0.1 * rng.normal(size=len(zero)), zero, 0)
        assert metrics.excess_losses(recipe, near, optimum, records, penalty).mean() > 0
    # scored as such, and said
    view = observe(recording, EAVESDROPPER, LOCAL_MODEL, "0")
    scorer = Case(recipe, recording.truth(), LOCAL_MODEL, view, 0).scorer()
    finding = scorer(LastReturned(), launch(LastReturned(), view, 0), 0.0).finding
    assert finding.value < 100
    assert "infinity" in finding.details["optimum"]
