"""Does any attack do better than its epsilon allows? Epsilon claimed against epsilon shown.

    python benchmarks/differential_privacy.py [--quick] [--json FILE]

Membership games on the simulator's own updates (`benchmarks.privacy.game`): one record there or
not, all else known, scored by the likelihood ratio. Mechanisms: private steps with full batches,
with Poisson-sampled batches, and of a network; noise on clipped updates. For each noise: the
epsilon that is claimed (Renyi accountant), the tight one (privacy loss distributions), and the
largest lower bound on epsilon over several seeds that the games prove (Clopper-Pearson, Bonferroni
over thresholds and seeds, at 99.9% for each row). Then mechanisms that break their promise, which
the same games must accuse. Exits with 1 if a promise is not kept or a broken one is not noticed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # this folder is a package

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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer games, seeds and noises")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    given = parser.parse_args()
    trials, seeds = (10_000, 2) if given.quick else (40_000, 5)
    noises = (4.0, 1.0) if given.quick else (8.0, 4.0, 2.0, 1.0, 0.5)
    begin, rows = time.perf_counter(), []
    print(f"delta {DELTA:g}; {seeds} seeds of {trials} games without the record and with it")
    print(f"{'mechanism':52} {'noise':>6} {'claimed':>8} {'tight':>8} {'shown':>8}")
    for mechanism in mechanisms(noises):
        claimed = mechanism.claimed(sampled_gaussian)
        tight = mechanism.claimed(tight_sampled_gaussian)
        found = shown(mechanism, trials, seeds)
        kept = found <= tight if mechanism.keeps else found <= claimed
        verdict = "kept" if kept else "BROKEN"
        print(
            f"{mechanism.name:52} {mechanism.noise:6g} {claimed:8.3f} {tight:8.3f} {found:8.3f}"
            f"  {verdict}{'' if mechanism.keeps else ' (as it should be)' if not kept else ' (!)'}"
        )
        rows.append(
            {
                "mechanism": mechanism.name,
                "noise": mechanism.noise,
                "claimed": claimed,
                "tight": tight,
                "shown": found,
                "kept": kept,
                "should_keep": mechanism.keeps,
            }
        )
    wrong = [r for r in rows if r["kept"] != r["should_keep"]]
    print(
        f"{len(rows) - len(wrong)} of {len(rows)} as they should be; "
        f"{time.perf_counter() - begin:.0f} s"
    )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
