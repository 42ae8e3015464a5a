"""xu2021's two ways to the client's own model, and `structured`: exact where it can be."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from federations import view_of
from torch import nn

from overheard.attacks.baselines import LastReturned
from overheard.attacks.local_model import Structured
from overheard.attacks.papers.xu2021 import ExactLinear, LearnedMap, learn_map
from overheard.errors import ChooseAnotherAttack, ListenLonger
from overheard.evaluation.metrics import excess_losses, local_optimum
from overheard.transcript.kind import recipe_of
from overheard.transcript.view import launch

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("epochs", [1, 5, 20])
@pytest.mark.parametrize("columns", [3, 40])
def test_exact_from_float64_messages(federate, epochs, columns):
    """Partial participation spreads the models; every client is recovered to 1e-6."""
    recording = federate(
        clients=8,
        people=400,
        columns=columns,
        precision="float64",
        rounds=8 * (columns + 12),
        participation=0.25,
        epochs=epochs,
        learning_rate=0.2,
    )
    recipe, truth = recipe_of(recording), recording.truth()
    for client in recording.clients[:3]:
        view = view_of(recording, "local_model", client)
        guess = launch(ExactLinear(), view, 0)
        optimum = local_optimum(recipe, truth[client])
        assert guess.identified == recipe.model.size
        error = np.linalg.norm(guess.parameters - optimum) / np.linalg.norm(optimum)
        assert error <= 1e-6


def test_gradients_as_messages(federate):
    recording = federate(algorithm="fedsgd", precision="float64", clients=6, rounds=60)
    recipe, truth = recipe_of(recording), recording.truth()
    client = recording.clients[1]
    guess = launch(ExactLinear(), view_of(recording, "local_model", client), 0)
    assert guess.parameters == pytest.approx(local_optimum(recipe, truth[client]), abs=1e-6)


@pytest.mark.parametrize(
    ("model", "training", "error", "why"),
    [
        ({"name": "logistic"}, {}, ChooseAnotherAttack, "least squares"),
        ({"name": "mlp", "hidden": [4]}, {}, ChooseAnotherAttack, "least squares"),
        ({"name": "linear"}, {"batch_size": 16}, ChooseAnotherAttack, "mini-batches"),
        ({"name": "linear"}, {"rounds": 1, "participation": 1.0}, ListenLonger, "1 round"),
    ],
)
def test_refuses_what_is_no_affine_map(federate, model, training, error, why):
    recording = federate(model, **training)
    view = view_of(recording, "local_model")
    with pytest.raises(error, match=why):
        launch(ExactLinear(), view, 0)


def test_too_few_rounds_are_flagged(federate):
    """An affine map of P parameters takes P + 1 rounds: with fewer the answer is a guess."""
    recording = federate(columns=10, rounds=8, participation=1.0)
    view = view_of(recording, "local_model")
    guess = launch(ExactLinear(), view, 0)
    assert guess.identified < 8
    assert "too few" in guess.diagnostics["flag"]
    enough = federate(columns=3, rounds=30)
    for client in enough.clients:
        guess = launch(ExactLinear(), view_of(enough, "local_model", client), 0)
        assert "flag" not in guess.diagnostics


SHORT = LearnedMap(hidden=30, steps=200, rate=1e-2, search_steps=20)


def messages(rng, noise, rounds=60):
    """(T, P) models sent and updates of a client with an affine law and some noise."""
    sent = rng.normal(size=(rounds, 3))
    return sent, 0.1 * (sent - 1.0) + noise * rng.normal(size=sent.shape)


def test_the_loss_is_equation_9(rng):
    """Untrained, the map says almost nothing: the loss is then the squared updates' own sum."""
    sent, updates = messages(rng, 0.01)
    _, loss, _ = learn_map(sent, updates, LearnedMap(hidden=2, steps=1, rate=0.0), 0)
    centred = updates - updates.mean(axis=0)
    assert loss == pytest.approx((centred**2).sum(), rel=0.7)
    _, again, _ = learn_map(sent, 7.0 * updates, SHORT, 0)
    _, once, _ = learn_map(sent, updates, SHORT, 0)
    assert again == pytest.approx(49 * once, rel=1e-3)


def test_the_map_is_that_of_autograd(rng):
    """The twin builds the same network, and trains it as torch would."""
    sent, updates = messages(rng, 0.01)
    width = np.sqrt(((updates - updates.mean(0)) ** 2).mean())
    models, goal = (sent - sent.mean(0)) / sent.std(0), (updates - updates.mean(0)) / width
    x, y = (torch.from_numpy(part).float() for part in (models, goal))
    torch.manual_seed(3)
    network = nn.Sequential(nn.Linear(3, 7), nn.ReLU(), nn.Linear(7, 3))
    adam = torch.optim.Adam(network.parameters(), lr=1e-2)
    for _ in range(20):
        adam.zero_grad()
        loss = ((network(x) - y) ** 2).mean()
        loss.backward()
        adam.step()
    found = learn_map(sent, updates, LearnedMap(hidden=7, steps=20, rate=1e-2, search_steps=1), 3)
    assert found[1] == pytest.approx(float(loss.detach()) * sent.size * width**2, rel=1e-4)


@pytest.mark.parametrize("rounds", [8, 12, 20, 60])
def test_fewer_rounds_than_parameters(federate, rounds):
    """Linear least squares in mini-batches, 32 parameters: no crash, no explosion, and it says so
    where its answer is the last returned model."""
    settings = {"participation": 1.0, "batch_size": 32, "learning_rate": 0.02}
    recording = federate(columns=30, rounds=rounds, **settings)
    recipe, truth = recipe_of(recording), recording.truth()
    for client in recording.clients:
        view = view_of(recording, "local_model", client)
        guess, last = launch(Structured(), view, 0), launch(LastReturned(), view, 0)
        optimum = local_optimum(recipe, truth[client])
        mine, base = (
            excess_losses(recipe, g, optimum, truth[client]).mean() for g in (guess, last)
        )
        assert mine <= 1.5 * base
        same = np.array_equal(guess.parameters, last.parameters)
        assert same == (guess.diagnostics["trusted"] == 0.0)
        goes = f"the answer goes {guess.diagnostics['trusted']:.0%} of the way"
        assert (goes in guess.diagnostics.get("flag", "")) == (guess.diagnostics["trusted"] < 0.4)
