"""Clients that are much alike are told apart by what training on their records leads to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from overheard.attacks.client import NO_DEFENCE
from overheard.evaluation.replay import Training
from overheard.identify.search import Explanation, messages, paired, turned
from overheard.transcript.kind import recipe_of
from overheard.transcript.store import Recording


def test_clients_of_one_population_that_train_for_long(federate: Callable[..., Recording]) -> None:
    """One step of descent on their records goes the same way, and mistakes two for each other."""
    training = {"batch_size": 16, "epochs": 3, "optimiser": {"name": "adam"}}
    recording = federate(
        {"name": "mlp", "hidden": [8]}, clients=6, people=100, participation=1.0,
        rounds=1, learning_rate=0.01, **training,
    )  # fmt: skip
    recipe = recipe_of(recording)
    assert recipe is not None
    truth = recording.truth()
    given = {c: Training.of(recipe, NO_DEFENCE, {c: own}) for c, own in truth.items()}
    steps = recipe.model_copy(update={"learning_rate": 1e-3, "batch_size": 32, "epochs": 1})
    first = messages(recording, recording.clients, 1)
    ways, off = [Explanation("", None, steps, given)], partial(turned, first=first)
    assert paired(ways, off)[1] == [*truth]
