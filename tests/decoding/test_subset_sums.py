"""Sums over few records each: what is proven is what every possible answer shares, and where all
answers can be listed the posterior is theirs."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overheard.decoding.measurement import from_rows
from overheard.decoding.subset_sums import (
    Conditioning,
    Options,
    SubsetSums,
    decode_subset_sums,
    given_counts,
    joined,
)

pytestmark = pytest.mark.slow

PLAIN = Options()


def sums(records, candidates, row, record, difference, residual, sd, cell=None, half_width=None):
    rows = len(residual)
    return SubsetSums(
        records, candidates, np.asarray(row), np.asarray(record), np.asarray(difference),
        np.asarray(residual, dtype=np.float64), np.full(rows, sd),
        np.full(rows, np.nan) if half_width is None else np.asarray(half_width),
        np.arange(rows) if cell is None else np.asarray(cell),
    )  # fmt: skip


def drawn(records, candidates, cells, size, rng, sd=1e-6, grid=None):
    """Cells of two equations each over ``size`` records, and the truth."""
    truth = rng.integers(candidates, size=records)
    row, record, difference = [], [], []
    for cell in range(cells):
        who = rng.choice(records, size, replace=False)
        for equation in range(2):
            values = rng.normal(size=(size, candidates - 1))
            if grid:
                values = np.round(values * grid) / grid
            row += [2 * cell + equation] * size
            record += who.tolist()
            difference.append(values)
    made = sums(
        records, candidates, row, record, np.concatenate(difference), np.zeros(2 * cells), sd,
        np.arange(2 * cells) // 2,
    )  # fmt: skip
    noise = rng.normal(size=2 * cells) * sd
    return replace(made, residual=noise - made.given(truth).residual), truth


def one_cell(rows, truth, sd):
    """One cell of the equations ``rows`` (equations, records) with two candidates a record."""
    equations, records = rows.shape
    row, record = (x.ravel() for x in np.indices(rows.shape))
    cell = np.zeros(equations, dtype=np.int64)
    return sums(records, 2, row, record, rows.reshape(-1, 1), rows @ truth, sd, cell)


def counted(counts, low, high):
    """Integer sums: counts (m, K, R) that each record adds under each candidate, and bounds."""
    records, candidates, rows = counts.shape
    record, row = (x.ravel() for x in np.indices((records, rows)))
    gap = np.moveaxis(counts[:, 1:] - counts[:, :1], 1, 2).reshape(-1, candidates - 1)
    low, high = (np.asarray(x, dtype=np.float64) - counts[:, 0].sum(axis=0) for x in (low, high))
    used = (gap != 0).any(axis=1)
    return sums(
        records, candidates, row[used], record[used], gap[used].astype(np.float64),
        (low + high) / 2, 1.0, half_width=(high - low) / 2,
    )  # fmt: skip


ALIKE = np.array([[0.3, 0.3, 0.7], [1.1, 1.1, -0.2]])


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from([2, 3]), st.sampled_from([None, 1.0, 2.0]))
def test_one_cell_says_what_all_consistent_answers_share(seed, candidates, grid):
    """Against brute force; a coarse grid of values makes many answers consistent."""
    rng = np.random.default_rng(seed)
    equations, truth = drawn(6, candidates, 1, 6, rng, grid=grid)
    state = Conditioning(equations, PLAIN)
    consistent = [
        answer
        for answer in product(range(candidates), repeat=6)
        if np.abs(equations.residual_at(np.array(answer))).max() <= PLAIN.tolerance
    ]
    assert tuple(truth) in consistent
    for person, value in enumerate(state.values()):
        mates = np.flatnonzero(state.group == state.group[person])
        counts = {tuple(sorted(answer[m] for m in mates)) for answer in consistent}
        assert (value >= 0) == (len(counts) == 1)
        if len(mates) == 1 and value >= 0:
            assert value == truth[person]


def listed(counts, low, high, prior):
    """Every answer that meets the bounds, with its prior weight: the slow twin."""
    m, k, _ = counts.shape
    for answer in product(range(k), repeat=m):
        total = counts[np.arange(m), answer].sum(axis=0)
        if ((total >= low) & (total <= high)).all():
            yield answer, np.prod(prior[answer,])


@st.composite
def tables(draw):
    """A few records in groups, tables of them, and bounds around what some answer releases."""
    k = draw(st.integers(2, 3))
    groups = np.array(draw(st.lists(st.integers(0, 3), min_size=1, max_size=6)))
    rows = draw(st.integers(1, 5))
    cell = st.integers(0, 2) if draw(st.booleans()) else st.sampled_from([0, 0, 0, 1])
    size = 4 * k * rows
    of_group = np.array(draw(st.lists(cell, min_size=size, max_size=size))).reshape(4, k, rows)
    counts = of_group[groups]
    truth = draw(st.lists(st.integers(0, k - 1), min_size=len(groups), max_size=len(groups)))
    total = counts[np.arange(len(groups)), truth].sum(axis=0)
    width = st.lists(st.integers(0, 2), min_size=rows, max_size=rows)
    below, above = (np.array(draw(width)) * draw(st.booleans()) for _ in range(2))
    shift = draw(st.sampled_from([0, 0, 0, 3]))
    weights = np.array(draw(st.lists(st.floats(0.05, 1), min_size=k, max_size=k)))
    return counts, total - below + shift, total + above + shift, weights / weights.sum()


@settings(deadline=None, max_examples=80, derandomize=True)
@given(tables())
def test_the_posterior_of_integer_tables_is_that_of_listing_every_answer(given_tables):
    counts, low, high, prior = given_tables
    equations = counted(counts, low, high)
    found, state = decode_subset_sums(equations, prior), Conditioning(equations, PLAIN)
    answers = [*listed(counts, low, high, prior)]
    if not answers:
        assert found.posterior.flag
        assert not found.proven.any()
        return
    assert not found.posterior.flag
    weights, values = np.array([w for _, w in answers]), np.array([a for a, _ in answers])
    for record in range(len(counts)):
        p = np.bincount(values[:, record], weights, minlength=len(prior)) / weights.sum()
        np.testing.assert_allclose(found.posterior.probabilities[record], p, atol=1e-9)
        mine = state.group == state.group[record]
        only = len(np.unique(np.sort(values[:, mine], axis=1), axis=0)) == 1
        assert (state.values()[record] >= 0) == only


def test_one_count_of_many_people_is_shared_by_all_of_them():
    """2^200 answers: alike, they are one group; told apart by a prior, they share what is known."""
    counts = np.stack([np.zeros((200, 1)), np.ones((200, 1))], axis=1)
    found = decode_subset_sums(counted(counts, [70], [70]), (0.9, 0.1))
    np.testing.assert_allclose(found.posterior.probabilities[:, 1], 0.35)
    assert not found.proven.any()
    assert decode_subset_sums(counted(counts, [200], [200])).proven.all()


def test_what_cannot_be_listed_is_left_to_the_posterior_and_never_proven():
    rng = np.random.default_rng(0)
    counts = np.concatenate([np.zeros((12, 1, 4)), rng.integers(1, 9, (12, 1, 4))], axis=1)
    total = counts[:6, 1].sum(axis=0)
    equations = counted(counts, total, total)
    assert decode_subset_sums(equations).proven.all()
    found = decode_subset_sums(equations, options=Options(half=4))
    assert not found.proven.any()
    assert found.posterior.confidence.max() <= Options().max_unproven


def test_what_one_cell_decides_makes_others_small_enough():
    """A chain: each cell holds a dozen new records and all those of the cell before."""
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=60)
    parts = []
    for cell in range(5):
        who = np.arange(12 * (cell + 1))
        values = rng.normal(size=(2, len(who)))
        entries = (np.repeat([0, 1], len(who)), np.tile(who, 2), values.reshape(-1, 1))
        parts.append(sums(60, 2, *entries, values @ truth[who], 1e-7, [0, 0]))
    last = Conditioning(parts[-1], PLAIN)
    assert (last.values() < 0).all()  # alone it has 2^60 answers
    chain = Conditioning(joined(parts), PLAIN)
    np.testing.assert_array_equal(chain.values(), truth)
    assert not chain.contradictions


def test_a_cell_that_nothing_explains_is_a_contradiction():
    equations, truth = drawn(8, 2, 3, 5, np.random.default_rng(3))
    residual = equations.residual.copy()
    residual[0] += 0.01
    cells = Conditioning(replace(equations, residual=residual), PLAIN)
    assert cells.contradictions
    known = cells.values() >= 0
    assert (cells.values()[known] == truth[known]).all()


def test_records_that_enter_every_equation_alike_are_counted():
    """Of two records alike one has the value: their number is decided, and nobody's value."""
    equations = one_cell(ALIKE, [1.0, 0.0, 1.0], 1e-6)
    found = decode_subset_sums(equations)
    np.testing.assert_allclose(found.posterior.probabilities[:, 1], [0.5, 0.5, 1.0])
    assert found.proven.tolist() == [False, False, True]
    prior = np.array([[0.2, 0.8], [0.9, 0.1], [0.5, 0.5]])
    separated = decode_subset_sums(equations, prior).posterior.probabilities
    odds = (0.8 / 0.2) / (0.1 / 0.9)
    np.testing.assert_allclose(separated[0, 1], odds / (1 + odds))


