"""Simulated clients and what they show: within a stated memory, and the same in pieces."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from trainings import recipe_of

from overheard.programs import response, simulated
from overheard.programs.networks import network
from overheard.programs.recipe import Adam, Dense, Recipe, Sgd
from overheard.programs.response import Parts, coordinates
from overheard.programs.simulated import Encoded, Simulated, simulate, stretches

PEOPLE, INPUTS = 12, 3


def recipe(**training: Any) -> Recipe:
    model = Dense(inputs=INPUTS, hidden=(5,), activation="tanh")
    return recipe_of(model, learning_rate=0.01, batch_size=5, **training)


def candidates(people: int = PEOPLE) -> Encoded:
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(2, people, INPUTS))
    labels = np.repeat(rng.normal(size=(1, people)), 2, axis=0)
    return Encoded(inputs, labels, np.ones(2, dtype=bool), people)


def done(told: Recipe) -> Simulated:
    sent = network(told).initial(0, "torch").astype(np.float32)
    chosen = np.random.default_rng(1).integers(2, size=(6, PEOPLE))
    return simulate(told, sent, candidates(), chosen, np.random.default_rng(2))


@pytest.mark.parametrize("rule", [{"optimiser": Adam()}, {"clip_norm": 0.1}], ids=str)
def test_responses_in_pieces(rule: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "RESPONDING", 1)
    whole = done(told := recipe(**rule))
    # two coordinates at a time; a norm mixes them, so that clipped gradients stay in one piece
    monkeypatch.setattr(simulated, "MEMORY", 64 * 2 * stretches(told, PEOPLE).steps)
    np.testing.assert_allclose(done(told).response, whole.response)


@pytest.mark.parametrize(
    "rule", [{"momentum": 0.9, "dampening": 0.1}, {"momentum": 0.9, "nesterov": True}], ids=str
)
def test_the_responses_of_a_linear_rule_are_its_derivatives(rule: dict[str, Any]) -> None:
    told = recipe(optimiser=Sgd(weight_decay=0.01, **rule))
    slopes = np.random.default_rng(0).normal(size=(7, 1))
    begin, changes = np.ones(1), np.eye(7)[:, :, None]
    more = [simulated._returned(told, begin, slopes + change) for change in changes]
    apart = np.array(more) - simulated._returned(told, begin, slopes)
    np.testing.assert_allclose(simulated.responses(told, np.ones(1), slopes[..., None]), apart)


def test_fewer_clients_respond_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    told = recipe(optimiser=Adam())
    several = done(told).response
    monkeypatch.setattr(simulated, "MEMORY", 1.0)
    alone = done(told).response
    monkeypatch.undo()
    monkeypatch.setattr(simulated, "RESPONDING", 1)
    np.testing.assert_allclose(alone, done(told).response)
    assert np.abs(alone - several).max() > 0


def test_columns_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = done(told := recipe(optimiser=Adam()))
    known = candidates(), np.full((PEOPLE, 2), 0.5)
    parts = Parts(network(told), shown, stretches(told, PEOPLE), *known)
    which = np.arange(told.model.size)
    whole = parts.made(which, np.random.default_rng(0))
    monkeypatch.setattr(response, "MEMORY", 64 * 5 * told.model.size)
    for one, same in zip(parts.made(which, np.random.default_rng(0)), whole, strict=True):
        np.testing.assert_allclose(one, same)


@pytest.mark.parametrize("people", [30, 1000, 5000])
def test_coordinates_fit_into_the_memory(people: int, monkeypatch: pytest.MonkeyPatch) -> None:
    times = stretches(recipe(), people)
    usual = coordinates(candidates(people), times)
    monkeypatch.setattr(response, "MEMORY", 1e6)
    few = coordinates(candidates(people), times)
    held = 4 * people * few * (2 + len(times.groups) + response.ORDER_COLUMNS)
    assert held < 1e6
    assert few < usual <= max(response.FEWEST_EQUATIONS, response.NUMBERS / people)
