"""kerkouche2023 (PROLIN): which clients have a property, when only sums of updates are heard.

Every figure compares BASELINE, OLS, REG, PROLIN and ours on the same recordings, round by round.
A federation is recorded once; in the membership figures several target records share it, each with
five holders of its own, and so do a few records that nobody holds, which tell false alarms.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from overheard.attacks.papers.kerkouche2023 import Options, detect
from overheard.attacks.property import outputs
from overheard.errors import FixConfig
from overheard.randomness import stream
from papers.common import pictures
from papers.common.harness import recorded
from papers.common.rows import Choice, Experiment, Progress, Reproduction, Row
from papers.kerkouche2023.listening import (
    EVERY,
    OURS,
    WORLDS,
    Point,
    Setting,
    adversary_in,
    listen,
)
from papers.kerkouche2023.rows import curve_rows, reliability, worst_rows

FIRST_SEED = 300
"""Of the figures' federations; settings were chosen on federations of other seeds."""

FRESH_SEED = 340
"""Of three federations on which no setting of ours was chosen, and none is after this line."""

ONE_SEED = 100
"""Of figures that are of one federation."""


def _figure(
    settings: Sequence[Setting],
    seeds: int,
    quick: bool,
    progress: Progress,
    first_seed: int = FIRST_SEED,
    told: bool = False,
) -> Reproduction:
    """Every setting in so many federations; the quick version in one.

    ``told``: what came of the probabilities is told however few there are.
    """
    seeds = 1 if quick else seeds
    rows: list[Row] = []
    every: list[Point] = []
    for setting in settings:
        heard = [listen(setting, first_seed + seed, progress) for seed in range(seeds)]
        rows += curve_rows(setting, heard)
        last = min(50, setting.rounds)
        every += [p for one in heard for p in one.points if p.method == OURS and p.round == last]
    rows += worst_rows(rows)
    if len(every) >= 8 or told:
        rows += reliability(f"all, round {every[0].round}", every)
    world = WORLDS[settings[0].dataset]
    shadows = settings[0].shadows
    notes = (
        f"The paper's detectors are trained on {shadows} shadow updates a round (the paper: "
        f"{2 * world.auxiliary}); --shadows sets the number."
        if shadows
        else "The paper's methods were left out (--shadows 0).",
        "F1 is over the clients of a federation, then the mean over target records and "
        "federations; intervals are Student's, over those.",
        "Ours names the set of the greatest expected F1; the others name who is above one half.",
        f"Seeds of the federations: {first_seed} to {first_seed + seeds - 1}.",
    )
    data = ", ".join(dict.fromkeys(s.dataset for s in settings))
    return Reproduction(rows, data, notes, seeds)


def _settings(kind: str, quick: bool, choice: Choice, datasets: Sequence[str]) -> list[Setting]:
    """The panels asked for: by default all datasets and sizes of the figure."""
    if quick:
        shadows = 200 if choice.shadows is None else choice.shadows
        small = Setting("digits", kind, choice.size or 10, choice.rounds or 60, 20, 4)
        return [replace(small, shadows=shadows, compared=int(shadows > 0))]
    chosen = [choice.dataset] if choice.dataset else list(datasets)
    for name in chosen:
        if name not in WORLDS:
            raise FixConfig(f"unknown dataset {name!r}; known: {', '.join(WORLDS)}")
    made = []
    for name in chosen:
        for size in (choice.size,) if choice.size else WORLDS[name].sizes:
            shadows = 1200 if choice.shadows is None else choice.shadows
            many = kind == "membership"
            made.append(
                Setting(
                    name,
                    kind,
                    size,
                    choice.rounds or 300,
                    choice.clients or 50,
                    targets=4 if many else 1,
                    decoys=4 if many else 0,
                    shadows=shadows,
                    compared=0 if shadows == 0 else 1,
                    every=choice.every or EVERY,
                )
            )
    return made


def by_round(
    kind: str, quick: bool, seeds: int, progress: Progress, choice: Choice
) -> Reproduction:
    """Figures 3 to 5: F1 by round, on all data and sizes."""
    panels = _settings(kind, quick, choice, ("mnist", "fashion", "cifar10"))
    return _figure(panels, seeds, quick, progress)


def calibration(quick: bool, seeds: int, progress: Progress, choice: Choice) -> Reproduction:
    """Probabilities given at round 50 against the shares that had the property; false alarms."""
    rounds = choice.rounds or 50
    ours = replace(choice, rounds=rounds, every=rounds, shadows=0, size=choice.size or 10)
    panels = _settings("membership", quick, ours, ("fashion",))
    return _figure(panels, seeds, quick, progress, FIRST_SEED + 20, told=True)


def fresh(quick: bool, seeds: int, progress: Progress, choice: Choice) -> Reproduction:
    """Membership, ours alone, where a client has many records: federations of their own."""
    rounds, size = choice.rounds or (60 if quick else 100), choice.size or (10 if quick else 30)
    ours = replace(choice, rounds=rounds, size=size, shadows=0)
    panels = _settings("membership", quick, ours, ("fashion",))
    return _figure(panels, seeds, quick, progress, FRESH_SEED)


def cost(quick: bool, seeds: int, progress: Progress, choice: Choice) -> Reproduction:
    """CPU seconds of a round: ours, and the paper's shadow updates and detector, in one run."""
    (setting, *_) = _settings("membership", quick, choice, ("fashion",))
    setting = replace(setting, rounds=choice.rounds or 12, targets=1, decoys=0, compared=0)
    full = 2 * WORLDS[setting.dataset].auxiliary
    shadows = choice.shadows or (200 if quick else full)
    with recorded(setting.config(ONE_SEED)) as recording:
        sums, adversary, _ = adversary_in(recording, setting)
        marks = [time.process_time()]
        for _ in outputs(adversary, sums, stream(ONE_SEED, "ours")):
            marks.append(time.process_time())
        ours = float(np.mean(np.diff(marks)[len(marks) // 2 :]))
        begin = time.process_time()
        detect(adversary, [sums[len(sums) - 1]], Options(shadows))
        theirs = (time.process_time() - begin) * full / shadows
    rows = (
        Row(setting.words, "a round", OURS, "CPU seconds", ours),
        Row(setting.words, "a round", "PROLIN", "CPU seconds", theirs),
        Row(setting.words, "a round", "PROLIN / ours", "ratio", theirs / ours),
    )
    notes = (f"{shadows} of {full} shadow updates were timed, and the time scaled.",)
    return Reproduction(rows, setting.dataset, notes)


F1 = pictures.curves("round", "F1")
GIVEN, SECONDS = pictures.curves("given", "reliability"), pictures.marks("CPU seconds")
EXPERIMENTS = tuple(
    Experiment(f"kerkouche2023-{name}", words, run, draw, seeds, first, parts=True)
    for name, words, run, draw, seeds, first in (
        ("fig3", "membership of a record", partial(by_round, "membership"), F1, 3, FIRST_SEED),
        ("fig4", "gradient inversion", partial(by_round, "inversion"), F1, 3, FIRST_SEED),
        ("fig5", "gradient ascent", partial(by_round, "ascent"), F1, 3, FIRST_SEED),
        ("reliability", "probabilities; false alarms", calibration, GIVEN, 20, FIRST_SEED + 20),
        ("fresh", "membership among 30 records, fresh federations", fresh, F1, 3, FRESH_SEED),
        ("cost", "seconds of a round, ours and PROLIN's", cost, SECONDS, 1, ONE_SEED),
    )
)