@pytest.mark.parametrize("counts", [[3, 2], [2, 1, 2], [3, 0, 2]])
def test_counts_are_shared_by_the_priors(counts):
    """Against enumeration."""
    candidates = len(counts)
    prior = np.random.default_rng(candidates).dirichlet(np.ones(candidates), size=5)
    chance = np.zeros((5, candidates))
    for answer in product(range(candidates), repeat=5):
        if np.bincount(answer, minlength=candidates).tolist() == counts:
            chance[np.arange(5), answer] += np.prod(prior[np.arange(5), answer])
    found = given_counts(prior, np.array(counts))
    np.testing.assert_allclose(found, chance / chance.sum(axis=1, keepdims=True))


def test_dense_and_sparse_are_one_measurement():
    equations, _ = drawn(8, 3, 12, 5, np.random.default_rng(5), sd=0.1)
    dense = np.zeros((8, 3, equations.rows))
    for row, record, gap in zip(equations.row, equations.record, equations.difference, strict=True):
        dense[record, 1:, row] += gap
    wanted = from_rows(dense, equations.residual, equations.sd)
    found = equations.measurement()
    assert found.rank == wanted.rank
    one, other = found.differences, wanted.differences
    np.testing.assert_allclose(one @ one.T, other @ other.T, atol=1e-8)
    np.testing.assert_allclose(one @ found.total, other @ wanted.total, atol=1e-8)
    assert found.residual_dof == wanted.residual_dof > 0
    np.testing.assert_allclose(found.residual_ss, wanted.residual_ss)


