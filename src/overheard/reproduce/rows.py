"""What a reproduction writes: rows of claimed and measured numbers, and how they were made."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

from overheard.errors import ChooseAnotherOutput, FixConfig
from overheard.files import write_durably


@dataclass(frozen=True)
class Row:
    """One cell of a paper's table or one point of its figure, and what we measured there.

    ``measured`` is a mean over ``seeds`` repetitions with the 95% interval ``low`` to ``high``;
    ``claimed`` is the paper's number (None where the paper has none); ``majority`` is what the
    majority guess gets, where the measure is an accuracy.
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


@dataclass(frozen=True)
class Reproduction:
    """The outcome of one experiment."""

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

    ``shadows``: simulated updates a round for the methods that train on such (0: leave them out);
    ``keep``: a folder for what took long to make, from which a second run takes it.
    """

    dataset: str = ""
    size: int = 0
    rounds: int = 0
    shadows: int | None = None
    clients: int = 0
    every: int = 0
    keep: Path | None = None


@dataclass(frozen=True)
class Experiment:
    """A named experiment: ``run(quick, seeds, progress)`` and ``draw(reproduction, path)``.

    ``choose``, where there is one, runs the part that a `Choice` names.
    """

    name: str
    paper: str
    words: str
    seeds: int
    run: Callable[[bool, int, Progress], Reproduction]
    draw: Callable[[Reproduction, Path], None]
    choose: Callable[[bool, int, Progress, Choice], Reproduction] | None = None

    def run_part(self, quick: bool, seeds: int, progress: Progress, part: Choice) -> Reproduction:
        """The whole experiment, or the part of it that was asked for."""
        if part == Choice():
            return self.run(quick, seeds, progress)
        if self.choose is None:
            raise FixConfig(
                f"{self.name} has no --dataset, --size, --rounds, --shadows, --clients, --every or "
                "--keep; leave them out"
            )
        return self.choose(quick, seeds, progress, part)


def free_paths(name: str, out: Path) -> tuple[Path, Path]:
    """Where an experiment's table and picture go; an error if one is there already."""
    paths = out / f"{name}.json", out / f"{name}.svg"
    for path in paths:
        if path.exists():
            raise ChooseAnotherOutput(f"{path} exists already; choose another folder")
    return paths


def write_reproduction(experiment: Experiment, outcome: Reproduction, out: Path) -> Sequence[Path]:
    """Write ``NAME.json`` and ``NAME.svg`` into ``out``; nothing is overwritten."""
    out.mkdir(parents=True, exist_ok=True)
    table, picture = free_paths(outcome.name, out)
    write_durably(table, [(json.dumps(asdict(outcome), indent=1) + "\n").encode()])
    experiment.draw(outcome, picture)
    return table, picture
