"""No attack does better than its epsilon allows: TPR <= e^epsilon FPR + delta, both ways.

Thousands of membership games on the simulator's own updates, scored by the likelihood ratio; see
`experiments.robustness.privacy`. The same check accuses mechanisms that break their promise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from experiments.robustness.privacy import (
    Game,
    epsilon_shown,
    exposed,
    opposed,
    ordinary,
    play,
    tight_sampled_gaussian,
)
from overheard.federation.defences import parse_defence
from overheard.federation.defences.accounting import budget, sampled_gaussian
from overheard.federation.defences.clip import Clip
from overheard.federation.defences.contract import chain
from overheard.federation.defences.gaussian import Gaussian
from overheard.programs.networks import network
from overheard.programs.recipe import PrivateSteps
from overheard.programs.training import sampling_rate

pytestmark = pytest.mark.slow

DELTA = 1e-3
TRIALS = 8_000
FULL: dict[str, Any] = {}
SAMPLED = {"batch_size": 2, "steps": 1}
EPOCHS = {"batch_size": 2, "epochs": 2}


@pytest.fixture(autouse=True)
def _accountant() -> None:
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")


def shown_by(game: Game, seed: int, defence: Any = None) -> float:
    defence = chain() if defence is None else defence
    absent, present = play(game, TRIALS, defence, np.random.default_rng(seed))
    return epsilon_shown(absent, present, DELTA)


def claimed(game: Game, counter: Callable[..., float] = sampled_gaussian) -> float:
    """Of the steps that the game's recipe takes, counted apart from `budget`."""
    assert game.recipe.private is not None
    steps = game.recipe.local_steps(game.records) * game.rounds
    rate = sampling_rate(game.recipe, game.records)
    return counter(game.recipe.private.noise, rate, steps, DELTA)


# --- the promise is kept ----------------------------------------------------------------------


@pytest.mark.parametrize("noise", [4.0, 1.5, 0.7])
@pytest.mark.parametrize(
    ("make", "training", "rounds"),
    [(exposed, FULL, 2), (exposed, SAMPLED, 3), (exposed, EPOCHS, 1), (ordinary, FULL, 2)],
    ids=["full", "sampled", "epochs", "network"],
)
def test_private_steps_keep_their_promise(
    make: Callable[..., Game], training: dict[str, Any], rounds: int, noise: float
) -> None:
    game = make(PrivateSteps(clip=0.5, noise=noise), rounds=rounds, **training)
    config = parse_defence({"name": "dp_sgd", "clip": 0.5, "noise": noise, "delta": DELTA})
    promise = budget(chain(config).claims, game.recipe, game.records, rounds)
    assert promise is not None
    assert promise.epsilon == pytest.approx(claimed(game))
    shown = shown_by(game, seed=int(10 * noise))
    assert shown <= promise.epsilon
    if noise == 0.7:
        # the game is hard to lose: most of a small noise's epsilon is shown
        assert shown > 0.25 * promise.epsilon


@pytest.mark.parametrize("training", [FULL, SAMPLED], ids=["full", "sampled"])
def test_not_even_the_tight_epsilon_is_exceeded(training: dict[str, Any]) -> None:
    """Over seeds; claims are made with an accountant that rounds up, so this asks for more."""
    game = exposed(PrivateSteps(clip=1.0, noise=2.0), rounds=2, **training)
    tight = claimed(game, tight_sampled_gaussian)
    assert tight <= claimed(game)
    assert max(shown_by(game, seed) for seed in range(4)) <= tight


@pytest.mark.parametrize("algorithm", ["fedavg", "fedsgd"])
@pytest.mark.parametrize("multiplier", [2.0, 0.7])
def test_noise_on_clipped_updates_keeps_its_promise(algorithm: str, multiplier: float) -> None:
    game = opposed(rounds=2, algorithm=algorithm)
    clip = parse_defence({"name": "clip", "norm": 0.5})
    defence = chain(clip, parse_defence({"name": "gaussian", "times_clip": 2 * multiplier}))
    promise = budget(defence.claims, game.recipe, game.records, 2)
    assert promise is not None
    assert promise.epsilon == pytest.approx(sampled_gaussian(multiplier, 1.0, 2, 1e-5))
    shown = shown_by(game, 3, defence)
    assert 0.2 * promise.epsilon < shown <= promise.epsilon


# --- and the check accuses who breaks it --------------------------------------------------------


STEPS = PrivateSteps(clip=0.5, noise=2.0)
LITTLE, LOOSE = PrivateSteps(clip=0.5, noise=0.2), PrivateSteps(clip=5.0, noise=0.2)
TWO, SOME = {"rounds": 2}, {"rounds": 2, **SAMPLED}
BROKEN = {
    "noise ten times too small": (exposed(STEPS, **TWO), exposed(LITTLE, **TWO)),
    "not clipped as said": (exposed(STEPS, **TWO), exposed(LOOSE, **TWO)),
    "noise too small, sampled": (exposed(STEPS, **SOME), exposed(LITTLE, **SOME)),
    "not clipped, sampled": (exposed(STEPS, **SOME), exposed(LOOSE, **SOME)),
    "fixed batches": (exposed(STEPS, rounds=6, batch_size=1, steps=1), exposed(STEPS, rounds=6)),
    "uncounted rounds": (exposed(STEPS, rounds=1), exposed(STEPS, rounds=12)),
}


@pytest.mark.parametrize("case", BROKEN)
def test_broken_steps_are_caught(case: str) -> None:
    said, played = BROKEN[case]
    assert shown_by(said, 0) < claimed(said) < shown_by(played, 0)


def test_noise_without_clipping_is_caught() -> None:
    promise = sampled_gaussian(2.0, 1.0, 1, DELTA)
    assert shown_by(opposed(), 0, chain(Clip(norm=0.5), Gaussian(sd=2.0))) < promise
    assert shown_by(opposed(), 0, chain(Gaussian(sd=2.0))) > promise


# --- the statistics -----------------------------------------------------------------------------


def test_the_chance_of_a_false_accusation_is_kept() -> None:
    """Randomised response with known epsilon, at a confidence that can be checked by repeating."""
    epsilon, wrongly, rng = 1.0, 0, np.random.default_rng(1)
    honest = np.exp(epsilon) / (1 + np.exp(epsilon))
    best = 0.0
    for _ in range(300):
        absent = (rng.random(3000) > honest).astype(float)
        present = (rng.random(3000) < honest).astype(float)
        shown = epsilon_shown(absent, present, 0.0, confidence=0.9)
        wrongly += shown > epsilon
        best = max(best, shown)
    assert wrongly / 300 <= 0.1
    assert best > 0.8


def test_a_record_that_is_not_there_adds_nothing() -> None:
    for make in (exposed, ordinary):
        game = make(None)
        both = [game.shards(1, present) for present in (False, True)]
        rows = (
            network(game.recipe).rows(game.start, both[0].inputs[0], both[0].labels[0]).explicit()
        )
        assert not rows[0].any()
        assert rows[1:].any(axis=1).all()
        assert (both[0].inputs[0, 1:] == both[1].inputs[0, 1:]).all()
