"""Training without chance: what clients return, and what that tells of their records."""

from __future__ import annotations

from typing import Any

import numpy as np
from trainings import recipe_of

from overheard.programs.course import Course
from overheard.programs.networks import network
from overheard.programs.recipe import Dense
from overheard.programs.simulated import Encoded

PEOPLE, INPUTS = 12, 3


def course(order: Any = None, **training: Any) -> Course:
    recipe = recipe_of(Dense(inputs=INPUTS, hidden=(5,), activation="tanh"), **training)
    rng = np.random.default_rng(0)
    inputs = np.repeat(rng.normal(size=(1, PEOPLE, INPUTS)), 2, axis=0)
    inputs[:, :, 0] = np.array([0.0, 1.0])[:, None]
    labels = np.repeat(rng.normal(size=(1, PEOPLE)), 2, axis=0)
    candidates = Encoded(inputs, labels, np.ones(2, dtype=bool), PEOPLE)
    sent = network(recipe).initial(0, "torch").astype(np.float32)
    return Course(recipe, sent, candidates, order)


def test_columns_are_what_a_record_does_in_its_batch() -> None:
    """By finite differences of the last batch: what is done through later gradients is left out."""
    order = np.random.default_rng(2).permutation(PEOPLE)[None]
    made = course(order, learning_rate=0.01, batch_size=4)
    chosen = np.zeros((1, PEOPLE), dtype=np.int64)
    columns = made.columns(made.parts(chosen), np.arange(made.sent.size))[:, 0]
    for record in made.batches[-1]:
        flipped = chosen.copy()
        flipped[0, record] = 1
        moved = (made.ends(flipped) - made.ends(chosen))[0]
        np.testing.assert_allclose(columns[record], moved, rtol=1e-2, atol=2e-7)
