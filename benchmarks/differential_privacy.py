"""Does any attack do better than its epsilon allows? Epsilon claimed against epsilon shown.

    python -m benchmarks.differential_privacy [--quick]

Membership games on the simulator's own updates (`benchmarks.privacy.game`): one record there or
not, all else known, scored by the likelihood ratio. Mechanisms: private steps with full batches,
with Poisson-sampled batches, and of a network; noise on clipped updates. For each noise: the
epsilon that is claimed (Renyi accountant), the tight one (privacy loss distributions), and the
largest lower bound on epsilon over several seeds that the games prove (Clopper-Pearson, Bonferroni
over thresholds and seeds, at 99.9% for each row). Then mechanisms that break their promise, which
the same games must accuse. Exits with 1 if a promise is not kept or a broken one is not noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from benchmarks.frame import Row, counted, finish, options
from benchmarks.privacy.game import (
    Game,
    exposed,
    opposed,
    ordinary,
    play,
    with_private,
)
from benchmarks.privacy.shown import epsilon_shown, tight_sampled_gaussian
from overheard.federation.defences.accounting import sampled_gaussian
from overheard.federation.defences.clip import Clip
from overheard.federation.defences.contract import Chain, chain
from overheard.federation.defences.gaussian import Gaussian
from overheard.programs.private import sampling_rate
from overheard.programs.recipe import PrivateSteps
from overheard.randomness import stream

DELTA = 1e-3
CLIP = 0.5
CONFIDENCE = 0.999
CHUNK = 20_000


@dataclass(frozen=True)
class Mechanism:
    """What is played, what protects the update, and what is claimed of it."""

    name: str
    noise: float
    game: Game
    defence: Chain
    rate: float
    steps: int
    keeps: bool = True

    def claimed(self, counter: Callable[[float, float, int, float], float]) -> float:
        return counter(self.noise, self.rate, self.steps, DELTA)


def private(
    name: str, noise: float, make: Callable[..., Game], rounds: int, **training: int
) -> Mechanism:
    game = make(PrivateSteps(clip=CLIP, noise=noise), rounds=rounds, **training)
    steps = game.recipe.local_steps(game.records) * rounds
    rate = sampling_rate(game.recipe, game.records)
    return Mechanism(name, noise, game, chain(), rate, steps)


def mechanisms(noises: tuple[float, ...]) -> Iterator[Mechanism]:
    """Those that keep their promise, for each noise, and those that do not."""
    for noise in noises:
        yield private("dp_sgd, full batch", noise, exposed, 3)
        yield private("dp_sgd, Poisson 1/3", noise, exposed, 9, batch_size=2, steps=1)
        yield private("dp_sgd, Poisson 1/3, 2 epochs", noise, exposed, 1, batch_size=2, epochs=2)
        yield private("dp_sgd, a network", noise, ordinary, 3)
        noisy = chain(Clip(norm=CLIP), Gaussian(sd=2 * CLIP * noise))
        yield Mechanism("clip, gaussian", noise, opposed(3), noisy, 1.0, 3)
    for said in (
        private("dp_sgd, full batch", 2.0, exposed, 3),
        private("dp_sgd, Poisson 1/3", 2.0, exposed, 9, batch_size=2, steps=1),
    ):
        for words, truth in (
            ("noise too small by 10", PrivateSteps(clip=CLIP, noise=0.2)),
            ("noise too small by 3", PrivateSteps(clip=CLIP, noise=2 / 3)),
            ("clip norm too large by 10", PrivateSteps(clip=10 * CLIP, noise=0.2)),
        ):
            game = with_private(said.game, truth)
            name = f"{said.name}: {words}"
            yield Mechanism(name, 2.0, game, said.defence, said.rate, said.steps, False)
    loose = chain(Gaussian(sd=2 * CLIP * 2.0))
    yield Mechanism("clip, gaussian: without the clip", 2.0, opposed(3), loose, 1.0, 3, False)


def shown(mechanism: Mechanism, trials: int, seeds: int) -> float:
    """The largest lower bound on epsilon over the seeds."""
    confidence = 1 - (1 - CONFIDENCE) / seeds
    best = 0.0
    for seed in range(seeds):
        rng = stream(seed, "membership games", mechanism.name, int(1000 * mechanism.noise))
        parts = [
            tuple(play(mechanism.game, min(CHUNK, trials), mechanism.defence, rng))
            for _ in range(max(1, trials // CHUNK))
        ]
        absent, present = (np.concatenate(side) for side in zip(*parts, strict=True))
        best = max(best, epsilon_shown(absent, present, DELTA, confidence).epsilon)
    return best


def row(mechanism: Mechanism, trials: int, seeds: int) -> Row:
    """Epsilon claimed, tight and shown; a fault if a promise is broken, or a breach not noticed."""
    claimed = mechanism.claimed(sampled_gaussian)
    tight = mechanism.claimed(tight_sampled_gaussian)
    found = shown(mechanism, trials, seeds)
    kept = found <= (tight if mechanism.keeps else claimed)
    said = f"epsilon {claimed:.3f} claimed, {tight:.3f} tight, {found:.3f} shown: "
    said += "kept" if kept else "broken"
    what = f"{mechanism.name}, noise {mechanism.noise:g}"
    return counted(what, seeds * trials, kept != mechanism.keeps, said)


def main() -> int:
    given = options(__doc__, __file__, quick=False)
    trials, seeds = (10_000, 2) if given.quick else (40_000, 5)
    noises = (4.0, 1.0) if given.quick else (8.0, 4.0, 2.0, 1.0, 0.5)
    rows = [row(mechanism, trials, seeds) for mechanism in mechanisms(noises)]
    return finish(given, f"Epsilon claimed against epsilon shown, delta {DELTA:g}", rows)


if __name__ == "__main__":
    raise SystemExit(main())
