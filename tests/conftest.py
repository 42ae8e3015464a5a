"""What every test shares: repeatable random streams and a property-test profile."""

from __future__ import annotations

import os

# Before anything imports matplotlib: a chart in a test must not look for a screen.
os.environ.setdefault("MPLBACKEND", "Agg")

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# No deadline, because the workers of pytest-xdist share the cores and a slow machine is not a
# bug. The same examples every time, because a red run must be repeatable by whoever reads it.
settings.register_profile(
    "repeatable",
    deadline=None,
    derandomize=True,
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
# To hunt for new examples: pytest --hypothesis-profile=search
settings.register_profile(
    "search", settings.get_profile("repeatable"), derandomize=False, max_examples=2000
)
settings.load_profile("repeatable")


@pytest.fixture
def rng() -> np.random.Generator:
    """A fresh stream per test, so that no test depends on another's draws."""
    return np.random.default_rng(20210501)
