"""kerkouche2023 (PROLIN): which clients have a property, when only sums of updates are heard.

Every figure compares BASELINE, OLS, REG, PROLIN and ours on the same recordings, round by round.
A federation is recorded once; in the membership figures several target records share it, each with
five holders of its own, and so do a few records that nobody holds, which tell false alarms.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.property import detectors
from overheard.attacks.property import readings as readings_of_a_round
from overheard.attacks.property.detectors import Detected, DetectorSettings, detect
from overheard.attacks.property.linear_features import (
    least_squares,
    prolin,
    ridge_regression,
    updates_told_apart,
)
from overheard.attacks.property.matched_filter import MatchedFilter
from overheard.attacks.property.readings import Collected, collect, readings
from overheard.attacks.property.sums_heard import Adversary, Known, adversary_of
from overheard.decoding import matched_filter as filters
from overheard.errors import FixConfig
from overheard.evaluation.properties import answers_of, f1
from overheard.randomness import stream
from overheard.reproduce import kerkouche2023_pictures as drawn
from overheard.reproduce.harness import mean_row, recorded
from overheard.reproduce.kept import address, kept
from overheard.reproduce.rows import Choice, Experiment, Progress, Reproduction, Row
from overheard.transcript.knowledge import Sums
from overheard.transcript.observe import observe
from overheard.transcript.store import Recording
from overheard.transcript.target import client_property
from overheard.transcript.threat import SECURE_SERVER

PAPER = "kerkouche2023"
OURS = "matched_filter"
EVERY = 10
FIRST_SEED = 300
"""Of the figures' federations; settings were chosen on federations of other seeds."""
Array = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class World:
    """A source of images and the paper's settings for it (Table 2)."""

    source: str
    auxiliary: int
    learning_rate: float
    batch: int
    sizes: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)


WORLDS = {
    "mnist": World("mnist", 6000, 0.01, 10, (10, 30)),
    "fashion": World("fashion", 6000, 0.01, 10, (10, 30)),
    "cifar10": World("cifar10", 5000, 0.1, 25, (25, 50)),
    "digits": World("digits_images", 1000, 0.1, 10, (10,)),
}


@dataclass(frozen=True)
class Setting:
    """One panel of a figure: who, what, how long.

    ``targets`` records are looked for, ``decoys`` are held by nobody; ``shadows`` updates train
    each of the paper's detectors, made for the first ``compared`` targets (0: ours alone);
    ``every`` so many rounds all methods answer.
    """

    dataset: str
    kind: str
    size: int
    rounds: int
    clients: int = 50
    positives: int = 5
    targets: int = 1
    decoys: int = 0
    shadows: int = 0
    compared: int = 1
    every: int = EVERY

    @property
    def words(self) -> str:
        return f"{self.dataset}, {self.kind}, {self.size} records, {self.clients} clients"

    def config(self, seed: int) -> dict[str, Any]:
        """The federation as the simulator takes it."""
        world = WORLDS[self.dataset]
        kinds = {"targets": self.targets} if self.kind == "membership" else {}
        return {
            "seed": seed,
            "data": {
                "source": world.source,
                "options": {
                    "seed": seed,
                    "clients": self.clients,
                    "records": self.size,
                    "auxiliary": world.auxiliary,
                },
            },
            "model": {"name": "lenet"},
            "training": {
                "rounds": self.rounds,
                "learning_rate": world.learning_rate,
                "batch_size": world.batch,
                "participation": 0.2,
            },
            "property": {"kind": self.kind, "positives": self.positives, **kinds},
            "defence": [{"name": "secure_sum"}],
        }


@dataclass(frozen=True)
class Point:
    """A method's answer about one target after so many rounds."""

    target: int
    method: str
    round: int
    f1: float
    brier: float
    probabilities: Array
    positive: Flags
    effect: float
    named: int


