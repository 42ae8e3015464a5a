"""The search finds the training, fits the rate, and names what cannot be told apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from federations import recipe_in

from overheard.identify.recording import messages
from overheard.identify.search import (
    OPTIMISERS,
    USUAL,
    Fitted,
    Messages,
    Options,
    Structure,
    Tries,
    fit_rate,
    replayed,
    search,
    who_is_who,
)
from overheard.programs.recipe import Dense, Recipe, Target
from overheard.programs.records import Encoding, Scaled, encode
from overheard.transcript.store import Recording

RNG = np.random.default_rng(5)
SIZES = (40, 37)
SEEN = (
    tuple(RNG.normal(size=(n, 3)) for n in SIZES),
    tuple((RNG.random(n) < 0.5).astype(np.float64) for n in SIZES),
)
BASE = Recipe(
    model=Dense(inputs=3, hidden=(4,), activation="tanh"),
    loss="cross_entropy",
    encoding=Encoding(blocks=tuple(Scaled(column=f"x{j}") for j in range(3))),
    target=Target(column="y", classes=("no", "yes")),
    learning_rate=0.1,
)


def observed(recipe: Recipe, rounds: int = 2) -> Messages:
    """Messages of clients that train so, in an order that no replay has."""
    client = np.repeat(np.arange(len(SIZES)), rounds)
    start = np.random.default_rng(6).normal(0, 0.5, (len(client), recipe.model.size))
    sent = start.astype(np.float32)
    empty = Messages(sent, np.zeros(sent.shape), np.zeros(sent.shape), client)
    added = replayed(Fitted(Structure("", recipe, *SEEN), recipe), empty, 3)[:, 2]
    rounded = np.full(sent.shape, 3e-8)
    return Messages(sent, added, rounded, client)


FEWER = Options(batches=(16, None), epochs=(1, 3))
"""A part of the grid, which takes a second."""


def changed(**how: Any) -> Recipe:
    return BASE.model_copy(update=how)


def test_full_batches_are_found_to_rounding() -> None:
    true = changed(optimiser=OPTIMISERS["Adam"], epochs=3, learning_rate=0.0123)
    relu = changed(model=BASE.model.model_copy(update={"activation": "relu"}))
    structures = [Structure("relu", relu, *SEEN), Structure("tanh", BASE, *SEEN)]
    best = search(lambda *_: structures, observed(true), Tries(FEWER))[0]
    assert best.words.startswith("Adam at rate 0.0123, full batch, 3 epochs")
    assert best.structure.words == "tanh"
    assert best.recipe.learning_rate == pytest.approx(0.0123, rel=1e-6)


def test_one_full_step_is_momentum_as_well() -> None:
    """The first step of momentum is plain descent: nobody can tell, and that is said."""
    ranking = search(
        lambda *_: [Structure("", BASE, *SEEN)], observed(changed(learning_rate=0.05)), Tries(FEWER)
    )
    assert {f.name for f in ranking if f.as_good_as(ranking[0])} == {"SGD", "momentum"}
    assert ranking[0].name == "SGD"


@pytest.mark.parametrize("hidden", [(4,), (40,)])
def test_mini_batches_of_random_order_are_found(hidden: tuple[int, ...]) -> None:
    """Also among more coordinates than a covariance is known of."""
    base = changed(model=BASE.model.model_copy(update={"hidden": hidden}))
    true = base.model_copy(update={"batch_size": 16, "epochs": 3, "learning_rate": 0.07})
    best = search(lambda *_: [Structure("", base, *SEEN)], observed(true, rounds=3), Tries(FEWER))[
        0
    ]
    assert best.recipe.batch_size == 16
    assert (best.name, best.recipe.epochs) == ("SGD", 3)
    assert best.recipe.learning_rate == pytest.approx(0.07, rel=0.05)


def test_a_rate_is_fitted_from_far_away() -> None:
    true = changed(optimiser=OPTIMISERS["momentum"], epochs=3, learning_rate=0.2)
    start = true.model_copy(update={"learning_rate": 1e-3})
    found = fit_rate(Fitted(Structure("", true, *SEEN), start), observed(true), 1)
    assert found.recipe.learning_rate == pytest.approx(0.2, rel=1e-5)
    assert found.residual < 1e-9


def test_clients_of_one_population_that_train_for_long(federate: Callable[..., Recording]) -> None:
    """One step of descent on their records goes the same way, and mistakes two for each other."""
    training = {"batch_size": 16, "epochs": 3, "optimiser": {"name": "adam"}}
    recording = federate(
        {"name": "mlp", "hidden": [8]}, clients=6, people=100, participation=1.0,
        rounds=1, learning_rate=0.01, **training,
    )  # fmt: skip
    recipe = recipe_in(recording)
    truth = recording.truth().values()
    inputs = tuple(encode(recipe.encoding, records) for records in truth)
    structure = Structure("", recipe, inputs, tuple(map(recipe.target.encode, truth)))
    assert who_is_who([structure], messages(recording, recording.clients, 1), Tries(USUAL)) == [
        *range(6)
    ]
