"""Inner products of gradient differences, against the gradients written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overheard.decoding.factor_kernels import difference, explicit, gram, project, squares

SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))


def written_out(layers, bias):
    """Gradients (n, P) record by record: weights, then bias, layer by layer."""
    rows = []
    for i in range(len(layers[0][0])):
        parts = []
        for inputs, errors in layers:
            parts.append(np.outer(errors[i], inputs[i]).ravel())
            if bias:
                parts.append(errors[i])
        rows.append(np.concatenate(parts))
    return np.array(rows)


def problem(seed, shape, bias):
    n, first, second, outputs = shape
    rng = np.random.default_rng(seed)
    sizes = [(first, second), (second, outputs)]

    def layers():
        return [(rng.normal(size=(n, a)), rng.normal(size=(n, b))) for a, b in sizes]

    base, other = layers(), layers()
    return base, other, written_out(other, bias) - written_out(base, bias)


@given(st.integers(0, 10_000), SHAPES, st.booleans())
def test_kernels_are_those_of_the_gradients_written_out(seed, shape, bias):
    base, other, rows = problem(seed, shape, bias)
    mine = difference(base, other, bias)
    np.testing.assert_allclose(explicit(mine, bias), rows, atol=1e-12)
    np.testing.assert_allclose(gram(mine, mine), rows @ rows.T, atol=1e-10)
    np.testing.assert_allclose(squares(mine), (rows**2).sum(axis=1), atol=1e-10)
    another = difference(*problem(seed + 1, shape, bias)[:2], bias)
    cross = rows @ explicit(another, bias).T
    np.testing.assert_allclose(gram(mine, another), cross, atol=1e-10)
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(size=(e.shape[1], a.shape[1] + bias)) for a, e in base]
    flat = []
    for block in blocks:
        flat += [block[:, :-1].ravel(), block[:, -1]] if bias else [block.ravel()]
    np.testing.assert_allclose(project(mine, blocks), rows @ np.concatenate(flat), atol=1e-10)


def test_nothing_cancels_between_candidates_that_hardly_differ():
    """Errors that differ in the twelfth digit: K11 - 2 K10 + K00 would have none left."""
    rng = np.random.default_rng(0)
    inputs, errors = rng.normal(size=(3, 4)), rng.normal(size=(3, 2))
    # differences that float64 holds exactly, so that the right answer is known
    nudged = errors + np.ldexp(rng.integers(1, 9, size=errors.shape).astype(float), -43)
    layers = difference([(inputs, errors)], [(inputs, nudged)], bias=True)
    change = nudged - errors
    right = (change @ change.T) * (inputs @ inputs.T + 1)
    np.testing.assert_allclose(gram(layers, layers), right, rtol=1e-13)
    plain = written_out([(inputs, errors)], True), written_out([(inputs, nudged)], True)
    naive = plain[1] @ plain[1].T - 2 * plain[1] @ plain[0].T + plain[0] @ plain[0].T
    assert np.abs(naive - right).max() > 1e3 * np.abs(right).max()


def test_layers_that_do_not_belong_together_are_refused():
    a, b = np.zeros((2, 3)), np.zeros((2, 1))
    with pytest.raises(ValueError, match="longer than argument"):
        difference([(a, b)], [(a, b), (a, b)], bias=False)
