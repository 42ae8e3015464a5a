"""What a reproduction writes: rows of claimed and measured numbers, and how they were made."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from overheard.errors import ChooseAnotherOutput, FixConfig, FixRecording
from overheard.files import replace_durably, write_durably
from overheard.foreign.notation import read_json

Made = TypeVar("Made")


@dataclass(frozen=True)
class Row:
    """One cell of a paper's table or one point of its figure, and what we measured there.

    ``measured`` is a mean over ``seeds`` repetitions with the 95% interval ``low`` to ``high``;
    ``claimed`` is the paper's number (None where the paper has none); ``majority`` is what the
    majority guess gets, where the measure is an accuracy. ``repetitions`` are the numbers that
    ``measured`` is the mean of, in the order of their seeds, of which ``first_seed`` is the first.

    Where it comes from is added by `papers.common.provenance`: ``code``, the digest of the
    code that it depends on, the ``command`` that measured it, and ``seal``, a digest of all the
    rest of the row. Rows without them are of unknown age.
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
    first_seed: int | None = None
    code: str | None = None
    command: str | None = None
    seal: str | None = None


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

    ``choose``, where there is one, runs the part that a `Choice` names. ``methods``: which attacks
    (classes, functions or modules) stand behind the rows of a method, where that is not the attack
    of the method's own name; a method of which nothing is known depends on all that the experiment
    imports. ``first_seed``: that of the first repetition.
    """

    name: str
    paper: str
    words: str
    seeds: int
    run: Callable[[bool, int, Progress], Reproduction]
    draw: Callable[[Reproduction, Path], None]
    choose: Callable[[bool, int, Progress, Choice], Reproduction] | None = None
    methods: Mapping[str, tuple[object, ...]] = field(default_factory=dict)
    first_seed: int = 0

    def run_part(self, quick: bool, seeds: int, progress: Progress, part: Choice) -> Reproduction:
        """The whole experiment, or the part of it that was asked for."""
        if part == Choice():
            return self.run(quick, seeds, progress)
        if self.choose is None:
            raise FixConfig(
                f"{self.name} has no --dataset, --size, --rounds, --shadows, --clients or --every; "
                "leave them out"
            )
        return self.choose(quick, seeds, progress, part)


_SPARED: ContextVar[frozenset[str]] = ContextVar("methods not to measure", default=frozenset())


@contextmanager
def sparing(methods: frozenset[str]) -> Iterator[None]:
    """Inside, experiments need not measure these methods; what they do of them is not used."""
    before = _SPARED.set(methods)
    try:
        yield
    finally:
        _SPARED.reset(before)


def asked(methods: Mapping[str, Made]) -> dict[str, Made]:
    """Of these methods those to be measured: all, but where a file is brought up to date.

    An experiment that does not ask measures everything; it loses nothing but time.
    """
    return {method: made for method, made in methods.items() if method not in _SPARED.get()}


def paths_of(name: str, out: Path) -> tuple[Path, Path]:
    """Where an experiment's table and picture go."""
    return out / f"{name}.json", out / f"{name}.svg"


def free_paths(name: str, out: Path) -> tuple[Path, Path]:
    """Where an experiment's table and picture go; an error if one is there already."""
    paths = paths_of(name, out)
    for path in paths:
        if path.exists():
            raise ChooseAnotherOutput(
                f"{path} exists already; choose another folder, or give --again to measure anew "
                "what older code measured"
            )
    return paths


def write_reproduction(
    experiment: Experiment, outcome: Reproduction, out: Path, again: bool = False
) -> Sequence[Path]:
    """Write ``NAME.json`` and ``NAME.svg`` into ``out``; only ``again`` overwrites."""
    out.mkdir(parents=True, exist_ok=True)
    table, picture = (paths_of if again else free_paths)(outcome.name, out)
    content = (json.dumps(asdict(outcome), indent=1) + "\n").encode()
    if again:
        replace_durably(table, content)
    else:
        write_durably(table, [content])
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
