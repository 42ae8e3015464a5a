"""What a reproduction writes: rows of claimed and measured numbers, and how they were made."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from overheard.errors import ChooseAnotherOutput, FixConfig, FixRecording
from overheard.files import write_durably
from overheard.foreign.notation import read_json
from overheard.origin import origin


@dataclass(frozen=True)
class Row:
    """One cell of a paper's table or one point of its figure, and what we measured there.

    ``measured`` is a mean over ``seeds`` repetitions with the 95% interval ``low`` to ``high``;
    ``claimed`` is the paper's number (None where the paper has none); ``majority`` is what the
    majority guess gets, where the measure is an accuracy. ``repetitions`` are the numbers that
    ``measured`` is the mean of, in the order of their seeds.
    """

    setting: str
    client: str
    method: str
    measure: str
    measured: float
    low: float | None = None
    high: float | None = None
    claimed: float | None = None
    majority: float | None = None
    seconds: float | None = None
    seeds: int = 1
    repetitions: tuple[float, ...] = ()


@dataclass(frozen=True)
class Reproduction:
    """The outcome of one experiment.

    By which ``command``, ``commit`` and ``date`` it was measured, and from which ``first_seed`` on,
    is added by `Experiment.measure`; what was measured before these were told has none.
    """

    name: str
    paper: str
    rows: tuple[Row, ...]
    data: str
    notes: tuple[str, ...]
    quick: bool
    seeds: int
    software: dict[str, str] = field(
        default_factory=lambda: {n: version(n) for n in ("overheard", "numpy", "scipy")}
    )
    command: str = ""
    commit: str = ""
    date: str = ""
    first_seed: int | None = None

    def measured(self, method: str, **where: str) -> list[float]:
        """The measured numbers of a method, optionally in one setting or of one client."""
        return [
            row.measured
            for row in self.rows
            if row.method == method and all(getattr(row, k) == v for k, v in where.items())
        ]


Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Choice:
    """Which part of a figure to make; what is not given is the paper's.

    ``shadows``: simulated updates a round for the methods that train on such (0: leave them out).
    """

    dataset: str = ""
    size: int = 0
    rounds: int = 0
    shadows: int | None = None
    clients: int = 0
    every: int = 0


@dataclass(frozen=True)
class Experiment:
    """A named experiment: ``run(quick, seeds, progress)`` and ``draw(reproduction, path)``.

    ``choose``, where there is one, runs the part that a `Choice` names. ``first_seed``: that of the
    first repetition.
    """

    name: str
    paper: str
    words: str
    seeds: int
    run: Callable[[bool, int, Progress], Reproduction]
    draw: Callable[[Reproduction, Path], None]
    choose: Callable[[bool, int, Progress, Choice], Reproduction] | None = None
    first_seed: int = 0

    def measure(self, quick: bool, seeds: int, progress: Progress, part: Choice) -> Reproduction:
        """Run it, or the part that was asked for; the outcome says how it was measured."""
        words = ["overheard", "reproduce", self.name, "--seeds", str(seeds)]
        words += ["--quick"] if quick else []
        for name, value in asdict(part).items():
            if value != getattr(Choice(), name):
                words += [f"--{name}", str(value)]
        outcome = self._run_part(quick, seeds, progress, part)
        how: dict[str, Any] = {**origin(" ".join(words)), "first_seed": self.first_seed}
        return replace(outcome, **how)

    def _run_part(self, quick: bool, seeds: int, progress: Progress, part: Choice) -> Reproduction:
        if part == Choice():
            return self.run(quick, seeds, progress)
        if self.choose is None:
            raise FixConfig(
                f"{self.name} has no --dataset, --size, --rounds, --shadows, --clients or --every; "
                "leave them out"
            )
        return self.choose(quick, seeds, progress, part)


def free_paths(name: str, out: Path) -> tuple[Path, Path]:
    """Where an experiment's table and picture go; an error if one is there already."""
    paths = out / f"{name}.json", out / f"{name}.svg"
    for path in paths:
        if path.exists():
            raise ChooseAnotherOutput(f"{path} exists already; remove it or choose another folder")
    return paths


def write_reproduction(experiment: Experiment, outcome: Reproduction, out: Path) -> Sequence[Path]:
    """Write ``NAME.json`` and ``NAME.svg`` into ``out``."""
    out.mkdir(parents=True, exist_ok=True)
    table, picture = free_paths(outcome.name, out)
    write_durably(table, [(json.dumps(asdict(outcome), indent=1) + "\n").encode()])
    experiment.draw(outcome, picture)
    return table, picture


def read_reproduction(path: Path) -> Reproduction:
    """What `write_reproduction` wrote; an error says what is wrong with it."""
    content = read_json(path)
    try:
        rows = [Row(**{**row, "repetitions": tuple(row.get("repetitions", ()))})
                for row in content["rows"]]  # fmt: skip
        return Reproduction(**{**content, "rows": tuple(rows), "notes": tuple(content["notes"])})
    except (KeyError, TypeError) as error:
        raise FixRecording(f"{path}: is not an experiment's result ({error}); move it") from error
