"""What a client's records do to the model that it returns, by simulated clients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from trainings import recipe_of

from overheard.programs import linearise as module
from overheard.programs.networks import network
from overheard.programs.recipe import Dense, Sgd

PEOPLE, INPUTS = 12, 3


def candidates(people: int = PEOPLE, absent: bool = False) -> module.Encoded:
    """Two candidates a record, the first of them absent or not."""
    rng = np.random.default_rng(0)
    inputs = np.repeat(rng.normal(size=(1, people, INPUTS)), 2, axis=0)
    inputs[:, :, 0] = np.array([0.0, 1.0])[:, None]
    labels = np.repeat(rng.normal(size=(1, people)), 2, axis=0)
    return module.Encoded(inputs, labels, np.array([not absent, True]), people // (1 + absent))


def training(
    order: Any = None, known: module.Encoded | None = None, watched: int = 4, **given: Any
) -> module.Trajectory:
    model = Dense(inputs=INPUTS, hidden=(5,), activation="tanh")
    recipe = recipe_of(model, **{"learning_rate": 0.01, "batch_size": 5, **given})
    sent = network(recipe).initial(0, "torch").astype(np.float32)
    options = replace(module.DEFAULT, watched=watched)
    return module.Trajectory(recipe, sent, known or candidates(), order, options)


def scales(at: module.Trajectory) -> Any:
    chosen = np.random.default_rng(1).integers(2, size=(6, PEOPLE))
    return np.stack([part.scale for part in at.trained(chosen, np.random.default_rng(2)).parts])


@pytest.mark.parametrize(
    "rule", [{"momentum": 0.9, "dampening": 0.1}, {"momentum": 0.9, "nesterov": True}], ids=str
)
def test_the_responses_of_a_linear_rule_are_its_derivatives(rule: dict[str, Any]) -> None:
    recipe = training(optimiser=Sgd(weight_decay=0.01, **rule)).recipe
    slopes = np.random.default_rng(0).normal(size=(7, 1))
    begin, changes = np.ones(1), np.eye(7)[:, :, None]
    more = [module._returned(recipe, begin, slopes + change) for change in changes]
    apart = np.array(more) - module._returned(recipe, begin, slopes)
    np.testing.assert_allclose(module.responses(recipe, np.ones(1), slopes[..., None]), apart)


def test_columns_are_what_a_record_does_in_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """By finite differences of the last batch: what is done through later gradients is left out."""
    at = training(np.random.default_rng(2).permutation(PEOPLE)[None], batch_size=4)
    chosen, which = np.zeros((1, PEOPLE), dtype=np.int64), np.arange(at.sent.size)
    parts = at.trained(chosen).parts
    columns = at.columns(parts, which)
    for record in at.batches[-1]:
        flipped = chosen.copy()
        flipped[0, record] = 1
        moved = (at.ends(flipped) - at.ends(chosen))[0]
        apart = columns[record, 1] - columns[record, 0]
        np.testing.assert_allclose(apart, moved, rtol=1e-2, atol=2e-7)
    monkeypatch.setattr(module, "MEMORY", 64 * 5 * at.sent.size)  # five records at a time
    np.testing.assert_allclose(at.columns(parts, which), columns, rtol=1e-5, atol=1e-9)
    some = np.array([2, 7])  # a batch has neither
    np.testing.assert_allclose(at.columns(parts, which, some), columns[some], rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("drop", [False, True])
def test_the_position_is_the_segment_that_a_record_fell_into(drop: bool) -> None:
    at = training(known=candidates(10), batch_size=4, drop_last=drop)
    states = module.states_of(at.recipe, at.candidates)[-1]
    order = np.random.default_rng(0).permutation(10)[None]
    found = states.position[states.of(at.candidates, np.zeros((1, 10), dtype=np.int64), order)]
    assert found[0, order[0]].tolist() == [0] * 4 + [1] * 4 + [2] * 2
    done = at.trained(np.zeros((2, 10), dtype=np.int64), np.random.default_rng(0))
    sizes = module._sizes(at, done.parts, np.arange(at.sent.size), states)
    # what a record adds in expectation is the mean over positions; dropped records add nothing
    assert states.chances @ sizes == pytest.approx(1.0)
    assert bool(sizes[2]) != drop


def positions(absent: bool = False, **given: Any) -> module.States:
    known = candidates(20 if absent else 10, absent)
    return module.states_of(training(**{"batch_size": 4, **given}).recipe, known)[-1]


@pytest.mark.parametrize("absent", [False, True])
def test_a_position_multiplies_what_a_record_adds(absent: bool) -> None:
    states, sizes = positions(absent), np.array([1.5, 0.75, 0.5])
    points = states.points(sizes)
    assert not points[0].any()
    # columns: what the first candidate adds, if anything, and what the second adds beyond it
    first, second = (0.0, 3.0) if absent else (2.0, 5.0)
    columns = np.array([second - first] if absent else [first, second - first])
    adds = np.array([first, second])[states.candidate] * sizes[states.position]
    adds = adds * (states.position >= 0)
    np.testing.assert_allclose(points @ columns, adds - adds[0])


def test_what_positions_leave_open_is_the_covariance_given_the_candidate() -> None:
    states = positions()
    points = states.points(np.array([1.5, 0.75, 0.5]))
    p = np.random.default_rng(0).dirichlet(np.ones(len(points)), size=3)
    means, roots = states.given(p, points)
    for one, mean, root in zip(p, means, roots, strict=True):
        away = points - mean.T[states.candidate]
        np.testing.assert_allclose(one @ away, 0.0, atol=1e-12)
        np.testing.assert_allclose(root @ root.T, (one[:, None] * away).T @ away, atol=1e-12)


def a_round(seed: int, known: module.Encoded, states: module.States) -> module.Linearised:
    """A client of this training, and 40 simulated ones of which 16 are held out."""
    rng = np.random.default_rng(seed)
    at = training(known=known, batch_size=4)
    belief = np.full((known.records, 2), 0.5)
    chosen = known.drawn(belief, 40, rng)
    returned = at.ends(known.drawn(belief, 1, rng), rng)[0]
    message = returned, np.full(at.sent.size, 1e-8)
    return module.linearise(at, message, (chosen, 16, 0.0), [states], rng)[0]


def test_held_out_clients_are_their_states_and_noise_of_its_size() -> None:
    """What no state explains is noise of about unit variance, in every direction that is kept; and
    it is far less than what the states do."""
    made = a_round(0, candidates(), module.states_of(training().recipe, candidates())[0])
    rows = made.rows.reshape(PEOPLE, -1, made.rows.shape[1])
    does = np.einsum("hnc,ncr->hr", made.points[made.truth], rows)
    noise = np.mean((made.totals[1:] - does) ** 2)
    assert 0.3 < noise < 10
    assert np.mean(made.totals[1:] ** 2) > 3 * noise


@pytest.mark.parametrize("absent", [False, True])
def test_how_many_records_there_are_is_an_equation(absent: bool) -> None:
    known = candidates(20, absent)
    states = module.states_of(training(batch_size=4).recipe, known)
    made = a_round(0, known, states[-1])
    assert made.counted == 1
    assert a_round(0, known, states[0]).counted == absent  # of members, also without positions


def test_rounds_add_up() -> None:
    """Inner products of all columns and all messages with the columns."""
    known = candidates()
    first, second = (
        a_round(seed, known, module.states_of(training().recipe, known)[0]) for seed in (0, 1)
    )
    made = [np.vstack([one.rows, one.totals]) @ one.rows.T for one in (first, second)]
    both = first + second
    together = np.vstack([both.rows, both.totals]) @ both.rows.T
    np.testing.assert_allclose(together, made[0] + made[1], rtol=1e-6, atol=1e-4)
    np.testing.assert_allclose(both.squares, first.squares + second.squares)
