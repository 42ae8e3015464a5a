from __future__ import annotations

import numpy as np
import pytest
from overheard.attacks.attribute.rehearsal import Rehearsal, rehearse, tempered

from overheard.learning.dense import initial
from overheard.learning.recipe import Dense, Recipe, Target
from overheard.learning.records import Encoding, Scaled
from overheard.transcript.knowledge import Link

RECIPE = Recipe(
    model=Dense(inputs=3, hidden=(4,)),
    loss="squared_error",
    encoding=Encoding(blocks=tuple(Scaled(column=c) for c in "abc")),
    target=Target(column="y"),
    learning_rate=0.1,
    epochs=3,
)
PRIOR = np.tile([0.6, 0.4], (200, 1))


def played(certainty: float, share_right: float) -> tuple[Rehearsal, list[Link]]:
    """A rehearsal of a decoder that is right so often and always this sure."""
    rng = np.random.default_rng(0)
    candidates = rng.normal(size=(2, 200, 3))
    labels = rng.normal(size=200)
    sent = np.stack([initial(RECIPE.dense, s).astype(np.float32) for s in range(3)])
    link = Link("model", np.arange(3), sent, sent.copy(), np.full(3, 200.0))
    seen: list[Link] = []
    drawn = (np.random.default_rng(7).random((200, 1)) > np.cumsum(PRIOR, axis=1)).sum(axis=1)

    def decode(replayed: Link) -> np.ndarray:
        seen.append(replayed)
        right = np.arange(200) < share_right * 200
        chosen = np.where(right, drawn, 1 - drawn)
        return np.where(np.eye(2, dtype=bool)[chosen], certainty, 1 - certainty)

    rng = np.random.default_rng(7)
    found = rehearse(decode, link, RECIPE, candidates, labels, PRIOR, 0.0, 2, rng)
    return found, seen


def test_the_replayed_updates_are_those_of_the_recipe_at_the_models_sent() -> None:
    _, (replayed,) = played(0.9, 0.9)
    assert len(replayed) == 2
    assert replayed.returned.shape == replayed.sent.shape
    assert replayed.returned.dtype == np.float32
    assert (replayed.returned != replayed.sent).any(axis=1).all()


def test_a_decoder_that_is_as_sure_as_right_is_left_alone() -> None:
    found, _ = played(0.9, 0.9)
    assert found.accuracy == pytest.approx(0.9)
    assert found.power == 1.0
    assert found.flag == ""


def test_a_decoder_that_is_surer_than_right_is_tempered_and_says_so() -> None:
    found, _ = played(0.999, 0.7)
    assert found.confidence == pytest.approx(0.999)
    assert found.power < 0.5
    assert found.flag.startswith("oversure")


def test_tempering_leads_from_the_answer_to_the_prior() -> None:
    answer = np.array([[0.99, 0.01], [0.3, 0.7]])
    prior = np.array([[0.6, 0.4], [0.6, 0.4]])
    assert np.allclose(tempered(answer, prior, 1.0), answer)
    assert np.allclose(tempered(answer, prior, 0.0), prior)
    between = tempered(answer, prior, 0.5)
    assert (between.max(axis=1) < answer.max(axis=1) + 1e-12).all()
    assert np.allclose(between.sum(axis=1), 1)
