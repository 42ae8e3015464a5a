from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overheard.federation.defences.contract import Defence, RoundContext
from overheard.federation.defences.quantise import Quantise
from overheard.federation.defences.top_k import TopK


def changed(defence: Defence, updates: np.ndarray, seed: int = 0) -> np.ndarray:
    context = RoundContext(0, np.arange(len(updates)), np.random.default_rng(seed))
    return defence.upload(updates, context)


@given(st.integers(0, 1000), st.floats(0.01, 1.0))
def test_the_largest_coordinates_are_sent_as_they_are(seed: int, share: float) -> None:
    updates = np.random.default_rng(seed).normal(size=(3, 40))
    sparse = changed(TopK(share=share), updates)
    kept = sparse != 0
    assert (kept.sum(axis=1) == max(1, round(share * 40))).all()
    assert (sparse[kept] == updates[kept]).all()
    for row, there in zip(updates, kept, strict=True):
        if not there.all():
            assert np.abs(row[there]).min() >= np.abs(row[~there]).max()


@given(st.integers(0, 1000), st.integers(1, 8))
def test_few_levels_within_one_step(seed: int, bits: int) -> None:
    updates = np.random.default_rng(seed).normal(size=(2, 300))
    coarse = changed(Quantise(bits=bits), updates, seed)
    for before, after in zip(updates, coarse, strict=True):
        step = (before.max() - before.min()) / (2**bits - 1)
        assert len(np.unique(after.round(9))) <= 2**bits
        assert np.abs(after - before).max() <= step * (1 + 1e-9)


def test_quantising_is_right_on_average_and_leaves_constants_alone() -> None:
    updates = np.tile(np.linspace(-1, 1, 7), (20_000, 1))
    assert np.allclose(changed(Quantise(bits=2), updates).mean(axis=0), updates[0], atol=0.02)
    assert (changed(Quantise(bits=3), np.full((2, 5), 0.25)) == 0.25).all()
    with pytest.raises(ValueError, match="greater than or equal to 1"):
        Quantise(bits=0)
