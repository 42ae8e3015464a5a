"""Corners of the decoders: what happens once in a thousand audits must not happen unseen."""

from __future__ import annotations

import numpy as np
import pytest
from measurements import simulate

from overheard.decoding import posterior as posterior_module
from overheard.decoding.local_optimum import rounding_scale
from overheard.decoding.max_entropy import max_entropy
from overheard.decoding.measurement import from_rows
from overheard.decoding.posterior import UNSOLVED, decode
from overheard.decoding.rounds import _curves


def test_rounding_of_messages_is_that_of_random_numbers(rng):
    """Twin: the error that rounding to the messages' format really makes."""
    exact = rng.normal(size=(200, 50))
    single = exact.astype(np.float32).astype(np.float64)
    true = np.sqrt(np.mean((single - exact) ** 2))
    assert rounding_scale(single, single) == pytest.approx(true, rel=0.05)
    assert rounding_scale(exact, exact) < 1e-14
    assert rounding_scale(np.zeros((2, 2)), np.zeros((2, 2))) > 0


def test_an_unsolved_search_is_flagged(monkeypatch):
    problem = simulate(0, 40, 2, 12, 0.05)
    measured = from_rows(problem.features, problem.total, 0.05)
    best = max_entropy(measured)
    unsolved = type(best)(best.probabilities, 0.1, best.rank, 40, 1, False, "max_entropy")
    monkeypatch.setattr(posterior_module, "_solved", lambda *_: unsolved)
    assert decode(measured).flag == UNSOLVED


def test_curves_that_a_sketch_misses_are_found_in_full(rng):
    """One record of a thousand moves alone: random combinations may lose it, the check does not."""
    series = np.zeros((1000, 40))
    series[:, 0] = 1.0
    series[17, 5:25] = 1e-0 * rng.normal(size=20)
    basis = _curves(series, 0.1)
    left = series - series @ basis @ basis.T
    assert np.sqrt((left**2).sum()) <= 0.2 + 1e-9


def test_what_remains_explains_what_the_known_records_leave():
    """Twin: for every answer of the others, the residual of the whole is that of the rest."""
    problem = simulate(4, 5, 2, 7, 0.5)
    measured = from_rows(problem.features, problem.total, 0.5, floor=1e-9)
    known = np.array([True, False, True, True, False])
    rest = measured.given(known, problem.secret)
    for answer in np.ndindex(2, 2):
        whole = problem.secret.copy()
        whole[~known] = answer
        left = measured.total - measured.features[np.arange(5), whole].sum(axis=0)
        mine = rest.total - rest.features[np.arange(2), list(answer)].sum(axis=0)
        spare = rest.residual_ss - measured.residual_ss
        assert mine @ mine + spare == pytest.approx(left @ left, rel=1e-6)
