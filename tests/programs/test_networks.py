"""Explicit factors against torch's autograd and against finite differences."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_twins import by_torch, torch_loss, torch_twin

from overheard.programs.losses import loss_named
from overheard.programs.networks import DenseNetwork, factors, forward, initial, split
from overheard.programs.recipe import Dense, LeNet, pieces

pytestmark = pytest.mark.slow

MODELS = [
    ("squared_error", Dense(inputs=4)),
    ("squared_error", Dense(inputs=4, bias=False)),
    ("cross_entropy", Dense(inputs=4)),
    ("cross_entropy", Dense(inputs=4, outputs=3)),
    ("cross_entropy", Dense(inputs=4, outputs=3, bias=False)),
    *(
        (loss, Dense(inputs=4, hidden=hidden, outputs=outputs, activation=activation, bias=bias))
        for activation in ("relu", "tanh", "sigmoid")
        for loss, hidden, outputs, bias in [
            ("squared_error", (5,), 1, True),
            ("squared_error", (3, 2), 1, False),
            ("cross_entropy", (5, 4), 1, True),
            ("cross_entropy", (5,), 3, True),
            ("cross_entropy", (5,), 3, False),
        ]
    ),
]
every_model = pytest.mark.parametrize(
    ("loss", "model"), MODELS, ids=lambda v: str(v) if isinstance(v, str) else f"{v.sizes}"
)


def problem(
    loss: str, model: Dense, seed: int = 0, clients: tuple[int, ...] = (), rows: int = 7
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Parameters, inputs and labels with the given leading axes."""
    rng = np.random.default_rng(seed)
    theta = rng.normal(size=(*clients, model.size))
    inputs = rng.normal(size=(*clients, rows, model.inputs))
    if loss == "squared_error":
        return theta, inputs, rng.normal(size=(*clients, rows))
    labels = rng.integers(max(2, model.outputs), size=(*clients, rows))
    return theta, inputs, labels.astype(np.float64)


def summed(loss: str, model: Dense, theta: np.ndarray, *batch: np.ndarray) -> np.ndarray:
    """The weighted sums of gradients that a step takes."""
    return DenseNetwork(model, loss).gradient(theta, np.random.default_rng(0))(*batch)


def rows(loss: str, model: Dense, *at: np.ndarray) -> np.ndarray:
    return DenseNetwork(model, loss).rows(*at).explicit()


@every_model
def test_gradients_are_autograds(loss: str, model: Dense) -> None:
    theta, inputs, labels = problem(loss, model)
    twin = torch_twin(model, theta)
    theirs = twin(torch.tensor(inputs)).detach()
    outputs = DenseNetwork(model, loss).predict(theta, inputs)
    np.testing.assert_allclose(outputs, theirs, rtol=1e-12, atol=1e-12)
    value = torch_loss(loss, theirs, torch.tensor(labels)).item()
    assert loss_named(loss).values(outputs, labels).mean() == pytest.approx(value, rel=1e-12)
    expected = by_torch(model, loss, theta, inputs, labels)
    made = rows(loss, model, theta, inputs, labels)
    np.testing.assert_allclose(made, expected, rtol=1e-10, atol=1e-12)


@every_model
def test_a_weighted_sum_needs_no_gradients(loss: str, model: Dense) -> None:
    theta, inputs, labels = problem(loss, model, seed=2)
    weights = np.random.default_rng(2).normal(size=len(inputs))
    pairs = factors(model, loss, split(model, theta), inputs, labels)
    assert [a.shape[-1] for a, _ in pairs] == list(model.sizes[:-1])
    assert [delta.shape[-1] for _, delta in pairs] == list(model.sizes[1:])
    each = rows(loss, model, theta, inputs, labels)
    total = summed(loss, model, theta, inputs, labels, weights)
    assert np.allclose(total, weights @ each, rtol=1e-12, atol=1e-12)
    # inner products of gradients from the factors alone, as decoders take them
    gram = sum((d @ d.T) * (a @ a.T + model.bias) for a, d in pairs)
    assert np.allclose(gram, each @ each.T, rtol=1e-10, atol=1e-10)


