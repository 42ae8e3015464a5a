"""LeNet, batched over records and clients, against torch.nn one record and one client at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from lenet_gradients import Twin, explicit_gradients
from torch import nn
from trainings import recipe_of

from overheard.programs import lenet
from overheard.programs.losses import LOSSES
from overheard.programs.networks import initial
from overheard.programs.recipe import LeNet
from overheard.programs.training import Schedule, local_training, shards

CROSS_ENTROPY = LOSSES["cross_entropy"]
SMALL = LeNet(image=(1, 16, 16), filters=(3, 4), hidden=(6,), outputs=3)
COLOUR = LeNet(image=(2, 16, 18), filters=(2, 3), hidden=(7, 5), outputs=4, dropout=0.4)
MODELS = {"small": SMALL, "colour": COLOUR}


def some(model: LeNet, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    theta = initial(model, seed)
    return (
        theta,
        rng.normal(size=(n, model.inputs)),
        rng.integers(model.outputs, size=n).astype(float),
    )


def twin_gradient(model: LeNet, theta: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Gradient of the mean loss of a batch, by autograd."""
    twin = Twin(model, theta)
    loss = nn.functional.cross_entropy(twin(torch.tensor(x)), torch.tensor(y).long())
    made = torch.autograd.grad(loss, list(twin.parameters()))
    return np.concatenate([g.numpy().ravel() for g in made])


def test_the_papers_sizes() -> None:
    assert LeNet(image=(1, 28, 28), dropout=0.5).size == 21_840
    assert LeNet(image=(3, 32, 32), filters=(6, 16), hidden=(120, 84)).size == 62_006


@pytest.mark.parametrize("name", MODELS)
def test_predictions_are_torchs(name: str) -> None:
    model = MODELS[name]
    theta, x, _ = some(model, 5)
    expected = Twin(model, theta)(torch.tensor(x)).detach().numpy()
    predict = lenet.LeNetNetwork(model, "cross_entropy").predict
    np.testing.assert_allclose(predict(theta, x), expected, atol=1e-12)
    both = predict(np.stack([theta, 2 * theta]), x)
    assert both.shape == (2, 5, model.outputs)
    np.testing.assert_allclose(both[0], expected, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_rows_are_autograds(name: str) -> None:
    model = MODELS[name]
    theta, x, y = some(model, 6)
    expected = [twin_gradient(model, theta, x[[i]], y[[i]]) for i in range(6)]
    rows = lenet.record_rows(model, theta, x, y)
    np.testing.assert_allclose(rows.explicit(), expected, atol=1e-12)
    np.testing.assert_allclose(explicit_gradients(model, theta, x, y), expected, atol=1e-12)


def test_rows_with_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    """The factored and the explicit way draw the same masks, and differ from no dropout."""
    monkeypatch.setattr(lenet, "CHUNK", 4)
    theta, x, y = some(COLOUR, 10)
    rows = lenet.record_rows(COLOUR, theta, x, y, np.random.default_rng(1)).explicit()
    slow = explicit_gradients(COLOUR, theta, x, y, np.random.default_rng(1))
    np.testing.assert_allclose(rows, slow, atol=1e-12)
    assert np.abs(rows - lenet.record_rows(COLOUR, theta, x, y).explicit()).max() > 1e-3


TRAINING: dict[str, dict[str, Any]] = {
    "one full batch": {},
    "mini-batches": {"batch_size": 4},
    "mini-batches, epochs": {"batch_size": 4, "epochs": 2},
    "steps": {"batch_size": 3, "steps": 3},
    "fedprox": {"algorithm": "fedprox", "proximal": 0.5, "epochs": 3},
    "fedsgd": {"algorithm": "fedsgd"},
}


@pytest.mark.parametrize("training", TRAINING)
def test_training_is_that_of_one_client_at_a_time(training: str) -> None:
    recipe = recipe_of(SMALL, "cross_entropy", learning_rate=0.3, **TRAINING[training])
    sizes = (6, 3, 9)
    theta = initial(SMALL, 1)
    clients = [some(SMALL, n, seed)[1:] for seed, n in enumerate(sizes)]
    data = shards([x for x, _ in clients], [y for _, y in clients])
    made = local_training(recipe, theta, data, np.random.default_rng(5))
    rng = np.random.default_rng(5)
    if recipe.algorithm == "fedsgd":
        expected = [twin_gradient(SMALL, theta, x, y) for x, y in clients]
    else:
        expected = [theta.copy() for _ in clients]
        for inputs, labels, weights in Schedule(recipe, data, rng).one_by_one(
            np.dtype(float), slice(None)
        ):
            for c in range(len(clients)):
                real = weights[c] > 0
                if real.any():
                    step = twin_gradient(SMALL, expected[c], inputs[c, real], labels[c, real])
                    step = step + recipe.proximal * (expected[c] - theta)
                    expected[c] = expected[c] - recipe.learning_rate * step
    np.testing.assert_allclose(made, expected, atol=1e-10)


def test_training_with_dropout_is_the_same_however_it_is_batched() -> None:
    """A common model's pass and vmap over own models agree; float32 stays float32."""
    theta, _, _ = some(COLOUR, 1)
    clients = [some(COLOUR, n, seed)[1:] for seed, n in enumerate((4, 7))]
    data = shards([x for x, _ in clients], [y for _, y in clients])
    recipe = recipe_of(COLOUR, "cross_entropy", learning_rate=0.3)
    together = local_training(recipe, theta, data, np.random.default_rng(2))
    apart = np.stack([theta, theta])
    apart[1, -1] += 1e-13  # no longer one model, and yet the same
    alone = local_training(recipe, apart, data, np.random.default_rng(2))
    np.testing.assert_allclose(together, alone, atol=1e-10)
    other = local_training(recipe, theta, data, np.random.default_rng(3))
    assert np.abs(together - other).max() > 1e-4
    single = local_training(recipe, theta.astype(np.float32), data, np.random.default_rng(2))
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, together, atol=1e-5)


def test_dropout_keeps_the_mean() -> None:
    masks = lenet.dropout_masks(COLOUR, (4000,), np.float64, np.random.default_rng(0))
    assert masks is not None
    assert [m.shape[1] for m in masks] == [COLOUR.flattened, *COLOUR.hidden]
    for mask in masks:
        assert set(np.unique(mask)) == {0.0, 1 / 0.6}
        assert abs(mask.mean() - 1) < 0.02
    assert lenet.dropout_masks(SMALL, (3,), np.float64, np.random.default_rng(0)) is None
