"""Any network, layer by layer, against autograd one record at a time; dense ones against numpy."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch_twins import LeNetTwin, by_autograd, by_torch
from trainings import recipe_of, trusted_module

from overheard.errors import GrantKnowledge
from overheard.programs import layers, trusted
from overheard.programs.gradient_rows import Outer
from overheard.programs.layers import KERNELS, LayeredNetwork
from overheard.programs.networks import initial, network
from overheard.programs.recipe import Dense, LeNet, Module, Recipe
from overheard.programs.training import local_training, shards

INPUTS = 5
SMALL = LeNet(image=(1, 16, 16), filters=(3, 4), hidden=(6,), outputs=3)
COLOUR = LeNet(image=(2, 16, 18), filters=(2, 3), hidden=(7, 5), outputs=4, dropout=0.4)
LENETS = {"small": SMALL, "colour": COLOUR}


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 4), nn.Tanh(), nn.Linear(4, 3))


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 40), nn.Dropout(0.5), nn.Linear(40, 3))


def mixing() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))


def described(make: Any, monkeypatch: pytest.MonkeyPatch) -> Module:
    return trusted_module(monkeypatch, make, INPUTS, 3)


def recipe(model: Any, loss: str = "cross_entropy", **settings: Any) -> Recipe:
    return recipe_of(model, loss, **settings)


class Sequence(nn.Module):
    """Positions of a record: an embedding of each, a norm, a dense layer at every position."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm = nn.Embedding(4, 6), nn.LayerNorm(6)
        self.each, self.last = nn.Linear(6, 2, bias=False), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.each(self.norm(self.embedding((3 * x).long().abs() % 4)))
        made = self.last(made.flatten(1))
        return made