@dataclass(frozen=True)
class Heard:
    """Everything measured in one federation: answers about targets and decoys, and CPU seconds
    of a round of ours (none if its readings had been kept)."""

    points: tuple[Point, ...]
    decoys: tuple[Point, ...]
    ours_seconds: tuple[float, ...]
    detected: tuple[Detected, ...]


def listen(setting: Setting, seed: int, progress: Progress, keep: Path | None = None) -> Heard:
    """Record a federation and run every method on it; readings and detectors may be kept."""
    with recorded(setting.config(seed)) as recording:
        sums, adversary, answers = _adversary(recording, setting)
        rounds = tuple(sorted({*range(setting.every, len(sums) + 1, setting.every), len(sums)}))

        spent: list[float] = []

        def ours() -> Collected:
            begin = time.process_time()
            made = readings(adversary, sums, stream(seed, "ours"))
            told = collect(_watched(made, progress, setting, seed), sums.participation)
            spent.append((time.process_time() - begin) / len(sums))
            return told

        told = kept(keep, _address("readings", adversary, sums, seed), Collected, ours)
        points: list[Point] = []
        decoys: list[Point] = []
        for target, positive in enumerate(answers):
            made = _ours(told, target, positive, rounds, seed, setting.every)
            (points if target < len(answers) - setting.decoys else decoys).extend(made)
        found = []
        for target in range(min(setting.compared, len(answers) - setting.decoys)):
            alone = replace(adversary, targets=_one(adversary.targets, target))
            how = DetectorSettings(setting.shadows, seed=seed)

            def theirs(alone: Adversary = alone, how: DetectorSettings = how) -> Detected:
                watched = _watched(sums, progress, setting, seed)
                return detect(alone, watched, sums.participation, how)

            apart = kept(keep, _address("detectors", alone, sums, how), Detected, theirs)
            found.append(apart)
            size = told.size(rounds[-1], target)
            points += _theirs(target, apart, answers[target], rounds, size)
    return Heard(tuple(points), tuple(decoys), tuple(spent), tuple(found))


def _address(name: str, adversary: Adversary, sums: Sums, how: object) -> str:
    """Where the work on what was heard is kept."""
    makers: dict[str, tuple[ModuleType, ...]] = {
        "readings": (readings_of_a_round, filters),
        "detectors": (detectors,),
    }
    heard = (part for one in sums for part in (one.sent, one.total, one.participants))
    known = [adversary.auxiliary, *([adversary.targets] if adversary.targets else [])]
    mine = (part for one in known for part in (one.inputs, one.labels))
    settings = (adversary.recipe, adversary.shard, adversary.behaviour, how)
    return f"{name}-{address((*makers[name], *settings, *mine, *heard))}"


def _adversary(recording: Recording, setting: Setting) -> tuple[Sums, Adversary, list[Flags]]:
    """The adversary with all targets at once, the decoys last, and who holds each."""
    columns = [t.removeprefix("property.") for t in recording.targets if t.startswith("property.")]
    views = [observe(recording, SECURE_SERVER, client_property(c), "") for c in columns]
    sums, adversary = views[0].know(Sums), adversary_of(views[0])
    answers = [
        answers_of(recording.truth("Property", client_property(c).key), sums.clients)
        for c in columns
    ]
    if adversary.targets is None:
        return sums, adversary, answers
    others = [adversary_of(view).targets for view in views]
    decoys = adversary.auxiliary.take(slice(0, setting.decoys))
    pieces = [known for known in (*others, decoys) if known is not None]
    together = Known(
        np.concatenate([known.inputs for known in pieces]),
        np.concatenate([known.labels for known in pieces]),
    )
    left = adversary.auxiliary.take(slice(setting.decoys, None))
    nobody = np.zeros(len(sums.clients), dtype=bool)
    adversary = replace(adversary, targets=together, auxiliary=left)
    return sums, adversary, [*answers, *[nobody] * setting.decoys]


def _one(targets: Known | None, number: int) -> Known | None:
    return None if targets is None else targets.take(slice(number, number + 1))


