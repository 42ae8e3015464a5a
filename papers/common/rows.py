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
from overheard.foreign.files import read_json
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
    """The outcome of one experiment: its rows, of which data, and what to know when reading them.

    `Experiment.measure` adds of which experiment it is and how it was measured; what was measured
    before that was told has no ``commit`` and no ``date``.
    """

    rows: Sequence[Row]
    data: str
    notes: Sequence[str] = ()
    seeds: int = 1
    name: str = ""
    paper: str = ""
    quick: bool = False
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

    ``parts``: its ``run`` takes a `Choice` as well. ``first_seed``: that of the first repetition.
    """

    name: str
    words: str
    run: Callable[..., Reproduction]
    draw: Callable[[Reproduction, Path], None]
    seeds: int = 1
    first_seed: int = 0
    parts: bool = False

    @property
    def paper(self) -> str:
        """The paper that it is of, as its name begins."""
        return self.name.partition("-")[0]

    def measure(
        self, quick: bool, seeds: int, progress: Progress, part: Choice | None = None
    ) -> Reproduction:
        """Run it, or the part that was asked for; the outcome says how it was measured."""
        part = part or Choice()
        words = ["python", "-m", "papers", self.name, "--seeds", str(seeds)]
        words += ["--quick"] if quick else []
        for name, value in asdict(part).items():
            if value != getattr(Choice(), name):
                words += [f"--{name}", str(value)]
        if part != Choice() and not self.parts:
            raise FixConfig(
                f"{self.name} has no --dataset, --size, --rounds, --shadows, --clients or --every; "
                "leave them out"
            )
        outcome = self.run(quick, seeds, progress, *([part] if self.parts else []))
        how: dict[str, Any] = {**origin(" ".join(words)), "first_seed": self.first_seed}
        return replace(outcome, name=self.name, paper=self.paper, quick=quick, **how)


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
