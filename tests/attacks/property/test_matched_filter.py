"""Ours finds holders, poisoners and free riders in sums, and says so with calibrated words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from trainings import recipe_of

from overheard.attacks.baselines import Nobody
from overheard.attacks.property import (
    Adversary,
    Known,
    MatchedFilter,
    adversary_of,
    collect,
    flagged,
    outputs,
)
from overheard.decoding.client_sets import FilterOptions, Options, Posterior
from overheard.errors import ChooseAnotherAttack, FixData, ListenLonger
from overheard.programs.recipe import Dense
from overheard.programs.records import Records
from overheard.programs.training import Schedule, shards
from overheard.questions.property import f1
from overheard.transcript.kind import RoundSum
from overheard.transcript.knowledge import AuxiliaryData, Sums
from overheard.transcript.view import View, launch

pytestmark = pytest.mark.slow

Asked = Callable[..., tuple[View, np.ndarray]]
LENET = {"name": "lenet", "filters": [4, 6], "hidden": [12], "dropout": 0.0}
QUICK = MatchedFilter(every=20)


@pytest.mark.parametrize("kind", ["inversion", "ascent"])
def test_finds_poisoners(asked: Asked, kind: str) -> None:
    view, positive = asked(kind, LENET, batch_size=4)
    guess = launch(QUICK, view, 0)
    assert f1(guess.choice(), positive) == 1.0
    assert guess.contribution is not None
    assert guess.contribution[positive].max() < guess.contribution[~positive].min()
    assert guess.contribution[positive].mean() == pytest.approx(-1, abs=0.6)
    assert guess.contribution[~positive].mean() == pytest.approx(1, abs=0.3)
    assert guess.evidence is not None
    assert guess.evidence.shape == (40, 20)


@pytest.mark.parametrize("ride", ["unchanged", "noise"])
def test_finds_free_riders(asked: Asked, ride: str) -> None:
    view, positive = asked("free-rider", property_={"ride": ride}, rounds=50)
    guess = launch(QUICK, view, 0)
    assert f1(guess.choice(), positive) >= 0.8
    assert guess.contribution is not None
    assert guess.contribution[positive].mean() == pytest.approx(0, abs=0.4)
    assert guess.contribution[~positive].mean() == pytest.approx(1, abs=0.3)


def test_finds_holders_of_a_record(asked: Asked) -> None:
    """Targets differ in how far they stand out: the mean over several."""
    scores, given, real = [], [], []
    for seed in range(2):
        view, positive = asked("membership", rounds=60, records=5, seed=seed)
        guess = launch(QUICK, view, 0)
        scores.append(f1(guess.choice(), positive))
        given.append(guess.probabilities)
        real.append(positive)
    p, hit = np.concatenate(given), np.concatenate(real)
    assert np.mean(scores) > 0.6
    assert np.mean((p - hit) ** 2) < np.mean((0.1 - hit) ** 2) / 2


def test_nobody_is_an_answer(asked: Asked) -> None:
    view, positive = asked("inversion", property_={"positives": 0})
    guess = launch(QUICK, view, 0)
    assert not positive.any()
    assert guess.choice().sum() <= 1
    none = launch(Nobody(), view, 0)
    assert not none.choice().any()
    assert none.probabilities == pytest.approx(np.full(20, 0.1))


def observed(view, keep) -> Sums:
    sums = view.know(Sums)
    return Sums.of_rounds(sums.clients, (keep(one) for one in sums))


def test_what_cannot_be_decided(asked: Asked) -> None:
    view, _ = asked("ascent", rounds=4)
    sums, auxiliary = view.know(Sums), view.know(AuxiliaryData)
    with pytest.raises(ListenLonger, match="at least 2"):
        launch(QUICK, view.knowing(sums.first(1)), 0)

    def always(one: RoundSum) -> RoundSum:
        return replace(one, participants=np.arange(5))

    with pytest.raises(ChooseAnotherAttack, match="same 5 of 20"):
        launch(QUICK, view.knowing(observed(view, always)), 0)
    few = AuxiliaryData(auxiliary.records.take(np.arange(9)), auxiliary.labels[:9])
    with pytest.raises(FixData, match="9 auxiliary records"):
        launch(QUICK, view.knowing(few), 0)
    other = Records({n: v[:, :50] for n, v in auxiliary.records.columns.items()})
    with pytest.raises(FixData, match="needs 256 numbers"):
        launch(QUICK, view.knowing(AuxiliaryData(other, auxiliary.labels)), 0)


@pytest.mark.parametrize(
    "training", [{}, {"batch_size": 10}, {"batch_size": 5}, {"batch_size": 10, "epochs": 3}]
)
def test_weights_of_a_clients_records(training: dict[str, int], rng: np.random.Generator) -> None:
    """The sum and the sum of squares of the weights, against the training's own batches."""
    recipe, known = recipe_of(Dense(inputs=1), **training), Known(np.zeros((1, 1)), np.zeros(1))
    shown = Adversary(recipe, known, 25, 5, None, "inversion").weights
    data = shards([np.arange(25.0)[:, None]], [np.zeros(25)])
    squares = []
    for _ in range(400):
        total = np.zeros(25)
        batches = Schedule(recipe, data, rng).one_by_one(np.dtype(float), slice(None))
        for inputs, _, weights in batches:
            np.add.at(total, inputs[0, :, 0].astype(int), weights[0])
        squares.append((total**2).sum())
        assert total.sum() == pytest.approx(shown[0])
    assert shown[1] == pytest.approx(np.mean(squares), rel=0.02)


def test_outputs_know_their_scale(asked: Asked) -> None:
    """Of a federation without positives y is about N(0, participants), in every round."""
    view, _ = asked("membership", LENET, rounds=30, clients=30, property_={"positives": 0})
    adversary, sums = adversary_of(view), view.know(Sums)
    shown = collect(outputs(adversary, sums, np.random.default_rng(0), FilterOptions(masks=4)))
    count = sums.participation.sum(axis=1)
    spread = np.sqrt(np.mean(shown.y[:, 0] ** 2 / count))
    assert 0.5 < spread < 2.0
    assert shown.effect.mean() > 0.5  # the target stands out along its own filter


def test_an_answer_says_when_it_means_nothing() -> None:
    none = np.zeros(20)
    nobody = Posterior(none, none > 0, none > 0, 1.0, -1.0, 6.0, True)
    assert flagged(nobody, Options()) == {}
    named = nobody._replace(chosen=none == 0, log_odds=1.0, detectability=1.5)
    assert "too small to tell" in flagged(named, Options())["flag"]
    assert "1.5 standard deviations" in flagged(named, Options())["flag"]
    assert "2.7 times as likely" in flagged(named, Options())["flag"]
    accused = named._replace(accused=none == 0)
    assert flagged(accused, Options()) == {}
    assert "too small to tell" in flagged(accused, Options(nobody=0))["flag"]
    assert "not converged" in flagged(nobody._replace(settled=False), Options())["flag"]
