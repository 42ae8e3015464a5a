"""Intervals cover, p-values are uniform, posteriors are calibrated: few worlds of each.

``python -m experiments run robustness-simulations`` draws the many that docs/reliability.md shows.
"""

from __future__ import annotations

import numpy as np
import pytest

from experiments.robustness import simulations

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("simulation", simulations.SIMULATIONS, ids=lambda s: s.what)
def test_what_the_product_says_happens_as_often_as_it_says(simulation):
    found = simulations.judge(simulation, 400 if simulation.judged == "intervals" else 100)
    assert found.right, found.words


def test_the_judges_can_find_fault(rng):
    """An interval that covers 90%, p-values that are too small, and a boaster are all caught."""
    assert not simulations._covering([rng.random() < 0.85 for _ in range(1000)], "").right
    assert not simulations._covering([True] * 1000, "").right
    assert simulations._covering([True] * 1000, "by construction").right
    assert not simulations._uniform(rng.random(300) ** 2).right
    hits = rng.random((40, 50)) < 0.8
    for said, right in ((0.95, False), (0.8, True), (0.65, False)):
        worlds = [[(said, bool(hit)) for hit in world] for world in hits]
        assert simulations._calibrated(worlds, 0.03).right is right
    assert np.isfinite(simulations._uniform(rng.random(300)).trials)
