"""Gradients as a matrix that is multiplied, and the same in torch, against written rows."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from overheard.programs.gradient_rows import GradientRows, Outer, Written, few_of, stacked

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


def two(seed, shape, bias, convolution=False):
    """Gradients of records under two values, and both written out; a written layer if asked. Some
    inputs, at least one, are not the same under both."""
    n, first, second, outputs = shape
    rng = np.random.default_rng(seed)
    made, still, moved = [], rng.normal(size=(n, first)), rng.integers(1, first + 1)
    for _ in range(2):
        pairs = [
            (rng.normal(size=(n, a)), rng.normal(size=(n, b)))
            for a, b in ((first, second), (second, outputs))
        ]
        pairs[0][0][:, moved:] = still[:, moved:]
        layers, whole = [Outer(e, a, bias) for a, e in pairs], written_out(pairs, bias)
        if convolution:
            rows = rng.normal(size=(n, 6))
            layers, whole = [Written(rows, 2), *layers], np.column_stack([rows, whole])
        made.append((GradientRows(tuple(layers)), whole))
    (base, first_rows), (other, second_rows) = made
    return base, other, first_rows, second_rows


@given(st.integers(0, 10_000), SHAPES, st.booleans(), st.booleans())
def test_differences_are_those_of_the_gradients_written_out(seed, shape, bias, convolution):
    base, other, before, after = two(seed, shape, bias, convolution)
    mine, rows = other.since(base), after - before
    np.testing.assert_allclose(mine.explicit(), rows, atol=1e-12)
    np.testing.assert_allclose(mine.gram(mine), rows @ rows.T, atol=1e-10)
    another = two(seed + 1, shape, bias, convolution)
    cross = rows @ (another[3] - another[2]).T
    np.testing.assert_allclose(mine.gram(another[1].since(another[0])), cross, atol=1e-10)
    flat = np.random.default_rng(seed).normal(size=rows.shape[1])
    np.testing.assert_allclose(mine.project(base.blocks(flat)), rows @ flat, atol=1e-10)
    alone = other.since()
    np.testing.assert_allclose(alone.explicit(), after, atol=1e-12)
    np.testing.assert_allclose(alone.gram(mine), after @ rows.T, atol=1e-10)


@given(st.integers(0, 10_000), SHAPES, st.booleans(), st.booleans(), st.integers(1, 4))
def test_products_sums_and_clipping_are_those_of_the_gradients_written_out(
    seed, shape, bias, convolution, vectors
):
    _, rows, _, whole = two(seed, shape, bias, convolution)
    (n, size), rng = whole.shape, np.random.default_rng(seed)
    v, w = rng.normal(size=(size, vectors)), rng.normal(size=(n, vectors))
    np.testing.assert_allclose(rows.times(v), whole @ v, atol=1e-10)
    np.testing.assert_allclose(rows.transposed(w), whole.T @ w, atol=1e-10)
    np.testing.assert_allclose(rows.squares(), (whole**2).sum(axis=0), atol=1e-10)
    groups = rng.integers(n, size=(5, 3))
    np.testing.assert_allclose(rows.sums(groups, 2), whole[groups].sum(axis=1), atol=1e-10)
    scaled = rows.scaled(w[:, 0])
    np.testing.assert_allclose(scaled.total(), w[:, 0] @ whole, atol=1e-10)
    both = np.vstack([whole, whole * w[:, :1]])
    np.testing.assert_allclose(stacked([rows, scaled]).explicit(), both, atol=1e-12)
    norms = np.linalg.norm(whole, axis=1, keepdims=True)
    clip = float(np.median(norms))
    shorter = whole * np.minimum(1, clip / norms)
    np.testing.assert_allclose(rows.clipped(clip).explicit(), shorter, atol=1e-10)
    assert rows.written == (6 if convolution else 0)
    start = 0
    for layer, (left, right, biases) in zip(rows.layers, rows.moments(), strict=True):
        out, fan_in = len(left), len(right)
        g = whole[:, start : start + out * fan_in].reshape(n, out, fan_in)
        np.testing.assert_allclose(left, np.einsum("nab,ncb->ac", g, g), atol=1e-10)
        np.testing.assert_allclose(right, np.einsum("nab,nac->bc", g, g), atol=1e-10)
        assert biases == (out if bias or isinstance(layer, Written) else 0)
        start += layer.width


@given(st.integers(0, 10_000), st.booleans())
def test_few_numbers_are_columns_of_all_of_them(seed, bias):
    """The same of every candidate: of inputs that none moves, and of the biases."""
    rng = np.random.default_rng(seed)
    inputs, flat = rng.normal(size=(3, 5, 9)), rng.normal(size=4 * (9 + bias))
    inputs[1:, :, 3:], inputs[2, :, 0] = inputs[0, :, 3:], inputs[0, :, 0]
    one, *others = (GradientRows((Outer(rng.normal(size=(5, 4)), x, bias),)) for x in inputs)
    differences = [other.since(one) for other in others]
    few, block = few_of(differences, one.blocks(flat), 8)
    assert few[0].layers[0].parts[0][0].inputs.dtype == np.float32
    for some, other in zip(few, others, strict=True):
        rows = other.explicit() - one.explicit()
        which = [9 * unit + column for unit in range(4) for column in (3, 6)]
        which += range(36, 36 + 4 * bias)
        np.testing.assert_allclose(some.explicit(), rows[:, which], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(
            some.project(block), rows[:, which] @ flat[which], rtol=1e-4, atol=1e-5
        )


def test_nothing_cancels_between_candidates_that_hardly_differ():
    """Errors that differ in the twelfth digit: K11 - 2 K10 + K00 would have none left."""
    rng = np.random.default_rng(0)
    inputs, errors = rng.normal(size=(3, 4)), rng.normal(size=(3, 2))
    # differences that float64 holds exactly, so that the right answer is known
    nudged = errors + np.ldexp(rng.integers(1, 9, size=errors.shape).astype(float), -43)
    base, other = (GradientRows((Outer(e, inputs),)) for e in (errors, nudged))
    found, change = other.since(base), nudged - errors
    right = (change @ change.T) * (inputs @ inputs.T + 1)
    np.testing.assert_allclose(found.gram(found), right, rtol=1e-13)
    plain = written_out([(inputs, errors)], True), written_out([(inputs, nudged)], True)
    naive = plain[1] @ plain[1].T - 2 * plain[1] @ plain[0].T + plain[0] @ plain[0].T
    assert np.abs(naive - right).max() > 1e3 * np.abs(right).max()
