"""Single cells: what every consistent combination agrees on, and nothing else."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overheard.decoding.measurement import from_rows
from overheard.decoding.peeling import HALF, TOLERANCE, Cells, _steps
from overheard.decoding.sparse_equations import SparseEquations, joined
from overheard.decoding.sparse_ladder import decode_sparse, given_counts

pytestmark = pytest.mark.slow


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
    made = SparseEquations(
        records, candidates, np.array(row), np.array(record), np.concatenate(difference),
        np.zeros(2 * cells), np.full(2 * cells, sd), np.arange(2 * cells) // 2,
    )  # fmt: skip
    residual = -made.fixed(truth).residual + rng.normal(size=2 * cells) * sd
    return SparseEquations(
        made.records, made.candidates, made.row, made.record, made.difference, residual, made.sd,
        made.cell,
    ), truth  # fmt: skip


ALIKE = np.array([[0.3, 0.3, 0.7], [1.1, 1.1, -0.2]])


def one_cell(rows, truth, sd):
    """One cell of the equations ``rows`` (equations, records) with two candidates a record."""
    equations, records = rows.shape
    return SparseEquations(
        records, 2, np.repeat(np.arange(equations), records),
        np.tile(np.arange(records), equations),
        rows.reshape(-1, 1), rows @ truth, np.full(equations, sd),
        np.zeros(equations, dtype=np.int64),
    )  # fmt: skip


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(0, 10**6), st.sampled_from([2, 3]), st.sampled_from([None, 1.0, 2.0]))
def test_one_cell_says_what_all_consistent_answers_share(seed, candidates, grid):
    """Against brute force; a coarse grid of values makes many answers consistent."""
    rng = np.random.default_rng(seed)
    equations, truth = drawn(6, candidates, 1, 6, rng, grid=grid)
    cells = Cells(equations)
    cells.peel()
    consistent = [
        answer
        for answer in product(range(candidates), repeat=6)
        if np.abs(equations.residual_at(np.array(answer))).max() <= TOLERANCE
    ]
    assert tuple(truth) in consistent
    alike = cells.alike
    for person, value in enumerate(cells.values()):
        mates = np.flatnonzero(alike == alike[person])
        counts = {tuple(sorted(answer[m] for m in mates)) for answer in consistent}
        assert (value >= 0) == (len(counts) == 1)
        if len(mates) == 1 and value >= 0:
            assert value == truth[person]


def test_what_one_cell_decides_makes_others_small_enough():
    """A chain: each cell holds a dozen new records and all those of the cell before."""
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=60)
    parts = []
    for cell in range(5):
        who = np.arange(12 * (cell + 1))
        values = rng.normal(size=(2, len(who)))
        parts.append(
            SparseEquations(
                60, 2, np.repeat([0, 1], len(who)), np.tile(who, 2), values.reshape(-1, 1),
                values @ truth[who], np.full(2, 1e-7), np.zeros(2, dtype=np.int64),
            )
        )  # fmt: skip
    last = Cells(parts[-1])
    last.peel()
    assert (last.values() < 0).all()  # alone it has 2^60 combinations
    assert 2**12 <= HALF**2 < 2**60
    chain = Cells(joined(parts))
    chain.peel()
    np.testing.assert_array_equal(chain.values(), truth)
    assert not chain.contradictions


def test_a_cell_that_nothing_explains_is_a_contradiction():
    equations, truth = drawn(8, 2, 3, 5, np.random.default_rng(3))
    residual = equations.residual.copy()
    residual[0] += 0.01
    cells = Cells(SparseEquations(**{**vars(equations), "residual": residual}))
    cells.peel()
    assert len(cells.contradictions) == 1
    known = cells.values() >= 0
    assert (cells.values()[known] == truth[known]).all()


def test_records_that_enter_every_equation_alike_are_counted():
    equations = one_cell(ALIKE, [1.0, 0.0, 1.0], 1e-6)
    found = decode_sparse(equations, np.array([0, 0, 1])).posterior
    np.testing.assert_allclose(found.probabilities[:, 1], [0.5, 0.5, 1.0])
    prior = np.array([[0.2, 0.8], [0.9, 0.1], [0.5, 0.5]])
    told_apart = decode_sparse(equations, np.arange(3), prior).posterior.probabilities
    odds = (0.8 / 0.2) / (0.1 / 0.9)
    np.testing.assert_allclose(told_apart[0, 1], odds / (1 + odds))


@pytest.mark.parametrize("candidates", [2, 3])
def test_counts_are_shared_by_the_priors(candidates):
    """Of two values against enumeration; of more, the sums are the counts."""
    rng = np.random.default_rng(candidates)
    prior = rng.dirichlet(np.ones(candidates), size=5)
    counts = np.array([3, 2, 0])[:candidates].astype(float)
    found = given_counts(prior, counts)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    if candidates > 2:
        np.testing.assert_allclose(found.sum(axis=0), counts, atol=1e-3)
        return
    chance = np.zeros((5, 2))
    for answer in product(range(2), repeat=5):
        if sum(answer) == 2:
            weight = np.prod(prior[np.arange(5), answer])
            chance[np.arange(5), answer] += weight
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
    assert found.spare_rows == wanted.spare_rows > 0
    np.testing.assert_allclose(found.spare_chi2, wanted.spare_chi2)


def test_larger_cells_are_searched_around_the_ladders_answer():
    """Too many combinations to list, too few equations to solve: decided all the same, rightly."""
    right, decided, first = 0, 0, 0
    for seed in range(3):
        equations, truth = drawn(120, 2, 26, 34, np.random.default_rng([7, seed]))
        cells = Cells(equations)
        cells.peel()
        first += int((cells.values() >= 0).sum())
        found = decode_sparse(equations, np.arange(120))
        sure = found.posterior.confidence > 0.99
        right += int((found.posterior.guess == truth)[sure].sum())
        decided += int(sure.sum())
        assert not found.posterior.flag
    assert first == 0
    assert right == decided > 200


def test_other_records_are_noticed():
    equations, _ = drawn(40, 2, 30, 8, np.random.default_rng(11))
    wrong = SparseEquations(
        **{**vars(equations), "residual": np.random.default_rng(1).normal(size=60)}
    )
    found = decode_sparse(wrong, np.arange(40))
    assert found.posterior.flag
    assert not found.proven.any()


def test_lattices_are_told_from_numbers_that_lie_anywhere():
    rng = np.random.default_rng(0)
    anywhere = rng.normal(size=30) * 1e6
    counts = np.full(30, 1e6)
    free = (2 * np.pi) ** 0.5
    np.testing.assert_allclose(_steps(anywhere[:, None]), [free])
    np.testing.assert_allclose(_steps(np.column_stack([anywhere, counts])), [free, 1e6])
    whole = rng.integers(1, 9, size=30) * 1e5
    np.testing.assert_allclose(_steps(whole[:, None]), [1e5])
    # labels are whole numbers, the mean is not: a lattice of both rows together
    both = np.column_stack([1e6 / np.e - whole, counts])
    np.testing.assert_allclose(np.prod(_steps(both)), 1e5 * 1e6, rtol=1e-6)


@pytest.mark.parametrize("labels", [(0, 1), (3, 7)])
def test_what_other_changes_make_up_for_is_not_decided(labels):
    """Pairs of records at eight margins, of a class or a whole number: one of each label less at
    one margin and one of each more at another change no sum. The ladder believes in such a change;
    the answer that it leads to meets the sums, and looks as if chance would never have had it so.
    """
    rng = np.random.default_rng(labels)
    margin, label = np.repeat(rng.uniform(0.1, 0.6, 8), 4), np.tile(np.repeat(labels, 2), 8)
    slope = margin * (1 - margin) if labels == (0, 1) else np.ones(32)
    each = np.concatenate([np.column_stack([margin - label, slope]), rng.normal(size=(18, 2))])
    pairs = np.append(np.tile([0, 1], 4), np.repeat(rng.integers(2, size=12), 2))
    truth = np.append(pairs, rng.integers(2, size=18))
    equations = one_cell(each.T, truth, 1e-8)
    believed = truth.copy()
    believed[[0, 3, 5, 6]] ^= 1  # one more, one less, one less, one more
    np.testing.assert_allclose(each.T @ believed, each.T @ truth)
    cells = Cells(equations)
    chance = np.repeat(np.clip(believed[:32].reshape(-1, 2).mean(axis=1), 0.1, 0.9), 2)
    chance = np.append(chance, np.full(18, 0.5))
    assert cells.search(np.column_stack([1 - chance, chance]))
    found = cells.values()
    assert (found[:8] == -1).all()
    assert (found == truth)[found >= 0].all()
    assert (found[32:] >= 0).all()


def test_proven_is_a_value_and_not_a_count_of_values():
    """Of two records alike one has the value: their number is decided, and nobody's value."""
    equations = one_cell(ALIKE, [1.0, 0.0, 1.0], 1e-6)
    cells = Cells(equations)
    cells.peel()
    assert (cells.values() >= 0).all()
    assert cells.proven().tolist() == [False, False, True]
    assert decode_sparse(equations, np.arange(3)).proven.tolist() == [False, False, True]


def test_equations_that_say_the_same_are_searched():
    """A Hessian that is the gradient: as surely known as either alone."""
    rng = np.random.default_rng(2)
    truth = (rng.random(40) < 0.1).astype(np.int64)
    one = rng.normal(size=40)
    equations = one_cell(np.stack([one, one]), truth, 1e-10)
    cells = Cells(equations)
    likely = np.where(truth == 1, 0.6, 0.05)
    assert cells.search(np.column_stack([1 - likely, likely]))
    np.testing.assert_array_equal(cells.values(), truth)