def _watched(rounds: Any, progress: Progress, setting: Setting, seed: int) -> Iterator[Any]:
    for number, one in enumerate(rounds):
        progress(f"{setting.words}, federation {seed}", number, setting.rounds)
        yield one


def _ours(
    told: Collected, target: int, positive: Flags, rounds: Sequence[int], seed: int, every: int
) -> list[Point]:
    found, _ = MatchedFilter(every=every).over_rounds(told, stream(seed, "who", target), target)
    return [
        _point(
            target, OURS, t, found[t].probabilities, found[t].chosen, positive, told.size(t, target)
        )
        for t in rounds
    ]


def _theirs(
    target: int, told: Detected, positive: Flags, rounds: Sequence[int], effect: float
) -> Iterator[Point]:
    methods = {
        "BASELINE": updates_told_apart,
        "OLS": least_squares,
        "REG": ridge_regression,
        "PROLIN": prolin,
    }
    for t in rounds:
        for name, method in methods.items():
            p = method(told, t)
            yield _point(target, name, t, p, p > 0.5, positive, effect)


def _point(
    target: int, method: str, round_: int, p: Array, chosen: Flags, positive: Flags, effect: float
) -> Point:
    brier = float(((p - positive) ** 2).mean())
    return Point(
        target,
        method,
        round_,
        f1(chosen, positive),
        brier,
        p,
        positive,
        effect,
        int(chosen.sum()),
    )


# the paper's text gives few numbers; figures 3 to 5 and 8 are drawn only
CLAIMS: dict[tuple[str, str, int, int], dict[str, dict[int, float]]] = {
    ("fashion", "membership", 10, 50): {"PROLIN": {50: 0.25, 100: 0.97}},
    ("fashion", "membership", 30, 50): {"PROLIN": {290: 0.4}},
    ("cifar10", "ascent", 25, 50): {"BASELINE": {300: 1.0}, "OLS": {300: 0.83}},
    ("cifar10", "ascent", 25, 100): {"BASELINE": {300: 0.69}, "OLS": {300: 0.62}},
    ("cifar10", "ascent", 25, 200): {"BASELINE": {300: 0.21}, "OLS": {300: 0.24}},
    ("cifar10", "ascent", 50, 50): {"BASELINE": {300: 1.0}, "PROLIN": {300: 0.76}},
}


def curve_rows(setting: Setting, heard: Sequence[Heard]) -> list[Row]:
    """F1 against the round for each method; of ours also Brier score, effects, alarms, cost."""
    points = [p for one in heard for p in one.points]
    key = (setting.dataset, setting.kind, setting.size, setting.clients)
    claims = CLAIMS.get(key, {})
    rows: list[Row] = []
    for method in dict.fromkeys(p.method for p in points):
        for t in sorted({p.round for p in points}):
            values = [p.f1 for p in points if p.method == method and p.round == t]
            claimed = claims.get(method, {}).get(t)
            rows.append(
                mean_row(setting.words, f"round {t}", method, "F1", values, claimed=claimed)
            )
    rows += _on_the_same(setting, heard)
    mine = [p for p in points if p.method == OURS]
    for t in sorted({p.round for p in mine}):
        scores = [p.brier for p in mine if p.round == t]
        rows.append(mean_row(setting.words, f"round {t}", OURS, "Brier score", scores))
        alarms = [float(p.named) for one in heard for p in one.decoys if p.round == t]
        if alarms:
            label = f"round {t}"
            rows.append(mean_row(setting.words, label, OURS, "false alarms", alarms))
    if setting.kind == "membership":
        rows += _by_effect(setting, mine)
    spent = [seconds for one in heard for seconds in one.ours_seconds]
    if spent:
        rows.append(mean_row(setting.words, "a round", OURS, "CPU seconds", spent))
    return rows


