"""Released counts: the posterior is that of listing every answer, and what is certified is so."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overheard.decoding import whole_counts as module
from overheard.decoding.whole_counts import whole_counts
from overheard.errors import FixData

pytestmark = pytest.mark.slow


def listed(counts, low, high, prior):
    """Every answer that meets the bounds, with its prior weight: the slow twin."""
    m, k, _ = counts.shape
    for answer in product(range(k), repeat=m):
        total = counts[np.arange(m), answer].sum(axis=0)
        weight = np.prod(prior[np.arange(m), answer])
        if weight > 0 and ((total >= low) & (total <= high)).all():
            yield answer, weight


@st.composite
def tables(draw):
    """A few records in groups, tables of them, and bounds around what some answer releases."""
    k = draw(st.integers(2, 3))
    groups = np.array(draw(st.lists(st.integers(0, 3), min_size=1, max_size=6)))
    groups = np.unique(groups, return_inverse=True)[1]
    rows = draw(st.integers(0, 5))
    cell = st.integers(0, 2) if draw(st.booleans()) else st.sampled_from([0, 0, 0, 1])
    of_group = np.array(
        draw(
            st.lists(
                st.lists(st.lists(cell, min_size=rows, max_size=rows), min_size=k, max_size=k),
                min_size=int(groups.max()) + 1,
                max_size=int(groups.max()) + 1,
            )
        ),
        dtype=np.int64,
    ).reshape(groups.max() + 1, k, rows)
    counts = of_group[groups]
    truth = draw(st.lists(st.integers(0, k - 1), min_size=len(groups), max_size=len(groups)))
    total = counts[np.arange(len(groups)), truth].sum(axis=0)
    below, above = (
        np.array(draw(st.lists(st.integers(0, 2), min_size=rows, max_size=rows)), dtype=np.int64)
        for _ in range(2)
    )
    exact = draw(st.booleans())
    shift = draw(st.sampled_from([0, 0, 0, 3]))
    low = total - (0 if exact else below) + shift
    high = total + (0 if exact else above) + shift
    weights = draw(st.lists(st.floats(0.05, 1), min_size=k, max_size=k))
    prior = np.tile(np.array(weights) / np.sum(weights), (len(groups), 1))
    return counts, low, high, groups, prior


@settings(deadline=None, max_examples=80, derandomize=True)
@given(tables())
def test_the_posterior_is_that_of_listing_every_answer(given_tables):
    counts, low, high, groups, prior = given_tables
    found = whole_counts(counts, low, high, groups, prior)
    answers = list(listed(counts, low, high, prior))
    assert found.possible == bool(answers)
    assert not found.left_open.any()
    if not answers:
        assert not found.certified.any()
        return
    weights = np.array([w for _, w in answers])
    values = np.array([a for a, _ in answers])
    for record in range(len(groups)):
        p = np.bincount(values[:, record], weights, minlength=prior.shape[1]) / weights.sum()
        np.testing.assert_allclose(found.shares[groups[record]], p, atol=1e-9)
    for group in range(groups.max() + 1):
        inside = np.sort(values[:, groups == group], axis=1)
        only = len(np.unique(inside, axis=0)) == 1
        assert found.certified[group] == only


def test_long_tables_are_summed_as_quickly_as_their_counts_allow():
    """200 people alone, one count of all of them: 2^200 answers, 200 states."""
    counts = np.stack([np.zeros((200, 1)), np.ones((200, 1))], axis=1)
    found = whole_counts(counts, [70], [70], np.arange(200), (0.9, 0.1))
    np.testing.assert_allclose(found.shares[:, 1], 0.35)
    assert not found.certified.any()
    all_of_them = whole_counts(counts, [200], [200], np.arange(200))
    assert all_of_them.certified.all()


def test_what_cannot_be_listed_is_left_open_and_never_certified(monkeypatch):
    monkeypatch.setattr(module, "MOST_STEPS", 50)
    rng = np.random.default_rng(0)
    counts = np.concatenate([np.zeros((12, 1, 4)), rng.integers(1, 9, (12, 1, 4))], axis=1)
    total = counts[:6, 1].sum(axis=0)
    found = whole_counts(counts, total, total, np.arange(12))
    assert found.left_open.all()
    assert not found.certified.any()
    assert np.isnan(found.shares).all()


def test_shapes_and_groups_that_do_not_fit_are_refused():
    counts = np.zeros((3, 2, 2))
    with pytest.raises(FixData, match="twice"):
        whole_counts(counts, [0], [0], np.zeros(3, dtype=int))
    counts[0, 1] = 1
    with pytest.raises(FixData, match="no group"):
        whole_counts(counts, [0, 0], [0, 0], np.zeros(3, dtype=int))
