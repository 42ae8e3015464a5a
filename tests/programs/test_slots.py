"""When a record was used: stretches of one epoch, and what they make of a record."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.programs.recipe import Recipe
from overheard.programs.simulated import Encoded, stretches
from overheard.programs.slots import kinds_of_states
from overheard.programs.training import Shards
from tests.programs.test_simulated import recipe


def people(members: int, absent: bool) -> Encoded:
    """Two candidates a record, the first of them absent or not."""
    inputs = np.zeros((2, 2 * members if absent else members, 3))
    present = np.array([not absent, True])
    return Encoded(inputs, np.zeros(inputs.shape[:2]), present, members)


def batches(**more: object) -> Recipe:
    return recipe().model_copy(update={"batch_size": 4, "epochs": 1, **more})


@pytest.mark.parametrize("drop", [False, True])
def test_the_slot_is_the_stretch_that_a_record_fell_into(drop: bool) -> None:
    told = batches(drop_last=drop)
    states = kinds_of_states(told, people(10, absent=False))[-1]
    order = np.random.default_rng(0).permutation(10)[None]
    data = Shards(np.zeros((1, 10, 3)), np.zeros((1, 10)), np.array([10]), (order,))
    found = states.slots.of(stretches(told, 10), data)
    assert found[0, order[0]].tolist() == [0] * 4 + [1] * 4 + [2] * 2
    # what a record adds in expectation is the mean over its slots; dropped records add nothing
    np.testing.assert_allclose(states.slots.chances @ states.slots.weights, 1.0)
    assert states.slots.weights[2].any() != drop


@pytest.mark.parametrize("absent", [False, True])
def test_a_slot_multiplies_what_a_record_adds(absent: bool) -> None:
    states = kinds_of_states(batches(), people(10, absent))[-1]
    sizes = np.array([1.5, 0.75, 0.5])
    points = states.points(sizes)
    assert not points[0].any()
    # columns: what the first candidate adds, if anything, and what the second adds beyond it
    first, second = (0.0, 3.0) if absent else (2.0, 5.0)
    columns = np.array([second - first] if absent else [first, second - first])
    adds = np.array([first, second])[states.candidate] * sizes[states.slot] * (states.slot >= 0)
    np.testing.assert_allclose(points @ columns, adds - adds[0])


def test_several_epochs_or_private_steps_have_no_stretches_of_their_own() -> None:
    several = kinds_of_states(batches(epochs=2), people(10, absent=False))
    assert not any(states.slots.resolved.all() for states in several)


def test_what_slots_leave_open_is_the_covariance_given_the_candidate() -> None:
    states = kinds_of_states(batches(), people(10, absent=False))[-1]
    points = states.points(np.array([1.5, 0.75, 0.5]))
    p = np.random.default_rng(0).dirichlet(np.ones(len(points)), size=3)
    means, roots = states.given(p, points)
    for one, mean, root in zip(p, means, roots, strict=True):
        away = points - mean.T[states.candidate]
        np.testing.assert_allclose(one @ away, 0.0, atol=1e-12)
        np.testing.assert_allclose(root @ root.T, (one[:, None] * away).T @ away, atol=1e-12)
