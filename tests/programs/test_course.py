"""Training without chance: what clients return, and what that tells of their records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from overheard.programs.course import Course, OneAdamStep, shown_gradient
from overheard.programs.networks import network
from overheard.programs.recipe import Adam, Dense, Recipe, Target
from overheard.programs.records import Encoding, Scaled
from overheard.programs.simulated import Candidates

PEOPLE, INPUTS = 12, 3


def course(order: Any = None, **training: Any) -> Course:
    recipe = Recipe(
        model=Dense(inputs=INPUTS, hidden=(5,), activation="tanh"),
        loss="squared_error",
        encoding=Encoding(blocks=tuple(Scaled(column=f"x{k}") for k in range(INPUTS))),
        target=Target(column="y"),
        **training,
    )
    rng = np.random.default_rng(0)
    inputs = np.repeat(rng.normal(size=(1, PEOPLE, INPUTS)), 2, axis=0)
    inputs[:, :, 0] = np.array([0.0, 1.0])[:, None]
    labels = np.repeat(rng.normal(size=(1, PEOPLE)), 2, axis=0)
    candidates = Candidates(inputs, labels, np.ones(2, dtype=bool), PEOPLE)
    sent = network(recipe).initial(0, "torch").astype(np.float32)
    return Course(recipe, sent, candidates, order)


@pytest.mark.parametrize("decay", [{}, {"weight_decay": 0.01, "decoupled": True}], ids=str)
def test_one_step_of_adam_shows_its_gradient(decay: dict[str, Any]) -> None:
    made = course(learning_rate=0.001, optimiser=Adam(eps=1e-4, **decay))
    chosen = np.random.default_rng(1).integers(2, size=PEOPLE)
    told, slope = shown_gradient(made.recipe, made.sent, made.ends(chosen[None])[0])
    who = np.arange(PEOPLE)
    x, y = made.candidates.inputs[chosen, who], made.candidates.labels[chosen, who]
    rows = made.net.rows(made.sent.astype(np.float64), x, y)
    true = rows.columns(np.arange(made.sent.size)).mean(axis=0)
    clear = slope != 0  # of larger ones the step is a sign to rounding
    assert clear.any()
    np.testing.assert_allclose(told[clear], true[clear], rtol=0.1)


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


def test_on_the_line_of_one_step_of_adam_the_true_answer_leaves_rounding() -> None:
    rule = {"learning_rate": 0.001, "optimiser": Adam(eps=1e-4)}
    made, chosen = course(**rule), np.random.default_rng(1).integers(2, size=PEOPLE)
    line = OneAdamStep(made.recipe, made.sent, made.candidates, made.ends(chosen[None])[0])
    assert (np.abs(line.unexplained(chosen)) < 5 * line.doubt).all()
    other = np.where(np.arange(PEOPLE) == 3, 1 - chosen, chosen)
    assert (np.abs(line.unexplained(other)) > 5 * line.doubt).any()