def _on_the_same(setting: Setting, heard: Sequence[Heard]) -> list[Row]:
    """F1 of ours on the targets that the paper's methods were asked about."""
    asked: dict[int, list[float]] = {}
    for one in heard:
        theirs = {p.target for p in one.points if p.method != OURS}
        for p in one.points:
            if p.method == OURS and p.target in theirs:
                asked.setdefault(p.round, []).append(p.f1)
    measure = "F1, the others' targets"
    return [
        mean_row(setting.words, f"round {t}", OURS, measure, values)
        for t, values in sorted(asked.items())
    ]


EFFECTS = ((0.0, 3.0), (3.0, 4.5), (4.5, np.inf))


def _by_effect(setting: Setting, mine: Sequence[Point]) -> list[Row]:
    """F1 of ours at round 50 by how far the target stands out from a client's other records."""
    at = [p for p in mine if p.round == min(50, max(q.round for q in mine))]
    rows = []
    for low, high in EFFECTS:
        inside = [p.f1 for p in at if low <= p.effect < high]
        if inside:
            label = f"effect {low:g} to {high:g}, round {at[0].round}"
            rows.append(mean_row(setting.words, label, OURS, "F1 by effect size", inside))
    return rows


def reliability_rows(words: str, points: Sequence[Point], bins: int = 10) -> list[Row]:
    """In each bin of the probability that ours gave, the share of clients that had the property."""
    p = np.concatenate([point.probabilities for point in points])
    real = np.concatenate([point.positive for point in points])
    which = np.minimum((p * bins).astype(int), bins - 1)
    rows = []
    for b in range(bins):
        inside = which == b
        if inside.any():
            given = float(p[inside].mean())
            label = f"given {given:.3f} ({int(inside.sum())} clients)"
            share = float(real[inside].mean())
            rows.append(Row(words, label, OURS, "reliability", share, claimed=given))
    return rows


def _figure(
    name: str,
    settings: Sequence[Setting],
    seeds: int,
    quick: bool,
    progress: Progress,
    keep: Path | None = None,
    first_seed: int = FIRST_SEED,
) -> Reproduction:
    """Every setting in so many federations; the quick version in one."""
    seeds = 1 if quick else seeds
    rows: list[Row] = []
    every: list[Point] = []
    for setting in settings:
        heard = [listen(setting, first_seed + seed, progress, keep) for seed in range(seeds)]
        rows += curve_rows(setting, heard)
        last = min(50, setting.rounds)
        every += [p for one in heard for p in one.points if p.method == OURS and p.round == last]
    if len(every) >= 8 or name.endswith("reliability"):
        rows += reliability_rows(f"all, round {every[0].round}", every)
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
    return Reproduction(name, PAPER, tuple(rows), data, notes, quick, seeds)


def _settings(
    kind: str, quick: bool, choice: Choice, datasets: Sequence[str], clients: Sequence[int] = (50,)
) -> list[Setting]:
    """The panels asked for: by default all datasets and sizes of the figure."""
    if quick:
        shadows = 200 if choice.shadows is None else choice.shadows
        small = Setting("digits", kind, choice.size or 10, choice.rounds or 60, 20, 4)
        return [replace(small, shadows=shadows, compared=int(shadows > 0))]
    chosen = [choice.dataset] if choice.dataset else list(datasets)
    clients = (choice.clients,) if choice.clients else clients
    for name in chosen:
        if name not in WORLDS:
            raise FixConfig(f"unknown dataset {name!r}; known: {', '.join(WORLDS)}")
    made = []
    for name in chosen:
        sizes = (choice.size,) if choice.size else WORLDS[name].sizes
        for size in sizes:
            for count in clients:
                shadows = 1200 if choice.shadows is None else choice.shadows
                many = kind == "membership"
                made.append(
                    Setting(
                        name,
                        kind,
                        size,
                        choice.rounds or 300,
                        count,
                        targets=4 if many else 1,
                        decoys=4 if many else 0,
                        shadows=shadows,
                        compared=0 if shadows == 0 else 1,
                        every=choice.every or EVERY,
                    )
                )
    return made


