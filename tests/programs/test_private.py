"""DP-SGD: against one record at a time, and against Opacus."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overheard.programs.dense import factors, initial, record_gradients
from overheard.programs.private import clipped, gradient_norms, sampled_weights, update_noise
from overheard.programs.recipe import Dense, PrivateSteps, Recipe, Target
from overheard.programs.records import Encoding, Scaled
from overheard.programs.training import local_training, shards

MODEL = Dense(inputs=4, hidden=(5,), outputs=3)


def recipe_with(clip: float, noise: float, **changes: object) -> Recipe:
    plain = {
        "model": MODEL,
        "loss": "cross_entropy",
        "encoding": Encoding(blocks=tuple(Scaled(column=c) for c in "abcd")),
        "target": Target(column="y", classes=(0.0, 1.0, 2.0)),
        "learning_rate": 0.3,
        "private": PrivateSteps(clip=clip, noise=noise),
        "wire": "float64",
    }
    return Recipe.model_validate({**plain, **changes})


def some_records(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 4)), rng.integers(0, 3, n).astype(float)


@given(st.integers(0, 10_000), st.floats(0.05, 20.0))
@settings(max_examples=25, deadline=None)
def test_clipped_factors_are_the_clipped_gradients(seed: int, clip: float) -> None:
    x, y = some_records(seed, 7)
    theta = initial(MODEL, seed)
    pairs = factors(MODEL, "cross_entropy", theta, x, y)
    rows = record_gradients(MODEL, "cross_entropy", theta, x, y)
    norms = np.linalg.norm(rows, axis=1)
    assert np.allclose(gradient_norms(pairs, True), norms)
    kept = clipped(pairs, clip, True)
    assert np.allclose(gradient_norms(kept, True), np.minimum(norms, clip))


@pytest.mark.parametrize("clip", [0.2, 1.0, 100.0])
def test_a_step_without_noise_is_the_mean_of_clipped_gradients(clip: float) -> None:
    x, y = some_records(1, 12)
    theta = initial(MODEL, 3)
    rows = record_gradients(MODEL, "cross_entropy", theta, x, y)
    rows *= np.minimum(1, clip / np.linalg.norm(rows, axis=1))[:, None]
    made = local_training(recipe_with(clip, 0.0), theta, shards([x], [y]), np.random.default_rng(0))
    assert np.allclose(made[0], theta - 0.3 * rows.mean(axis=0))


def test_a_step_is_that_of_opacus() -> None:
    """The same clipped mean as Opacus' per-sample gradients and optimiser give, noise aside."""
    pytest.importorskip("opacus", reason="Opacus is not installed")
    import warnings

    import torch

    x, y = some_records(5, 10)
    theta, clip = initial(MODEL, 8), 0.7
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer

        net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU(), torch.nn.Linear(5, 3))
        net.double()
        torch.nn.utils.vector_to_parameters(torch.tensor(theta), net.parameters())
        module = GradSampleModule(net)
        optimiser = DPOptimizer(
            torch.optim.SGD(module.parameters(), lr=0.3),
            noise_multiplier=0.0,
            max_grad_norm=clip,
            expected_batch_size=len(y),
        )
        loss = torch.nn.functional.cross_entropy(
            module(torch.as_tensor(x)), torch.as_tensor(y).long()
        )
        loss.backward()
        optimiser.step()
        theirs = torch.nn.utils.parameters_to_vector(net.parameters()).detach().numpy()
    ours = local_training(
        recipe_with(clip, 0.0), theta, shards([x], [y]), np.random.default_rng(0)
    )[0]
    assert np.allclose(ours, theirs, atol=1e-12)


def test_the_noise_is_as_large_as_it_says() -> None:
    x, y = some_records(2, 20)
    theta = initial(MODEL, 3)
    noisy, still = recipe_with(0.5, 2.0), recipe_with(0.5, 0.0)
    clients = 400
    many = shards([x] * clients, [y] * clients)
    made = local_training(noisy, theta, many, np.random.default_rng(0))
    plain = local_training(still, theta, shards([x], [y]), np.random.default_rng(0))
    left = (made - plain).ravel()
    assert left.std() == pytest.approx(update_noise(noisy, 20), rel=0.02)
    assert abs(left.mean()) < 0.05 * left.std()


def test_every_record_is_drawn_at_the_stated_rate() -> None:
    recipe = recipe_with(1.0, 1.0, batch_size=5, epochs=50)
    weights = np.array(
        [w for w, _ in sampled_weights(recipe, np.array([20, 10]), 20, np.random.default_rng(4))]
    )
    assert weights.shape[0] == 50 * 4
    assert (weights[:, 0] > 0).mean() == pytest.approx(0.25, abs=0.02)
    busy = weights[: 50 * 2, 1, :10]
    assert (busy > 0).mean() == pytest.approx(0.5, abs=0.04)
    assert not weights[50 * 2 :, 1].any()
    assert not weights[:, 1, 10:].any()
    assert weights[:, 0].max() == pytest.approx(1 / 5)


def test_fedsgd_sends_the_private_gradient() -> None:
    x, y = some_records(1, 6)
    theta = initial(MODEL, 3)
    made = local_training(
        recipe_with(0.4, 0.0, algorithm="fedsgd"), theta, shards([x], [y]), np.random.default_rng(0)
    )
    assert np.linalg.norm(made[0]) <= 0.4 + 1e-12
    assert update_noise(recipe_with(0.4, 2.0, algorithm="fedsgd"), 10) == pytest.approx(0.08)
    assert update_noise(recipe_with(0.4, 2.0, private=None), 10) == 0
