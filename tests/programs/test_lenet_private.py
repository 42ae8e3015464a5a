"""DP-SGD of a LeNet through Opacus: against our own per-record gradients, clipped and summed."""

from __future__ import annotations

import builtins
from typing import Any

import numpy as np
import pytest
from lenet_gradients import explicit_gradients

from overheard.errors import FixConfig
from overheard.programs import lenet
from overheard.programs.private import sampled_weights, update_noise
from overheard.programs.recipe import LeNet, PrivateSteps, Recipe, Target
from overheard.programs.records import Encoding, Pixels
from overheard.programs.training import local_training, shards

SMALL = LeNet(image=(1, 16, 16), filters=(2, 3), hidden=(5,), outputs=3)
DROPPING = SMALL.model_copy(update={"dropout": 0.4})


def recipe_with(clip: float, noise: float, model: LeNet = SMALL, **changes: Any) -> Recipe:
    return Recipe(
        model=model,
        loss="cross_entropy",
        encoding=Encoding(blocks=(Pixels(column="image", shape=model.image),)),
        target=Target(column="y", classes=(0.0, 1.0, 2.0)),
        learning_rate=0.3,
        private=PrivateSteps(clip=clip, noise=noise),
        wire="float64",
        **changes,
    )


def some_records(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, SMALL.inputs)), rng.integers(0, 3, n).astype(float)


def trained(recipe: Recipe, theta: np.ndarray, *clients: tuple[np.ndarray, np.ndarray]) -> Any:
    data = shards([x for x, _ in clients], [y for _, y in clients])
    return local_training(recipe, theta, data, np.random.default_rng(7))


def clipped(recipe: Recipe, rows: np.ndarray) -> np.ndarray:
    """The gradients that a client adds up."""
    assert recipe.private is not None
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(rows * np.minimum(1.0, recipe.private.clip / norms))


@pytest.fixture(autouse=True)
def _opacus() -> None:
    pytest.importorskip("opacus", reason="Opacus is not installed")


@pytest.mark.parametrize("clip", [0.2, 1.5, 100.0])
def test_opacus_and_our_gradients_agree(clip: float) -> None:
    clients, theta = [some_records(1, 12), some_records(2, 7)], lenet.initial(SMALL, 3)
    recipe = recipe_with(clip, 0.0)
    made = trained(recipe, theta, *clients)
    for got, (x, y) in zip(made, clients, strict=True):
        rows = explicit_gradients(SMALL, theta, x, y)
        quick = lenet.record_rows(SMALL, theta, x, y).explicit()
        if clip == 0.2:
            assert (np.linalg.norm(rows, axis=1) > clip).all()
        for our in (rows, quick):
            expected = theta - 0.3 * clipped(recipe, our).mean(axis=0)
            np.testing.assert_allclose(got, expected, atol=1e-6 * clip)


@pytest.mark.parametrize("algorithm", ["fedavg", "fedprox"])
def test_several_sampled_steps_are_those_of_our_own_loop(algorithm: str) -> None:
    """The same draws, the same denominators (q m, not the batch that came), batches of nobody."""
    (x, y), theta = some_records(4, 8), lenet.initial(SMALL, 3)
    recipe = recipe_with(
        0.3,
        0.0,
        batch_size=2,
        epochs=3,
        algorithm=algorithm,
        proximal=0.5 * (algorithm != "fedavg"),
    )
    rng = np.random.default_rng(7)
    rng.integers(2**63)  # the seed of the noise
    expected, sizes = theta, set()
    for weights, _ in sampled_weights(recipe, np.array([8]), 8, rng):
        rows = clipped(recipe, explicit_gradients(SMALL, expected, x, y))
        pull = recipe.proximal * (expected - theta)
        expected = expected - 0.3 * (weights[0] @ rows + pull)
        sizes.add(int((weights[0] > 0).sum()))
        assert set(weights[0]) <= {0.0, 0.5}
    assert 0 in sizes
    assert len(sizes) > 2
    np.testing.assert_allclose(trained(recipe, theta, (x, y))[0], expected, atol=1e-6)


def test_the_noise_is_as_large_as_it_says() -> None:
    client, theta = some_records(2, 20), lenet.initial(SMALL, 3)
    for changes in ({}, {"batch_size": 5, "steps": 1}, {"algorithm": "fedsgd"}):
        noisy = recipe_with(1e-3, 1000.0, **changes)
        still = recipe_with(1e-3, 0.0, **changes)
        left = trained(noisy, theta, *[client] * 10) - trained(still, theta, client)
        assert left.std() == pytest.approx(update_noise(noisy, 20), rel=0.02)
        assert abs(left.mean()) < 0.03 * left.std()
        assert abs(np.corrcoef(left[0], left[1])[0, 1]) < 0.2


def test_with_dropout_the_same_generator_gives_the_same_bits() -> None:
    client, theta = some_records(2, 9), lenet.initial(SMALL, 3)
    recipe = recipe_with(0.5, 1.0, DROPPING, epochs=2)
    once, again = (trained(recipe, theta, client, client) for _ in range(2))
    np.testing.assert_array_equal(once, again)
    assert (once[0] != once[1]).all()


def test_a_dropped_unit_passes_no_gradient() -> None:
    (x, y), theta = some_records(2, 9), lenet.initial(SMALL, 3)
    masked = explicit_gradients(DROPPING, theta, x, y, _after_the_seed_and_draws(9))
    recipe = recipe_with(0.5, 0.0, DROPPING)
    expected = theta - 0.3 * clipped(recipe, masked).mean(axis=0)
    np.testing.assert_allclose(trained(recipe, theta, (x, y))[0], expected, atol=1e-6)


def _after_the_seed_and_draws(records: int) -> np.random.Generator:
    rng = np.random.default_rng(7)
    rng.integers(2**63)
    rng.random((1, records))
    return rng


def test_fedsgd_sends_the_private_gradient_in_the_precision_of_the_model() -> None:
    client, theta = some_records(1, 6), lenet.initial(SMALL, 3).astype(np.float32)
    made = trained(recipe_with(0.4, 0.0, algorithm="fedsgd"), theta, client)
    assert made.dtype == np.float32
    assert 0 < np.linalg.norm(made[0]) <= 0.4 * (1 + 1e-6)


def test_without_opacus_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def absent(name: str, *rest: Any) -> Any:
        if name.startswith("opacus"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(FixConfig, match=r"pip install 'overheard\[dp\]', or use model 'mlp'"):
        trained(recipe_with(0.4, 1.0), lenet.initial(SMALL, 3), some_records(1, 6))