class Images(nn.Module):
    """Convolutions of every setting, and norms of channels; activations in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, stride=2, padding=1, bias=False)
        self.second = nn.Conv2d(4, 4, (1, 2), dilation=2, padding=(0, 1))
        self.grouped = nn.Conv2d(4, 4, 3, padding="same", groups=2)
        self.norm, self.scale = nn.GroupNorm(2, 4), nn.Parameter(torch.tensor(0.7))
        self.last = nn.LazyLinear(3)
        self(torch.zeros(1, INPUTS))

    def forward(self, x: Tensor) -> Tensor:
        made = (x[:, None, None, :] * x[:, None, :, None]).to(x)
        made = nn.functional.relu(self.norm(self.first(made)), inplace=True)
        made = nn.functional.relu(self.second(made), inplace=True)
        made = self.scale * self.grouped(made).sigmoid()
        made = self.last(made.flatten(1))
        return made


class Odd(nn.Module):
    """Layers that their inputs and errors do not tell: tied, used twice, records not in front."""

    def __init__(self) -> None:
        super().__init__()
        self.tied, self.twice, self.turned = nn.Linear(INPUTS, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.frozen, self.last = nn.Linear(4, 4), nn.Linear(4, 3)
        self.frozen.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        made = torch.tanh(self.twice(torch.tanh(self.twice(self.tied(x)))))
        made = made + self.turned(torch.stack([made, made, made])).sum(dim=0)
        made = self.frozen(made) + torch.tanh(x.sum() * 0 + x @ self.tied.weight.T)
        made = self.last(input=made)
        return made


def alone() -> nn.Module:
    return nn.Linear(INPUTS, 3)


OUTER = {"plain": 2, "alone": 1, "Sequence": 1, "Images": 1, "Odd": 0, "mixing": 2}
"""How many layers are kept as factors."""


@pytest.mark.parametrize("name", OUTER)
def test_rows_of_every_layer_are_autograds(
    name: str, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setattr(layers, "CHUNK", 4)
    torch.manual_seed(1)
    make = globals()[name]
    model = described(make, monkeypatch)
    net = network(recipe(model))
    inputs, labels = rng.normal(size=(7, INPUTS)), rng.integers(3, size=7).astype(float)
    module = make().double().eval()
    theta = torch.cat([p.detach().flatten() for p in module.parameters() if p.requires_grad])
    assert isinstance(net, LayeredNetwork)
    if name == "Odd":  # what is not trained is the factory's, each time another
        module.frozen.bias.data = dict(net.still)["frozen.bias"].double()
    rows = net.rows(theta.numpy(), inputs, labels)
    expected = by_autograd(module, "cross_entropy", inputs, labels)
    np.testing.assert_allclose(rows.explicit(), expected, rtol=1e-9, atol=1e-12)
    assert sum(isinstance(layer, Outer) for layer in rows.layers) == OUTER[name]
    assert len(rows.moments()) == len(rows.layers)


def test_a_layer_of_ones_own_is_one_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trusted, "imported", trusted.imported)
    monkeypatch.setattr(trusted, "_TRUSTED", set())
    monkeypatch.setattr(layers, "KERNELS", dict(KERNELS))
    assert doctest.testmod(layers) == (0, 12)


def test_a_kernel_that_is_wrong_is_not_used(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    right = KERNELS[nn.Linear]
    monkeypatch.setitem(KERNELS, nn.Linear, lambda layer, x, errors: right(layer, x, 2 * errors))
    net, same = network(recipe(described(plain, monkeypatch))), network(recipe(SAME))
    theta, inputs, labels = rng.normal(size=SAME.size), rng.normal(size=(4, INPUTS)), np.ones(4)
    made, expected = (n.rows(theta, inputs, labels) for n in (net, same))
    np.testing.assert_allclose(made.explicit(), expected.explicit(), rtol=1e-9, atol=1e-12)
    assert made.written == SAME.size


SAME = Dense(inputs=INPUTS, hidden=(4,), outputs=3, activation="tanh")


@pytest.mark.parametrize("loss", ["cross_entropy", "huber", "poisson", "squared_error"])
@pytest.mark.parametrize("change", [{}, {"hidden": ()}, {"hidden": (6, 4), "bias": False}], ids=str)
@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid"])
def test_numpy_is_a_fast_path_of_it(
    loss: Any, change: Any, activation: str, rng: np.random.Generator
) -> None:
    """Predictions, rows, steps of several clients, and gradients that can be searched along."""
    outputs = 3 if loss == "cross_entropy" else 1
    model = SAME.model_copy(update={"outputs": outputs, "activation": activation, **change})
    fast, slow = network(recipe(model, loss)), LayeredNetwork(model, loss)
    assert not isinstance(fast, LayeredNetwork)
    theta, inputs = rng.normal(size=model.size), rng.normal(size=(110, INPUTS))
    labels = rng.integers(3, size=110).astype(float)
    np.testing.assert_allclose(slow.predict(theta, inputs), fast.predict(theta, inputs), rtol=1e-10)
    one, other = (net.rows(theta, inputs, labels) for net in (slow, fast))
    for mine, theirs in zip(one.layers, other.layers, strict=True):
        assert isinstance(mine, Outer)
        assert isinstance(theirs, Outer)
        np.testing.assert_allclose(mine.errors, theirs.errors, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(mine.inputs, theirs.inputs, rtol=1e-9, atol=1e-12)
    models, weights = rng.normal(size=(2, model.size)), rng.random((2, 55))
    batch = inputs.reshape(2, 55, INPUTS), labels.reshape(2, 55), weights
    for clip in (None, 0.5):
        steps = [net.gradient(models, rng, clip)(*batch) for net in (slow, fast)]
        np.testing.assert_allclose(*steps, rtol=1e-9, atol=1e-12)
    at = torch.tensor(models), torch.tensor(inputs), torch.tensor(labels)
    means = [
        rows.mean(axis=0) for rows in (fast.rows(t, inputs, labels).explicit() for t in models)
    ]
    np.testing.assert_allclose(slow.mean_gradients(*at).detach(), means, rtol=1e-9, atol=1e-12)


def test_gradients_can_be_searched_along(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    foreign = network(recipe(described(plain, monkeypatch)))
    own = LayeredNetwork(SAME, "cross_entropy")
    thetas = torch.tensor(rng.normal(size=(2, SAME.size)))
    labels = torch.tensor(rng.integers(3, size=6).astype(float))
    shares = torch.tensor(rng.dirichlet(np.ones(3), size=6))
    for known in (labels, shares):
        slopes = []
        for net in (foreign, own):
            inputs = torch.tensor(np.arange(30.0).reshape(6, INPUTS) / 30, requires_grad=True)
            found = net.mean_gradients(thetas, inputs, known)
            slopes.append((found, torch.autograd.grad((found**2).sum(), inputs)[0]))
        for one, two in zip(*slopes, strict=True):
            torch.testing.assert_close(one, two)


class Asking(nn.Linear):
    """Asks for a number, which no batch of batches has; counts how often it is called."""

    calls, asks = 0, True

    def forward(self, x: Tensor) -> Tensor:
        Asking.calls += 1
        doubled = self.asks and self.weight.sum().item() > 0
        return super().forward(x) * (1 + doubled)


@pytest.mark.parametrize(("asks", "calls"), [(False, 3), (True, 1 + 20)])
def test_modules_of_others_are_called_for_many_clients_at_once(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, asks: bool, calls: int
) -> None:
    """Or one by one, if they cannot be."""
    monkeypatch.setattr(Asking, "asks", asks)
    net = network(recipe(described(lambda: Asking(INPUTS, 3), monkeypatch)))
    models, labels = rng.normal(size=(20, 18)), rng.integers(3, size=(20, 4)).astype(float)
    batch = (
        rng.normal(size=(20, 4, INPUTS)),
        labels,
        np.array([0.5, 0.2, 0.3, 0.0]) * np.ones((20, 1)),
    )
    Asking.calls = 0
    made = net.gradient(models, rng)(*batch)
    assert Asking.calls == calls
    for model, mine, inputs, classes, weights in zip(models, made, *batch, strict=True):
        alone = net.gradient(model[None], rng)(inputs[None], classes[None], weights[None])[0]
        np.testing.assert_allclose(mine, alone, rtol=1e-9, atol=1e-12)


def test_it_knows_what_draws_and_what_mixes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for make in (plain, dropping, mixing):
        made = network(recipe(described(make, monkeypatch)))
        found.append((made.random, made.mixes))
    assert found == [(False, False), (True, False), (False, True)]


def test_code_is_not_run_without_trust() -> None:
    layout = (("weight", (1, INPUTS)),)
    stated = recipe(Module(factory="os:abort", inputs=INPUTS, outputs=3, parameters=layout))
    with pytest.raises(GrantKnowledge, match="overheard --trust os:abort"):
        network(stated)


def some(model: LeNet, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, model.inputs))
    return initial(model, seed), x, rng.integers(model.outputs, size=n).astype(float)


def test_the_papers_sizes_of_a_lenet() -> None:
    assert LeNet(image=(1, 28, 28), dropout=0.5).size == 21_840
    assert LeNet(image=(3, 32, 32), filters=(6, 16), hidden=(120, 84)).size == 62_006


@pytest.mark.parametrize("name", LENETS)
def test_a_lenet_is_torchs(name: str) -> None:
    model = LENETS[name]
    theta, x, y = some(model, 6)
    net = LayeredNetwork(model, "cross_entropy")
    expected = LeNetTwin(model, theta)(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(net.predict(theta, x), expected, atol=1e-12)
    both = net.predict(np.stack([theta, 2 * theta]), x)
    assert both.shape == (2, 6, model.outputs)
    np.testing.assert_allclose(both[0], expected, atol=1e-12)
    rows = net.rows(theta, x, y)
    expected = by_torch(model, "cross_entropy", theta, x, y)
    np.testing.assert_allclose(rows.explicit(), expected, atol=1e-12)


def test_dropout_of_a_lenet_follows_the_generator_and_the_records_model() -> None:
    """Each client and record has its own draws; float32 stays float32."""
    theta, x, _ = some(COLOUR, 8)
    data = shards([x, x], [np.zeros(8), np.zeros(8)])
    stated = recipe(COLOUR, learning_rate=0.3)
    one, again, other = (
        local_training(stated, theta, data, np.random.default_rng(s)) for s in (2, 2, 3)
    )
    np.testing.assert_array_equal(one, again)
    assert np.abs(one - other).max() > 1e-4
    assert np.abs(one[0] - one[1]).max() > 1e-4
    single = local_training(stated, theta.astype(np.float32), data, np.random.default_rng(2))
    assert single.dtype == np.float32
    same = np.repeat(x[:1], 4000, axis=0)
    net = LayeredNetwork(COLOUR, "cross_entropy")
    drawn = net.rows(theta, same, np.zeros(4000), np.random.default_rng(4))
    inputs = drawn.layers[2].inputs  # of the first dense layer: 0, or 1/(1 - dropout) times as much
    whole = net.rows(theta, same[:1], np.zeros(1)).layers[2].inputs
    ratios = inputs[:, whole[0] > 0] / whole[:, whole[0] > 0]
    assert ((np.abs(ratios) < 1e-9) | (np.abs(ratios - 1 / 0.6) < 1e-9)).all()
    assert abs(ratios.mean() - 1) < 0.02
    assert drawn.explicit().std(axis=0).max() > 1e-3
