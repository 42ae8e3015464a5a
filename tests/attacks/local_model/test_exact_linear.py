"""xu2021 Observation 1, through real recordings: exact where it can be, honest where not."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.attacks.papers.xu2021 import ExactLinear
from overheard.errors import ChooseAnotherAttack, ListenLonger
from overheard.evaluation.metrics import excess_losses, local_optimum
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.transcript.observe import observe, recipe_of
from overheard.transcript.store import Recording
from overheard.transcript.target import LOCAL_MODEL
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch


@pytest.mark.parametrize("epochs", [1, 5, 20])
@pytest.mark.parametrize("columns", [3, 98])
def test_exact_from_float64_messages(federate, epochs, columns):
    """Partial participation spreads the models; every client is recovered to 1e-6."""
    recording = federate(
        clients=8,
        people=400,
        columns=columns,
        wire="float64",
        rounds=8 * (columns + 12),
        participation=0.25,
        epochs=epochs,
        learning_rate=0.2,
    )
    recipe, truth = recipe_of(recording), recording.truth()
    for client in recording.clients[:3]:
        view = observe(recording, EAVESDROPPER, LOCAL_MODEL, client)
        guess = launch(ExactLinear(), view, 0)
        optimum = local_optimum(recipe, truth[client])
        assert guess.identified == recipe.model.size
        error = np.linalg.norm(guess.parameters - optimum) / np.linalg.norm(optimum)
        assert error <= 1e-6


def test_rand_half_the_sites_a_round(tmp_path):
    """float32, three of six sites a round, real people: excess loss <= 1e-5 of the optimum's."""
    config = parse_config(
        {
            "data": {"source": "randhie"},
            "model": {"name": "linear"},
            "training": {"rounds": 120, "learning_rate": 0.1, "participation": 0.5},
        }
    )
    recording = Recording.open(simulate(plan(config), tmp_path / "run"))
    recipe, truth = recipe_of(recording), recording.truth()
    for client in recording.clients:
        view = observe(recording, EAVESDROPPER, LOCAL_MODEL, client)
        guess = launch(ExactLinear(), view, 0)
        optimum = local_optimum(recipe, truth[client])
        assert excess_losses(recipe, guess, optimum, truth[client]).mean() <= 1e-5


def test_crowded_models_are_noticed(federate):
    """With everybody in every round the models form a Krylov sequence: not identified, and said."""
    recording = federate(columns=40, clients=4, people=300, participation=1.0, rounds=60)
    recipe, truth = recipe_of(recording), recording.truth()
    client = recording.clients[0]
    view = observe(recording, EAVESDROPPER, LOCAL_MODEL, client)
    guess = launch(ExactLinear(), view, 0)
    assert guess.identified < recipe.model.size
    assert guess.diagnostics["condition"] > 1e4
    optimum = local_optimum(recipe, truth[client])
    covered = np.abs(guess.parameters - optimum) <= 3 * guess.sd
    assert covered.mean() >= 0.9
    with pytest.raises(ListenLonger, match="directions"):
        launch(ExactLinear(exact=True), view, 0)


def test_gradients_on_the_wire(federate):
    recording = federate(algorithm="fedsgd", wire="float64", clients=6, rounds=60)
    recipe, truth = recipe_of(recording), recording.truth()
    client = recording.clients[1]
    guess = launch(ExactLinear(), observe(recording, EAVESDROPPER, LOCAL_MODEL, client), 0)
    assert guess.parameters == pytest.approx(local_optimum(recipe, truth[client]), abs=1e-6)


@pytest.mark.parametrize(
    ("model", "training", "why"),
    [
        ({"name": "logistic"}, {}, "least squares"),
        ({"name": "mlp", "hidden": [4]}, {}, "least squares"),
        ({"name": "linear"}, {"batch_size": 16}, "mini-batches"),
    ],
)
def test_refuses_what_is_not_affine(federate, model, training, why):
    recording = federate(model, **training)
    view = observe(recording, EAVESDROPPER, LOCAL_MODEL, recording.clients[0])
    with pytest.raises(ChooseAnotherAttack, match=why):
        launch(ExactLinear(), view, 0)


def test_one_round_is_not_enough(federate):
    recording = federate(rounds=1, participation=1.0)
    view = observe(recording, EAVESDROPPER, LOCAL_MODEL, recording.clients[0])
    with pytest.raises(ListenLonger, match="1 round"):
        launch(ExactLinear(), view, 0)