def fig2(quick: bool, seeds: int, progress: Progress, choice: Choice) -> Reproduction:
    """The linear feature's two distributions and their overlap, by round (membership)."""
    _needs_detectors(choice)
    (setting, *_) = _settings("membership", quick, choice, ("mnist",))
    setting = replace(setting, rounds=choice.rounds or (20 if quick else 300), decoys=0, targets=1)
    told = listen(setting, 100, progress, choice.keep).detected[0]
    rows = []
    for t in sorted({0, *range(EVERY - 1, len(told.overlaps), EVERY)}):
        for side, mean, variance in (
            ("with", told.mean_with[t], told.variance_with[t]),
            ("without", told.mean_without[t], told.variance_without[t]),
        ):
            label = f"round {t + 1}"
            rows.append(Row(setting.words, label, side, "mean feature", float(mean)))
            sd = float(np.sqrt(variance))
            rows.append(Row(setting.words, label, side, "standard deviation", sd))
        rows.append(Row(setting.words, f"round {t + 1}", "both", "OVL", float(told.overlaps[t])))
    notes = (f"{setting.shadows or 'twice the auxiliary'} shadow updates a round.",)
    return Reproduction("kerkouche2023-fig2", PAPER, tuple(rows), setting.dataset, notes, quick, 1)


def fig3(quick: bool, seeds: int, progress: Progress, choice: Choice) -> Reproduction:
    """Membership of a target record."""
    panels = _settings("membership", quick, choice, ("mnist", "fashion", "cifar10"))
    return _figure("kerkouche2023-fig3", panels, seeds, quick, progress, choice.keep)


def fig4(quick: bool, seeds: int, progress: Progress, choice: Choice) -> Reproduction:
    """Gradient inversion."""
    panels = _settings("inversion", quick, choice, ("mnist", "fashion", "cifar10"))
    return _figure("kerkouche2023-fig4", panels, seeds, quick, progress, choice.keep)


def fig5(quick: bool, seeds: int, progress: Progress, choice: Choice) -> Reproduction:
    """Gradient ascent."""
    panels = _settings("ascent", quick, choice, ("mnist", "fashion", "cifar10"))
    return _figure("kerkouche2023-fig5", panels, seeds, quick, progress, choice.keep)


def reliability(quick: bool, seeds: int, progress: Progress, choice: Choice) -> Reproduction:
    """Probabilities given at round 50 against the shares that had the property; false alarms."""
    rounds = choice.rounds or 50
    ours = replace(choice, rounds=rounds, every=rounds, shadows=0, size=choice.size or 10)
    panels = _settings("membership", quick, ours, ("fashion",))
    return _figure(
        "kerkouche2023-reliability", panels, seeds, quick, progress, choice.keep, FIRST_SEED + 20
    )


def _needs_detectors(choice: Choice) -> None:
    if choice.shadows == 0:
        raise FixConfig("this figure is about the paper's detectors; give --shadows of 10 or more")


