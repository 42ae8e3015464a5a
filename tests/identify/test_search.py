"""The search finds the training, fits the rate, and names what cannot be told apart."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from federations import recipe_in

from overheard.attacks.client import NO_DEFENCE
from overheard.evaluation.replay import Training
from overheard.federation.federation import Federation
from overheard.identify.search import (
    OPTIMISERS,
    Explanation,
    Messages,
    Options,
    Tries,
    fit_rate,
    messages,
    paired,
    replayed,
    search,
    turned,
)
from overheard.programs.recipe import Dense, Module, Recipe, Target
from overheard.programs.records import Encoding, Scaled
from overheard.transcript.store import Recording

RNG = np.random.default_rng(5)
SIZES = (40, 37)
BASE = Recipe(
    model=Dense(inputs=3, hidden=(4,), activation="tanh"),
    loss="cross_entropy",
    encoding=Encoding(blocks=tuple(Scaled(column=f"x{j}") for j in range(3))),
    target=Target(column="y", classes=("no", "yes")),
    learning_rate=0.1,
)
SEEN = {
    str(n): Training(
        BASE, NO_DEFENCE, (RNG.normal(size=(n, 3)),), ((RNG.random(n) < 0.5).astype(np.float64),)
    )
    for n in SIZES
}
WHOLE = Federation.model_validate(
    {"data": {"source": "randhie"}, "model": {"name": "linear"}, "training": {"learning_rate": 0.1}}
)


def observed(recipe: Recipe, rounds: int = 2) -> Messages:
    """Messages of clients that train so, in an order that no replay has."""
    client = np.repeat(np.array([*SEEN]), rounds)
    start = np.random.default_rng(6).normal(0, 0.5, (len(client), recipe.model.size))
    sent = start.astype(np.float32)
    updates = replayed(Explanation("", WHOLE, recipe, SEEN), client, sent, 3)[:, -1]
    return Messages(sent, updates, client)


FEWER = Options(batches=(16, None), epochs=(1, 3))
"""A part of the grid, which takes a second."""


def changed(**how: Any) -> Recipe:
    return BASE.model_copy(update=how)


def test_full_batches_are_found_to_rounding() -> None:
    true = changed(optimiser=OPTIMISERS["Adam"], epochs=3, learning_rate=0.0123)
    relu = changed(model=BASE.model.model_copy(update={"activation": "relu"}))
    structures = [
        Explanation(about, WHOLE, one, SEEN) for about, one in (("relu", relu), ("tanh", BASE))
    ]
    best = search(lambda *_: structures, observed(true), Tries(FEWER))[0]
    assert best.words.startswith("Adam at rate 0.0123, full batch, 3 epochs")
    assert best.about == "tanh"
    assert best.program.learning_rate == pytest.approx(0.0123, rel=1e-6)


def test_one_full_step_is_momentum_as_well() -> None:
    """The first step of momentum is plain descent: nobody can tell, and both are listed."""
    ranking = search(
        lambda *_: [Explanation("", WHOLE, BASE, SEEN)],
        observed(changed(learning_rate=0.05)),
        Tries(FEWER),
    )
    assert {f.words.split()[0] for f in ranking if f.as_good_as(ranking[0])} == {"SGD", "momentum"}
    assert ranking[0].words.startswith("SGD at")


@pytest.mark.parametrize("hidden", [(4,), (40,)])
def test_mini_batches_of_random_order_are_found(hidden: tuple[int, ...]) -> None:
    """Also among more coordinates than a covariance is known of."""
    base = changed(model=BASE.model.model_copy(update={"hidden": hidden}))
    true = base.model_copy(update={"batch_size": 16, "epochs": 3, "learning_rate": 0.07})
    best = search(
        lambda *_: [Explanation("", WHOLE, base, SEEN)], observed(true, rounds=3), Tries(FEWER)
    )[0]
    assert (best.words[:6], best.program.epochs, best.program.batch_size) == ("SGD at", 3, 16)
    assert best.program.learning_rate == pytest.approx(0.07, rel=0.05)


def test_a_convolution_costs_more_than_its_parameters() -> None:
    layers = (("conv.weight", (6, 3, 5, 5)), ("fc.weight", (10, 1176)))
    assert Module(factory="app:Net", inputs=3072, parameters=layers).reuse == 30
    assert Module(factory="app:Net", inputs=1176, parameters=layers[1:]).reuse == 1


def test_a_rate_is_fitted_from_far_away() -> None:
    true = changed(optimiser=OPTIMISERS["momentum"], epochs=3, learning_rate=0.2)
    start = true.model_copy(update={"learning_rate": 1e-3})
    found = fit_rate(Explanation("", WHOLE, start, SEEN), observed(true), 1)
    assert found.program.learning_rate == pytest.approx(0.2, rel=1e-5)
    assert found.residual < 1e-9


def test_clients_of_one_population_that_train_for_long(federate: Callable[..., Recording]) -> None:
    """One step of descent on their records goes the same way, and mistakes two for each other."""
    training = {"batch_size": 16, "epochs": 3, "optimiser": {"name": "adam"}, "learning_rate": 0.01}
    people = {"clients": 6, "people": 100, "participation": 1.0, "rounds": 1}
    recording = federate({"name": "mlp", "hidden": [8]}, **people, **training)
    recipe, truth = recipe_in(recording), recording.truth()
    given = {c: Training.of(recipe, NO_DEFENCE, {c: own}) for c, own in truth.items()}
    steps = recipe.model_copy(update={"learning_rate": 1e-3, "batch_size": 32, "epochs": 1})
    first = messages(recording, recording.clients, 1)
    ways, off = [Explanation("", None, steps, given)], partial(turned, first=first)
    assert paired(ways, off)[1] == [*truth]
