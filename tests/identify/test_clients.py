"""Clients that are much alike are told apart by what training on their records leads to."""

from __future__ import annotations

from collections.abc import Callable

from overheard.identify.recording import messages
from overheard.identify.search import USUAL, Structure, Tries, who_is_who
from overheard.programs.records import encode
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
    truth = recording.truth().values()
    inputs = tuple(encode(recipe.encoding, records) for records in truth)
    structure = Structure("", recipe, inputs, tuple(map(recipe.target.encode, truth)))
    assert who_is_who([structure], messages(recording, recording.clients, 1), Tries(USUAL)) == [
        *range(6)
    ]
