"""Dense networks in numpy: many clients at once; however certain the model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overheard.programs.losses import loss_named
from overheard.programs.networks import DenseNetwork, initial
from overheard.programs.recipe import Dense, LeNet, pieces

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("hidden", [(), (5, 4)])
def test_rows_of_many_clients_are_those_of_one_at_a_time(
    hidden: tuple[int, ...], rng: np.random.Generator
) -> None:
    net = DenseNetwork(Dense(inputs=4, hidden=hidden, outputs=3), "cross_entropy")
    theta, inputs = rng.normal(size=(2, 3, net.model.size)), rng.normal(size=(2, 3, 7, 4))
    labels = rng.integers(3, size=(2, 3, 7)).astype(float)
    together = net.rows(theta, inputs, labels).explicit()
    for at in np.ndindex(2, 3):
        alone = net.rows(theta[at], inputs[at], labels[at]).explicit()
        np.testing.assert_allclose(together[at], alone, rtol=1e-12, atol=1e-12)


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