@every_model
def test_many_clients_in_one_call_are_one_client_at_a_time(loss: str, model: Dense) -> None:
    theta, inputs, labels = problem(loss, model, seed=3, clients=(2, 3))
    weights = np.random.default_rng(3).random(labels.shape)
    together = rows(loss, model, theta, inputs, labels)
    steps = summed(loss, model, theta, inputs, labels, weights)
    losses = loss_named(loss).values(forward(model, split(model, theta), inputs)[-1], labels)
    for at in np.ndindex(2, 3):
        alone = rows(loss, model, theta[at], inputs[at], labels[at])
        assert np.allclose(together[at], alone, rtol=1e-12, atol=1e-12)
        assert np.allclose(steps[at], weights[at] @ alone, rtol=1e-12, atol=1e-12)
        outputs = DenseNetwork(model, loss).predict(theta[at], inputs[at])
        assert np.allclose(losses[at], loss_named(loss).values(outputs, labels[at]), rtol=1e-12)


@every_model
def test_single_precision_stays_single(loss: str, model: Dense) -> None:
    theta, inputs, labels = (a.astype(np.float32) for a in problem(loss, model, seed=5))
    pairs = factors(model, loss, split(model, theta), inputs, labels)
    assert {a.dtype for pair in pairs for a in pair} == {np.dtype(np.float32)}
    ones = np.ones_like(labels)
    assert summed(loss, model, theta, inputs, labels, ones).dtype == np.float32
    outputs = DenseNetwork(model, loss).predict(theta, inputs)
    assert loss_named(loss).values(outputs, labels).dtype == np.float32


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 3]), st.floats(1, 700))
def test_cross_entropy_is_finite_however_sure_the_model_is(
    seed: int, outputs: int, size: float
) -> None:
    rng = np.random.default_rng(seed)
    scores = size * rng.normal(size=(20, outputs))
    labels = rng.integers(max(2, outputs), size=20).astype(np.float64)
    losses = loss_named("cross_entropy").values(scores, labels)
    errors = loss_named("cross_entropy").errors(scores, labels)
    assert np.isfinite(losses).all()
    assert (losses >= 0).all()
    assert np.isfinite(errors).all()
    assert (np.abs(errors) <= 1).all()
    if outputs > 1:
        assert np.allclose(errors.sum(1), 0, atol=1e-12)


def test_splitting_gives_views_in_the_order_of_the_layout() -> None:
    model = Dense(inputs=2, hidden=(3,), outputs=2)
    theta = np.arange(float(model.size))
    (w0, b0), (w1, b1) = split(model, theta)
    assert w0.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert b0 is not None
    assert b1 is not None
    assert (b0.tolist(), w1.shape, b1.tolist()) == ([6, 7, 8], (2, 3), [15, 16])
    w0[0, 0] = -1
    assert theta[0] == -1
    assert [name for name, _ in model.layout()] == [
        f"layers.{k}.{kind}" for k in range(2) for kind in ("weight", "bias")
    ]


@pytest.mark.parametrize(
    "model",
    [
        Dense(inputs=16, hidden=(50,), outputs=3),
        LeNet(image=(2, 16, 18), filters=(2, 3), hidden=(7, 5), outputs=4),
    ],
)
def test_initial_models_are_repeatable_and_within_torchs_range(model: Dense | LeNet) -> None:
    theta = initial(model, seed=4)
    assert np.array_equal(theta, initial(model, seed=4))
    assert (theta != initial(model, seed=5)).all()
    assert not initial(model, 4, "zeros").any()
    reach = 0.0
    for part in pieces(model.layout(), theta):
        if part.ndim > 1:
            reach = np.prod(part.shape[1:]) ** -0.5  # a layer's weight stands before its bias
        assert reach / 3 < np.abs(part).max() <= reach


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None  # whoever imports it fails
import numpy as np
from overheard.programs.networks import DenseNetwork
from overheard.programs.recipe import Dense
for hidden, outputs, loss in [((), 1, "squared_error"), ((5, 4), 3, "cross_entropy")]:
    net = DenseNetwork(Dense(inputs=4, hidden=hidden, outputs=outputs), loss)
    theta, batch = net.initial(1, "uniform"), (np.ones((7, 4)), np.ones(7))
    total = net.gradient(theta, np.random.default_rng(0))(*batch, np.ones(7))
    assert np.allclose(total, net.rows(theta, *batch).total()) and total.any()
    assert net.predict(theta, batch[0]).shape == (7, outputs)
"""


def test_linear_and_dense_networks_do_without_torch() -> None:
    where = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH], check=True, env=where)
