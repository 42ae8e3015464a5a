"""The search finds the training, fits the rate, and names what cannot be told apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from overheard.identify import search as searching
from overheard.identify.evidence import (
    COORDINATES,
    Messages,
    Seen,
    looked_at,
    replayed,
)
from overheard.identify.search import OPTIMISERS, Structure, effort, fit_rate, search
from overheard.programs.recipe import Dense, Recipe, Target
from overheard.programs.records import Encoding, Scaled

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(5)
SIZES = (40, 37)
SEEN = Seen(
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


def heard(recipe: Recipe, rounds: int = 2) -> Messages:
    """Messages of clients that train so, in an order that no replay has."""
    client = np.repeat(np.arange(len(SIZES)), rounds)
    start = np.random.default_rng(6).normal(0, 0.5, (len(client), recipe.model.size))
    sent = start.astype(np.float32)
    empty = Messages(sent, np.zeros(sent.shape), np.zeros(sent.shape), client)
    added = replayed(recipe, SEEN, empty, 3)[:, 2]
    rounded = np.full(sent.shape, 3e-8)
    return Messages(sent, added, rounded, client)


@pytest.fixture
def fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the grid, which takes a second."""
    monkeypatch.setattr(searching, "BATCHES", (16, None))
    monkeypatch.setattr(searching, "EPOCHS", (1, 3))


def changed(**how: Any) -> Recipe:
    return BASE.model_copy(update=how)


def test_full_batches_are_found_to_rounding(fewer: None) -> None:
    true = changed(optimiser=OPTIMISERS["Adam"], epochs=3, learning_rate=0.0123)
    relu = changed(model=BASE.model.model_copy(update={"activation": "relu"}))
    structures = [Structure("relu", relu, SEEN), Structure("tanh", BASE, SEEN)]
    best = search(structures, heard(true))[0]
    assert best.words.startswith("Adam at rate 0.0123, full batch, 3 epochs")
    assert best.structure.words == "tanh"
    assert best.recipe.learning_rate == pytest.approx(0.0123, rel=1e-6)


def test_one_full_step_is_momentum_as_well(fewer: None) -> None:
    """The first step of momentum is plain descent: nobody can tell, and that is said."""
    ranking = search([Structure("", BASE, SEEN)], heard(changed(learning_rate=0.05)))
    assert {f.name for f in ranking if f.as_good_as(ranking[0])} == {"SGD", "momentum"}
    assert ranking[0].name == "SGD"


def test_mini_batches_of_random_order_are_found(fewer: None) -> None:
    true = changed(batch_size=16, epochs=3, learning_rate=0.07)
    best = search([Structure("", BASE, SEEN)], heard(true, rounds=3))[0]
    assert best.recipe.batch_size == 16
    assert (best.name, best.recipe.epochs) == ("SGD", 3)
    assert best.recipe.learning_rate == pytest.approx(0.07, rel=0.05)


def test_of_large_clients_fewer_messages_and_epochs_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    messages = heard(BASE, rounds=4)
    small = effort(messages, SIZES)
    assert (len(small.few.sent), small.heard) == (6, messages)
    assert (small.many, small.epochs >= 10) == (searching.MANY, True)
    large = effort(messages, [20_000_000] * 2)
    assert (len(large.few.sent), large.epochs, large.many) == (1, 1, 2 * searching.SOME)


def test_a_rate_is_fitted_from_far_away() -> None:
    true = changed(optimiser=OPTIMISERS["momentum"], epochs=3, learning_rate=0.2)
    found, left = fit_rate(true.model_copy(update={"learning_rate": 1e-3}), SEEN, heard(true), 1)
    assert found.learning_rate == pytest.approx(0.2, rel=1e-5)
    assert left < 1e-9


def test_an_exact_rate_of_many_digits_repeats_the_messages_to_the_bit(fewer: None) -> None:
    """AdamW's first step says a small rate to some parts in a million only; bits say more."""
    true = changed(optimiser=OPTIMISERS["AdamW"], learning_rate=0.00050931417)
    messages = heard(true)
    best = search([Structure("", BASE, SEEN)], messages)[0]
    np.testing.assert_array_equal(replayed(best.recipe, SEEN, messages, 1)[:, 0], messages.added)


def test_coordinates_are_not_chosen_by_how_far_they_moved() -> None:
    rng = np.random.default_rng(0)
    added = rng.normal(size=(1, 4000))
    added[:, ::2] = 0
    chosen = added[0, looked_at(Messages(added, added, added, np.zeros(1, np.int64)))]
    assert len(chosen) == COORDINATES
    assert (chosen != 0).all()
    assert np.median(np.abs(chosen)) < 0.9  # of the half that moved farther it would be 1.15
