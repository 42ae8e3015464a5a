"""A certain answer must be the only one that explains the measurement."""

from __future__ import annotations

import numpy as np

from overheard.decoding.certainty import NOT_UNIQUE, sober
from overheard.decoding.ladder import POOR_FIT, decode
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.measurement import Measurement, from_rows


def measured(records=60, rows=90, noise=0.05, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(records, 2, rows))
    truth = rng.integers(2, size=records)
    total = features[np.arange(records), truth].sum(axis=0) + noise * rng.normal(size=rows)
    return from_rows(features, total, noise), truth, features


def certain(answer, measurement: Measurement):
    p = np.where(np.eye(2, dtype=bool)[answer], 1 - 1e-9, 1e-9)
    chi2 = measurement.chi2_per_equation(p)
    return Posterior(p, chi2, measurement.rank, len(p), 1, True, "expectation_propagation")


def test_the_right_answer_stays_certain():
    measurement, truth, _ = measured()
    answer = sober(measurement, certain(truth, measurement))
    assert answer.flag == ""
    assert answer.confidence.min() > 1 - 1e-6


def test_a_wrong_answer_that_calls_itself_certain_is_found_out():
    measurement, truth, _ = measured()
    wrong = truth.copy()
    wrong[3] = 1 - wrong[3]
    answer = sober(measurement, certain(wrong, measurement))
    assert answer.flag == NOT_UNIQUE
    assert answer.confidence[3] <= 0.5 + 1e-9


def test_two_alike_records_swapped_are_found_out():
    """Neither change alone explains the total better; both together do not worsen it."""
    rng = np.random.default_rng(4)
    features = rng.normal(size=(50, 2, 80))
    features[1] = features[0] + 1e-3 * rng.normal(size=(2, 80))
    truth = rng.integers(2, size=50)
    truth[:2] = (0, 1)
    total = features[np.arange(50), truth].sum(axis=0) + 0.05 * rng.normal(size=80)
    measurement = from_rows(features, total, 0.05)
    swapped = truth.copy()
    swapped[:2] = (1, 0)
    for given in (truth, swapped):
        answer = sober(measurement, certain(given, measurement))
        assert answer.confidence[:2].max() < 0.99
        assert answer.confidence[2:].min() > 0.99


def test_an_undecided_answer_is_left_alone():
    measurement, _, _ = measured(noise=3.0)
    found = decode(measurement)
    assert sober(measurement, found) is found


def test_records_that_do_not_explain_the_total_are_flagged():
    """Other people's records: the updates are not theirs, and the decoder says so."""
    measurement, _, features = measured(records=30, rows=200, noise=1e-6)
    rng = np.random.default_rng(9)
    strange = from_rows(rng.normal(size=features.shape), 10 * rng.normal(size=200), 1e-6)
    assert decode(measurement).flag == ""
    found = decode(strange)
    assert found.flag == POOR_FIT or found.confidence.mean() < 0.99
