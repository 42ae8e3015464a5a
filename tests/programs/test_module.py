"""The general kernel, and the fast ones held against it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from trainings import recipe_of

from overheard.errors import GrantKnowledge
from overheard.programs import trusted
from overheard.programs.networks import network
from overheard.programs.recipe import Adam, Dense, Module, Recipe, Sgd
from overheard.programs.training import local_training, shards

INPUTS = 5


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 4), nn.Tanh(), nn.Linear(4, 3))


def single() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 4), nn.Tanh(), nn.Linear(4, 1))


def dropping() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 40), nn.Dropout(0.5), nn.Linear(40, 3))


def mixing() -> nn.Module:
    return nn.Sequential(nn.Linear(INPUTS, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))


def described(make: Any, monkeypatch: pytest.MonkeyPatch) -> Module:
    """A module of this file, as if a trusted package had made it."""
    name = f"here:{make.__name__}"
    monkeypatch.setattr(trusted, "imported", lambda factory: globals()[factory.split(":")[1]])
    monkeypatch.setattr(trusted, "_TRUSTED", {name})
    layout = tuple((n, tuple(p.shape)) for n, p in make().named_parameters())
    return Module(factory=name, inputs=INPUTS, outputs=layout[-1][1][0], parameters=layout)


def recipe(model: Any, loss: str = "cross_entropy", **settings: Any) -> Recipe:
    return recipe_of(model, loss, **settings)


SAME = Dense(inputs=INPUTS, hidden=(4,), outputs=3, activation="tanh")


def test_both_give_gradients_that_can_be_searched_along(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    slow, fast = network(recipe(described(plain, monkeypatch))), network(recipe(SAME))
    thetas = torch.tensor(rng.normal(size=(2, SAME.size)))
    labels = torch.tensor(rng.integers(3, size=6).astype(float))
    shares = torch.tensor(rng.dirichlet(np.ones(3), size=6))
    for known in (labels, shares):
        slopes = []
        for net in (slow, fast):
            inputs = torch.tensor(np.arange(30.0).reshape(6, INPUTS) / 30, requires_grad=True)
            found = net.mean_gradients(thetas, inputs, known)
            slopes.append((found, torch.autograd.grad((found**2).sum(), inputs)[0]))
        for one, two in zip(*slopes, strict=True):
            torch.testing.assert_close(one, two)


@pytest.mark.parametrize("loss", ["cross_entropy", "huber", "poisson", "squared_error"])
def test_dense_is_a_fast_path_of_it(
    loss: str, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """More records than are differentiated at once."""
    make, outputs = (plain, 3) if loss == "cross_entropy" else (single, 1)
    slow = network(recipe(described(make, monkeypatch), loss=loss))
    same = SAME.model_copy(update={"outputs": outputs})
    fast = network(recipe(same, loss=loss))
    theta, inputs = rng.normal(size=same.size), rng.normal(size=(70, INPUTS))
    labels = rng.integers(3, size=70).astype(float)
    np.testing.assert_allclose(slow.predict(theta, inputs), fast.predict(theta, inputs), rtol=1e-10)
    one, other = (net.rows(theta, inputs, labels).explicit() for net in (slow, fast))
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    at = (torch.tensor(theta[None]), torch.tensor(inputs), torch.tensor(labels))
    torch.testing.assert_close(slow.mean_gradients(*at), fast.mean_gradients(*at))


@pytest.mark.parametrize("optimiser", [Sgd(), Sgd(momentum=0.9), Adam(), Adam(decoupled=True)])
def test_both_train_the_same(
    optimiser: Any, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    sizes = (11, 23, 16)
    data = shards(
        [rng.normal(size=(n, INPUTS)) for n in sizes],
        [rng.integers(3, size=n).astype(float) for n in sizes],
    )
    start = rng.normal(size=SAME.size)
    settings = {"batch_size": 4, "epochs": 2, "optimiser": optimiser}
    slow = recipe(described(plain, monkeypatch), **settings)
    made = [
        local_training(r, start, data, np.random.default_rng(3))
        for r in (slow, recipe(SAME, **settings))
    ]
    np.testing.assert_allclose(made[0], made[1], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("optimiser", [Sgd(momentum=0.9), Adam(weight_decay=0.01)])
def test_a_client_trains_as_torch_would(optimiser: Any, rng: np.random.Generator) -> None:
    """Alone or among larger ones, which end an epoch later."""
    inputs, labels = rng.normal(size=(10, INPUTS)), rng.integers(3, size=10).astype(float)
    module = plain().double()
    start = np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])
    stated = recipe(SAME, batch_size=4, epochs=3, optimiser=optimiser)
    more = rng.normal(size=(30, INPUTS)), rng.integers(3, size=30).astype(float)
    data = shards([inputs, more[0]], [labels, more[1]])
    made = local_training(stated, start, data, np.random.default_rng(1))[0]
    from overheard.programs.training import Schedule

    theirs: Any = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    if isinstance(optimiser, Adam):
        theirs = torch.optim.Adam(module.parameters(), 0.1, weight_decay=0.01)
    order = Schedule(stated, data, np.random.default_rng(1))
    for x, y, weights in order.one_by_one(start.dtype, slice(None)):
        used = weights[0] > 0
        if not used.any():
            continue
        theirs.zero_grad()
        outputs = module(torch.tensor(x[0][used]))
        nn.functional.cross_entropy(outputs, torch.tensor(y[0][used]).long()).backward()
        theirs.step()
    expected = np.concatenate([p.detach().numpy().ravel() for p in module.parameters()])
    np.testing.assert_allclose(made, expected, rtol=1e-8, atol=1e-10)


def test_it_knows_what_draws_and_what_mixes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for make in (plain, dropping, mixing):
        made = network(recipe(described(make, monkeypatch)))
        found.append((made.chance, made.mixes))
    assert found == [(False, False), (True, False), (False, True)]


def test_dropout_follows_the_generator(
    monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    stated = recipe(described(dropping, monkeypatch), epochs=2)
    data = shards([rng.normal(size=(6, INPUTS))], [np.zeros(6)])
    start = network(stated).initial(0, "uniform")
    one, two, three = (
        local_training(stated, start, data, np.random.default_rng(seed)) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, two)
    assert np.abs(one - three).max() > 1e-4


def test_code_is_not_run_without_trust() -> None:
    layout = (("weight", (1, INPUTS)),)
    stated = recipe(Module(factory="os:abort", inputs=INPUTS, outputs=3, parameters=layout))
    with pytest.raises(GrantKnowledge, match="overheard --trust os:abort"):
        network(stated)