def test_cells_of_34_records_are_solved():
    """2^34 answers each, and fewer equations than records: decided all the same, rightly."""
    for seed in range(3):
        equations, truth = drawn(120, 2, 26, 34, np.random.default_rng([7, seed]))
        found = decode_subset_sums(equations)
        assert found.proven.mean() > 0.9
        assert (found.posterior.guess == truth)[found.proven].all()
        assert not found.posterior.flag


@pytest.mark.parametrize("labels", [(0, 1), (3, 7)])
def test_what_other_changes_make_up_for_is_not_proven(labels):
    """Pairs of records at two margins, of a class or an integer: one of each label less at one
    margin and one of each more at the other change no sum."""
    rng = np.random.default_rng(labels)
    margin, label = np.repeat(rng.uniform(0.1, 0.6, 2), 4), np.tile(np.repeat(labels, 2), 2)
    slope = margin * (1 - margin) if labels == (0, 1) else np.ones(8)
    each = np.concatenate([np.column_stack([margin - label, slope]), rng.normal(size=(18, 2))])
    truth = np.append(np.tile([0, 1], 4), rng.integers(2, size=18))
    other = truth.copy()
    other[[0, 3, 5, 6]] ^= 1  # one more, one less, one less, one more
    np.testing.assert_allclose(each.T @ other, each.T @ truth)
    found = Conditioning(one_cell(each.T, truth, 1e-8), PLAIN).values()
    assert (found[:8] == -1).all()
    np.testing.assert_array_equal(found[8:], truth[8:])
