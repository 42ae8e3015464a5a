"""Gradients as a matrix that is multiplied, and the same in torch, against written rows."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from overheard.learning.dense import factors, record_gradients, weighted_gradient
from overheard.learning.dense_torch import mean_gradients
from overheard.learning.gradient_rows import GradientRows, Written, dense_rows, stacked
from overheard.learning.recipe import Dense

LOSSES = st.sampled_from(["squared_error", "cross_entropy"])
ACTIVATIONS = st.sampled_from(["relu", "tanh", "sigmoid"])


def problem(seed, loss, activation, bias, outputs=1):
    rng = np.random.default_rng(seed)
    outputs = 1 if loss == "squared_error" else outputs
    model = Dense(inputs=3, hidden=(4,), outputs=outputs, activation=activation, bias=bias)
    theta, x = rng.normal(size=model.size), rng.normal(size=(5, 3))
    y = rng.normal(size=5)
    if loss == "cross_entropy":
        y = rng.integers(0, max(outputs, 2), 5).astype(float)
    return rng, model, theta, x, y


@given(st.integers(0, 10_000), LOSSES, ACTIVATIONS, st.booleans(), st.integers(1, 4))
def test_products_are_those_of_the_written_rows(seed, loss, activation, bias, vectors):
    rng, model, theta, x, y = problem(seed, loss, activation, bias, 3)
    rows = dense_rows(model, loss, theta, x, y)
    written = record_gradients(model, loss, theta, x, y)
    assert (len(rows), rows.size) == written.shape
    np.testing.assert_allclose(rows.explicit(), written, atol=1e-12)
    v, w = rng.normal(size=(model.size, vectors)), rng.normal(size=(5, vectors))
    np.testing.assert_allclose(rows.times(v), written @ v, atol=1e-10)
    np.testing.assert_allclose(rows.transposed(w), written.T @ w, atol=1e-10)
    np.testing.assert_allclose(rows.squares(), (written**2).sum(axis=0), atol=1e-10)
    some = np.array([3, 0])
    np.testing.assert_allclose(rows.take(some).explicit(), written[some], atol=1e-12)
    both = stacked([rows, rows.take(some)])
    np.testing.assert_allclose(both.explicit(), np.vstack([written, written[some]]), atol=1e-12)
    start = 0
    for layer, (left, right, biases) in zip(rows.layers, rows.moments(), strict=True):
        out, fan_in = len(left), len(right)
        g = written[:, start : start + out * fan_in].reshape(5, out, fan_in)
        np.testing.assert_allclose(left, np.einsum("nab,ncb->ac", g, g), atol=1e-10)
        np.testing.assert_allclose(right, np.einsum("nab,nac->bc", g, g), atol=1e-10)
        assert biases == (out if bias else 0)
        start += layer.width


@given(st.integers(0, 10_000))
def test_written_layers_multiply_alike(seed):
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(6, 2 * 3 + 2))
    rows = GradientRows((Written(matrix, 2),))
    v, w = rng.normal(size=(8, 2)), rng.normal(size=(6, 2))
    np.testing.assert_allclose(rows.times(v), matrix @ v)
    np.testing.assert_allclose(rows.transposed(w), matrix.T @ w)
    np.testing.assert_allclose(rows.squares(), (matrix**2).sum(axis=0))
    g = matrix[:, :6].reshape(6, 2, 3)
    ((left, right, biases),) = rows.moments()
    np.testing.assert_allclose(left, np.einsum("nab,ncb->ac", g, g))
    np.testing.assert_allclose(right, np.einsum("nab,nac->bc", g, g))
    assert biases == 2
    np.testing.assert_allclose(stacked([rows, rows]).explicit(), np.vstack([matrix, matrix]))


@given(st.integers(0, 10_000), LOSSES, ACTIVATIONS, st.booleans(), st.sampled_from([1, 3]))
def test_torch_says_the_same_and_its_derivative_is_a_finite_difference(
    seed, loss, activation, bias, outputs
):
    rng, model, theta, x, y = problem(seed, loss, activation, bias, outputs)
    thetas = np.stack([theta, rng.normal(size=model.size)])
    inputs = torch.tensor(x, requires_grad=True)
    found = mean_gradients(model, loss, torch.tensor(thetas), inputs, torch.tensor(y))
    for one, at in zip(found.detach().numpy(), thetas, strict=True):
        pairs = factors(model, loss, at, x, y)
        np.testing.assert_allclose(
            one, weighted_gradient(model, pairs, np.full(5, 0.2)), atol=1e-10
        )
    if activation == "relu":  # has corners
        return
    weights, way = rng.normal(size=found.shape), rng.normal(size=x.shape)
    (slope,) = torch.autograd.grad((found * torch.tensor(weights)).sum(), inputs)

    def value(step):
        moved = torch.tensor(x + step * way)
        made = mean_gradients(model, loss, torch.tensor(thetas), moved, torch.tensor(y))
        return float((made * torch.tensor(weights)).sum())

    difference = (value(1e-5) - value(-1e-5)) / 2e-5
    np.testing.assert_allclose(float((slope * torch.tensor(way)).sum()), difference, rtol=1e-4,
                               atol=1e-6)  # fmt: skip
