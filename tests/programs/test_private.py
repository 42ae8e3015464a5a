"""DP-SGD of any network: against one record at a time, and against Opacus."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch_twins import LeNetTwin, by_autograd, torch_twin
from trainings import recipe_of, trusted_module

from overheard.errors import FixConfig
from overheard.programs.networks import network
from overheard.programs.recipe import Dense, LeNet, Module, PrivateSteps, Recipe
from overheard.programs.training import local_training, sampled_weights, shards, update_noise

pytestmark = pytest.mark.slow

DENSE = Dense(inputs=4, hidden=(5,), outputs=3)
LENET = LeNet(image=(1, 16, 16), filters=(2, 3), hidden=(5,), outputs=3)
DROPPING = LENET.model_copy(update={"dropout": 0.4})
Model = Dense | LeNet | Module
Records = tuple[np.ndarray, np.ndarray]


def normalised() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.GroupNorm(2, 6), nn.GELU(), nn.Linear(6, 3))


def mixing() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda make: trusted_module(monkeypatch, make, 4, 3)


@pytest.fixture(params=["dense", "lenet", "module"])
def model(request: pytest.FixtureRequest, own: Any) -> Model:
    return {"dense": DENSE, "lenet": LENET, "module": own(normalised)}[request.param]


def recipe_with(model: Model, clip: float, noise: float, **changes: Any) -> Recipe:
    private = {"private": PrivateSteps(clip=clip, noise=noise), "precision": "float64"}
    return recipe_of(model, "cross_entropy", learning_rate=0.3, **private, **changes)


def some_records(model: Model, seed: int, n: int) -> Records:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, model.inputs)), rng.integers(0, 3, n).astype(float)


def start(recipe: Recipe) -> np.ndarray:
    return network(recipe).initial(3, "uniform")


def trained(recipe: Recipe, theta: np.ndarray, *clients: Records) -> np.ndarray:
    data = shards([x for x, _ in clients], [y for _, y in clients])
    return local_training(recipe, theta, data, np.random.default_rng(7))


def in_torch(recipe: Recipe, theta: np.ndarray) -> nn.Module:
    """The network from torch's own layers."""
    if isinstance(recipe.model, LeNet):
        return LeNetTwin(recipe.model, theta)
    if isinstance(recipe.model, Dense):
        return torch_twin(recipe.model, theta)
    made = normalised().double()
    nn.utils.vector_to_parameters(torch.tensor(theta), made.parameters())
    return made


