"""One federation of kerkouche2023's figures: recorded, listened to, and every method's answers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.papers import kerkouche2023
from overheard.attacks.papers.kerkouche2023 import Detected, above_half, detect
from overheard.attacks.property import (
    Adversary,
    Known,
    MatchedFilter,
    Outputs,
    adversary_of,
    collect,
    outputs,
)
from overheard.questions.property import answers_of, f1
from overheard.randomness import stream
from overheard.transcript.knowledge import Sums
from overheard.transcript.store import Recording
from overheard.transcript.target import client_property
from overheard.transcript.threat import SECURE_SERVER
from overheard.transcript.view import observe
from papers.common.harness import federation, recorded
from papers.common.rows import Progress

OURS = "matched_filter"
EVERY = 10
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
    model: str = "lenet"


WORLDS = {
    "mnist": World("mnist", 6000, 0.01, 10, (10, 20, 30)),
    "fashion": World("fashion", 6000, 0.01, 10, (10, 20, 30)),
    "cifar10": World("cifar10", 5000, 0.1, 25, (25, 50)),
    "digits": World("digits_images", 1000, 0.1, 10, (10,)),
    "small": World("digits_images", 1000, 0.05, 20, (20,), model="logistic"),
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
        options = {
            "seed": seed,
            "clients": self.clients,
            "records": self.size,
            "auxiliary": world.auxiliary,
        }
        training = {
            "rounds": self.rounds,
            "learning_rate": world.learning_rate,
            "batch_size": world.batch,
            "participation": 0.2,
        }
        kinds = {"targets": self.targets} if self.kind == "membership" else {}
        return federation(seed, world.source, world.model, training, options) | {
            "property": {"kind": self.kind, "positives": self.positives, **kinds},
            "defence": [{"name": "secure_sum"}],
        }


@dataclass(frozen=True)
class Point:
    """A method's answer about one target after so many rounds."""

    target: int
    method: str
    round: int
    probabilities: Array
    chosen: Flags
    positive: Flags
    effect: float

    @property
    def f1(self) -> float:
        return f1(self.chosen, self.positive)

    @property
    def brier(self) -> float:
        return float(((self.probabilities - self.positive) ** 2).mean())


@dataclass(frozen=True)
class Heard:
    """Everything measured in one federation: answers about targets and decoys, and CPU seconds
    of a round of ours."""

    points: tuple[Point, ...]
    decoys: tuple[Point, ...]
    ours_seconds: float


def listen(setting: Setting, seed: int, progress: Progress) -> Heard:
    """Record a federation and run every method on it."""
    with recorded(setting.config(seed)) as recording:
        sums, adversary, answers = adversary_in(recording, setting)
        rounds = tuple(sorted({*range(setting.every, len(sums) + 1, setting.every), len(sums)}))
        begin = time.process_time()
        read = outputs(adversary, sums, stream(seed, "ours"))
        told = collect(_watched(read, progress, setting, seed))
        seconds = (time.process_time() - begin) / len(sums)
        points: list[Point] = []
        decoys: list[Point] = []
        for target, positive in enumerate(answers):
            made = _ours(told, target, positive, rounds, seed, setting.every)
            (points if target < len(answers) - setting.decoys else decoys).extend(made)
        for target in range(min(setting.compared, len(answers) - setting.decoys)):
            alone = replace(adversary, targets=_one(adversary.targets, target))
            watched = _watched(sums, progress, setting, seed)
            how = kerkouche2023.Options(setting.shadows, seed=seed)
            apart = detect(alone, watched, how)
            size = told.size(rounds[-1], target)
            points += _theirs(target, apart, answers[target], rounds, size)
    return Heard(tuple(points), tuple(decoys), seconds)


def adversary_in(recording: Recording, setting: Setting) -> tuple[Sums, Adversary, list[Flags]]:
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
    told: Outputs, target: int, positive: Flags, rounds: Sequence[int], seed: int, every: int
) -> list[Point]:
    found, _ = MatchedFilter(every=every).over_rounds(told, target)
    return [
        Point(target, OURS, t, one.probabilities, one.chosen, positive, told.size(t, target))
        for t, one in ((t, found[t]) for t in rounds)
    ]


def _theirs(
    target: int, told: Detected, positive: Flags, rounds: Sequence[int], effect: float
) -> Iterator[Point]:
    methods = {
        "BASELINE": kerkouche2023.baseline,
        "OLS": kerkouche2023.ols,
        "REG": kerkouche2023.reg,
        "PROLIN": kerkouche2023.prolin,
    }
    for t in rounds:
        for name, method in methods.items():
            p = method(told.first(t))
            yield Point(target, name, t, p, above_half(p), positive, effect)