def _of_detectors(
    name: str, kinds: Sequence[str], size: int, quick: bool, progress: Progress, choice: Choice
) -> Reproduction:
    _needs_detectors(choice)
    rows, data = [], ""
    for kind in kinds:
        (setting, *_) = _settings(
            kind, quick, replace(choice, size=choice.size or size), ("cifar10",)
        )
        if quick:
            setting = replace(setting, size=10, rounds=choice.rounds or 20)
        setting = replace(setting, targets=1, decoys=0)
        told = listen(setting, 100, progress, choice.keep).detected[0]
        data = setting.dataset
        for t in range(0, len(told.norms), max(1, len(told.norms) // 30)):
            label = f"round {t + 1}"
            rows.append(Row(setting.words, label, kind, "norm", float(told.norms[t])))
            rows.append(Row(setting.words, label, kind, "OVL", float(told.overlaps[t])))
    return Reproduction(name, PAPER, tuple(rows), data, (), quick, 1)


def fig6(quick: bool, seeds: int, progress: Progress, choice: Choice) -> Reproduction:
    """Length of the detectors' weights by round (ascent, CIFAR-10, 50 records)."""
    return _of_detectors("kerkouche2023-fig6", ("ascent",), 50, quick, progress, choice)


def fig7(quick: bool, seeds: int, progress: Progress, choice: Choice) -> Reproduction:
    """OVL by round (membership and inversion, CIFAR-10, 25 records)."""
    kinds = ("membership", "inversion")
    return _of_detectors("kerkouche2023-fig7", kinds, 25, quick, progress, choice)


def fig8(quick: bool, seeds: int, progress: Progress, choice: Choice) -> Reproduction:
    """50, 100 and 200 clients, five of them positive (CIFAR-10, 25 records)."""
    choice = replace(choice, size=choice.size or (10 if quick else 25))
    panels = [
        setting
        for kind in ("membership", "ascent")
        for setting in _settings(kind, quick, choice, ("cifar10",), (50, 100, 200))
    ]
    return _figure("kerkouche2023-fig8", panels, seeds, quick, progress, choice.keep)


def cost(quick: bool, seeds: int, progress: Progress, choice: Choice) -> Reproduction:
    """CPU seconds of a round: ours, and the paper's shadow updates and detector, in one run."""
    (setting, *_) = _settings("membership", quick, choice, ("fashion",))
    setting = replace(setting, rounds=choice.rounds or 12, targets=1, decoys=0, compared=0)
    full = 2 * WORLDS[setting.dataset].auxiliary
    shadows = choice.shadows or (200 if quick else full)
    with recorded(setting.config(100)) as recording:
        sums, adversary, _ = _adversary(recording, setting)
        marks = [time.process_time()]
        for _ in readings(adversary, sums, stream(100, "ours")):
            marks.append(time.process_time())
        ours = float(np.mean(np.diff(marks)[len(marks) // 2 :]))
        begin = time.process_time()
        detect(adversary, [sums[len(sums) - 1]], sums.participation, DetectorSettings(shadows))
        theirs = (time.process_time() - begin) * full / shadows
    rows = (
        Row(setting.words, "a round", OURS, "CPU seconds", ours),
        Row(setting.words, "a round", "PROLIN", "CPU seconds", theirs),
        Row(setting.words, "a round", "PROLIN / ours", "ratio", theirs / ours),
    )
    notes = (f"{shadows} of {full} shadow updates were timed, and the time scaled.",)
    return Reproduction("kerkouche2023-cost", PAPER, rows, setting.dataset, notes, quick, 1)


def _experiment(
    number: str, words: str, seeds: int, run: Any, draw: Any = drawn.draw_f1
) -> Experiment:
    def plain(quick: bool, repeats: int, progress: Progress) -> Reproduction:
        made: Reproduction = run(quick, repeats, progress, Choice())
        return made

    return Experiment(f"{PAPER}-{number}", PAPER, words, seeds, plain, draw, run)


EXPERIMENTS = (
    _experiment("fig2", "feature distributions and their overlap", 1, fig2, drawn.draw_features),
    _experiment("fig3", "membership under secure aggregation", 3, fig3),
    _experiment("fig4", "gradient inversion under secure aggregation", 3, fig4),
    _experiment("fig5", "gradient ascent under secure aggregation", 3, fig5),
    _experiment("fig6", "length of the detectors' weights", 1, fig6, drawn.draw_overlap),
    _experiment("fig7", "overlap of the feature distributions", 1, fig7, drawn.draw_overlap),
    _experiment("fig8", "50, 100 and 200 clients", 3, fig8),
    _experiment(
        "reliability",
        "probabilities against what was so; false alarms",
        20,
        reliability,
        drawn.draw_reliability,
    ),
    _experiment("cost", "seconds of a round, ours and PROLIN's", 1, cost, drawn.draw_cost),
)