def clipped_gradients(recipe: Recipe, theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> Any:
    """The gradients (n, P) that a client adds up, by autograd and one record at a time."""
    rows = by_autograd(in_torch(recipe, theta), recipe.loss, x, y)
    assert recipe.private is not None
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * np.minimum(1.0, recipe.private.clip / norms)


@pytest.mark.parametrize("clip", [0.2, 1.5, 100.0])
def test_a_step_without_noise_is_the_mean_of_clipped_gradients(model: Model, clip: float) -> None:
    recipe = recipe_with(model, clip, 0.0)
    theta, clients = start(recipe), [some_records(model, 1, 12), some_records(model, 2, 7)]
    for got, (x, y) in zip(trained(recipe, theta, *clients), clients, strict=True):
        rows = clipped_gradients(recipe, theta, x, y)
        assert clip != 0.2 or np.allclose(np.linalg.norm(rows, axis=1), clip)
        np.testing.assert_allclose(got, theta - 0.3 * rows.mean(axis=0), atol=1e-12)


def test_a_step_is_that_of_opacus(model: Model) -> None:
    """The same clipped mean as Opacus' per-sample gradients and optimiser give, noise aside."""
    pytest.importorskip("opacus", reason="Opacus is not installed")
    recipe = recipe_with(model, 0.7, 0.0)
    theta, (x, y) = start(recipe), some_records(model, 5, 10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus import GradSampleModule
        from opacus.optimizers import DPOptimizer

        module = GradSampleModule(in_torch(recipe, theta))
        optimiser = DPOptimizer(
            torch.optim.SGD(module.parameters(), lr=0.3),
            noise_multiplier=0.0,
            max_grad_norm=0.7,
            expected_batch_size=len(y),
        )
        outputs = module(torch.as_tensor(x))
        nn.functional.cross_entropy(outputs, torch.as_tensor(y).long()).backward()
        optimiser.step()
        theirs = nn.utils.parameters_to_vector(module.parameters()).detach().numpy()
    # Opacus divides by the norm plus 1e-6
    np.testing.assert_allclose(trained(recipe, theta, (x, y))[0], theirs, atol=1e-6)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox"])
def test_several_sampled_steps(model: Model, algorithm: str) -> None:
    """The denominators are q m, not the batch that came; some batches have nobody."""
    pull = 0.5 * (algorithm == "fedprox")
    changes = {"batch_size": 2, "epochs": 6, "algorithm": algorithm, "proximal": pull}
    recipe = recipe_with(model, 0.3, 0.0, **changes)
    theta, (x, y) = start(recipe), some_records(model, 4, 8)
    rng, expected, sizes = np.random.default_rng(7), theta, set()
    for weights, _ in sampled_weights(recipe, np.array([8]), 8, rng):
        rows = clipped_gradients(recipe, expected, x, y)
        expected = expected - 0.3 * (weights[0] @ rows + pull * (expected - theta))
        sizes.add(int((weights[0] > 0).sum()))
        assert set(weights[0]) <= {0.0, 0.5}
        rng.standard_normal((1, len(theta)))
    assert 0 in sizes
    assert len(sizes) > 2
    np.testing.assert_allclose(trained(recipe, theta, (x, y))[0], expected, atol=1e-10)


def test_the_noise_is_as_large_as_it_says(model: Model) -> None:
    client = some_records(model, 2, 20)
    for changes in ({}, {"batch_size": 5, "steps": 1}, {"algorithm": "fedsgd"}):
        noisy = recipe_with(model, 1e-3, 1000.0, **changes)
        still, theta = recipe_with(model, 1e-3, 0.0, **changes), start(noisy)
        many = trained(noisy, theta, *[client] * (10_000 // len(theta)))
        left = many - trained(still, theta, client)
        assert left.std() == pytest.approx(update_noise(noisy, 20), rel=0.03)
        assert abs(left.mean()) < 0.05 * left.std()
        assert abs(np.corrcoef(left[0], left[1])[0, 1]) < 0.6


def test_every_record_is_drawn_at_the_stated_rate() -> None:
    recipe = recipe_with(DENSE, 1.0, 1.0, batch_size=5, epochs=50)
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


def test_a_dropped_unit_passes_no_gradient() -> None:
    (x, y), recipe = some_records(DROPPING, 2, 9), recipe_with(DROPPING, 0.5, 0.0)
    theta, rng = start(recipe), np.random.default_rng(7)
    rng.random((1, 9))  # who is drawn
    rows = network(recipe).rows(theta, x, y, rng).clipped(0.5).explicit()
    expected = theta - 0.3 * rows.mean(axis=0)
    np.testing.assert_allclose(trained(recipe, theta, (x, y))[0], expected, atol=1e-12)
    assert (rows[:, -len(rows[0]) // 4 :] == 0).any()


def test_fedsgd_sends_the_private_gradient_in_the_precision_of_the_model(model: Model) -> None:
    recipe = recipe_with(model, 0.4, 0.0, algorithm="fedsgd")
    made = trained(recipe, start(recipe).astype(np.float32), some_records(model, 1, 6))
    assert made.dtype == np.float32
    assert 0 < np.linalg.norm(made[0]) <= 0.4 * (1 + 1e-6)
    assert update_noise(recipe_with(model, 0.4, 2.0, algorithm="fedsgd"), 10) == pytest.approx(0.08)
    assert update_noise(recipe.model_copy(update={"private": None}), 10) == 0


def test_a_batch_that_is_normalised_has_no_gradient_of_one_record(own: Any) -> None:
    with pytest.raises(FixConfig, match="GroupNorm"):
        network(recipe_with(own(mixing), 0.4, 1.0))
