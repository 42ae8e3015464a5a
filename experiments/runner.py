"""Cells of experiments: measured one by one, written as they end, taken up again after a kill.

A cell is one point of a table or figure: a setting, a method and a seed. Its result is one JSON
line in ``results/EXPERIMENT.jsonl``, with the commit, date, seconds and command that it was
measured by. What is there is not measured again: to measure it again, remove its line. A killed run
loses the cells that it was at, one a job. Two runs at once share the work: a cell is measured by
whoever claims it first.

A toy, in a module of this package::

    def draws(cell: Cell) -> Values:
        numbers = np.random.default_rng(cell.seed).normal(size=cell["size"])
        return {"mean": float(numbers.mean())}

    EXPERIMENTS = (
        Experiment(
            "toy", "means of normal numbers", draws,
            lambda: [cell(seed=s, size=n, quick=n < 20) for n in (10, 100) for s in range(3)],
        ),
    )
"""

from __future__ import annotations

import datetime
import fcntl
import hashlib
import json
import os
import pkgutil
import shutil
import subprocess  # nosec B404  # git is asked, by list and without a shell
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from overheard.errors import ChooseAnotherOutput, FixConfig
from overheard.files import sole_writer
from overheard.transcript.threat import nearest
from overheard.workers import in_processes

HERE = Path(__file__).parent
RESULTS, CACHE = HERE / "results", HERE / "cache"
Value = str | int | float | bool
Values = Mapping[str, Any]
"""What a cell gave, by measure: a number, a text, or a mapping of labels to numbers (a curve, a
client each). Measures with "seconds" in their name are no part of a check."""


@dataclass(frozen=True)
class Cell:
    """One point of an experiment. ``cost``: about how many seconds it takes; ``quick``: whether it
    belongs to the quick form."""

    setting: tuple[tuple[str, Value], ...] = ()
    method: str = ""
    seed: int = 0
    cost: float = field(default=1.0, compare=False)
    quick: bool = field(default=False, compare=False)

    def __getitem__(self, name: str) -> Any:
        return dict(self.setting)[name]

    @property
    def key(self) -> str:
        """What a result is found by."""
        return json.dumps([dict(self.setting), self.method, self.seed], sort_keys=True)

    @property
    def words(self) -> str:
        said = [f"{name} {value}" for name, value in self.setting]
        return ", ".join([*said, *([self.method] if self.method else []), f"seed {self.seed}"])


def cell(
    method: str = "", seed: int = 0, cost: float = 1.0, quick: bool = False, **setting: Value
) -> Cell:
    """A cell whose setting is given by name."""
    return Cell(tuple(setting.items()), method, seed, cost, quick)


@dataclass(frozen=True)
class Experiment:
    """``run`` measures one of the ``cells``.

    ``tolerance``: by how much a value may differ when it is measured again, absolute or relative to
    it, whichever is more. ``alone``: its values are times, so nothing else runs meanwhile.
    ``claims``: what a paper says that a cell's values are. ``group``: the folder that it is in.
    ``must``: what is promised, and has to hold of the cells; ``came``: what they came to, in words.
    """

    name: str
    about: str
    run: Callable[[Cell], Values]
    cells: Callable[[], Sequence[Cell]]
    tolerance: float = 0.01
    alone: bool = False
    claims: Callable[[Cell], Values] = lambda cell: {}
    group: str = ""
    must: str = ""
    came: Callable[[Sequence[Result]], str] | None = None


@dataclass(frozen=True)
class Result:
    """A line of a file of results."""

    experiment: str
    setting: dict[str, Value]
    method: str
    seed: int
    values: dict[str, Any]
    seconds: float
    command: str
    commit: str
    date: str

    @property
    def key(self) -> str:
        return Cell(tuple(self.setting.items()), self.method, self.seed).key

    @property
    def numbers(self) -> dict[str, float]:
        """Every number of the values; those of a mapping by ``measure: label``."""
        found: dict[str, float] = {}
        for measure, value in self.values.items():
            inside = value.items() if isinstance(value, dict) else [("", value)]
            for label, one in inside:
                if isinstance(one, int | float):
                    found[f"{measure}: {label}" if label else measure] = float(one)
        return found


def modules() -> Iterator[ModuleType]:
    """Every module of this package."""
    for found in pkgutil.walk_packages([str(HERE)], "experiments."):
        if not found.name.endswith("__main__"):
            yield import_module(found.name)


@cache
def experiments() -> dict[str, Experiment]:
    """Every experiment by its name."""
    found = [
        replace(one, group=module.__name__.split(".")[1])
        for module in modules()
        for one in getattr(module, "EXPERIMENTS", ())
    ]
    return {one.name: one for one in found}


def chosen(names: Sequence[str]) -> list[Experiment]:
    """The experiments of these names, groups ("papers") or beginnings ("xu2021"); all if none."""
    known = experiments()
    wanted: dict[str, Experiment] = {} if names else known
    for name in names:
        mine = {
            n: one for n, one in known.items() if name in (n, one.group) or n.startswith(f"{name}-")
        }
        if not mine:
            groups = {one.group for one in known.values()}
            raise FixConfig(f"unknown experiment {name!r}; {nearest(name, [*groups, *known])}")
        wanted = {**wanted, **mine}
    return list(wanted.values())


# --------------------------------------------------------------------------------------- results


def results(name: str, folder: Path = RESULTS) -> list[Result]:
    """What is measured of an experiment, the newest of each cell; half a line is none."""
    path, found = folder / f"{name}.jsonl", dict[str, Result]()
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            one = Result(**json.loads(line))
        except (ValueError, TypeError):
            continue
        found[one.key] = one
    return list(found.values())


def append(result: Result, folder: Path = RESULTS) -> None:
    """Add a line, whole or not at all, also while others add theirs."""
    folder.mkdir(parents=True, exist_ok=True)
    line = json.dumps(asdict(result), ensure_ascii=False).encode() + b"\n"
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
    handle = os.open(folder / f"{result.experiment}.jsonl", flags, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        size = os.fstat(handle).st_size
        broken = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        os.write(handle, b"\n" * broken + line)
        os.fsync(handle)
    finally:
        os.close(handle)


def origin(command: str) -> dict[str, str]:
    """What a result says of how it was made: the command, the commit and the date.

    ``commit`` ends in ``+`` where code in the checkout is not as committed, and is empty where
    there is no checkout.
    """
    commit, git = "", shutil.which("git")
    if git is not None:
        asked = ("status", "--porcelain", "--untracked-files=no", "--", ":/*.py")
        changed, commit = (
            subprocess.run([git, *words], cwd=HERE, capture_output=True, text=True).stdout.strip()  # nosec B603
            for words in (asked, ("rev-parse", "--short=12", "HEAD"))
        )
        commit += "+" * bool(changed)
    return {"command": command, "commit": commit, "date": datetime.date.today().isoformat()}


# --------------------------------------------------------------------------------------- running


@dataclass(frozen=True)
class Done:
    """What came of a cell: a result, or why there is none. Empty: another run has it, or no time
    was left."""

    experiment: str
    cell: Cell
    result: Result | None = None
    failure: str = ""


def todo(
    wanted: Sequence[Experiment], folder: Path = RESULTS, quick: bool = False, seeds: int = 0
) -> list[tuple[Experiment, Cell]]:
    """The cells that are missing, the cheapest first; those that need the machine alone last.

    A cell is expected to take as long as the same with another seed took, else its ``cost``.
    """
    found = []
    for one in wanted:
        there = results(one.name, folder)
        keys = {r.key for r in there}
        took = {Cell(tuple(r.setting.items()), r.method).key: r.seconds for r in there}
        for each in one.cells():
            left_out = (quick and not each.quick) or (seeds and each.seed >= seeds)
            if each.key not in keys and not left_out:
                cost = took.get(replace(each, seed=0).key, each.cost)
                found.append((one, replace(each, cost=cost)))
    return sorted(found, key=lambda item: (item[0].alone, item[1].cost))


def run(
    cells: Sequence[tuple[Experiment, Cell]],
    folder: Path = RESULTS,
    jobs: int = 1,
    hours: float = 0.0,
    command: str = "",
) -> Iterator[Done]:
    """Measure the cells and write each as it ends; after ``hours`` no cell begins (0: no limit)."""
    stop = time.time() + 3600 * hours if hours else float("inf")
    how = (folder, stop, origin(command or "python -m experiments run"))
    calls = [(one.name, each, *how) for one, each in cells if not one.alone]
    if jobs > 1 and calls:
        yield from in_processes(_measured, calls, min(jobs, len(calls)), "cell")
    else:
        yield from (_measured(*call) for call in calls)
    yield from (_measured(one.name, each, *how) for one, each in cells if one.alone)


def measure(name: str, each: Cell, source: Mapping[str, str]) -> Result:
    """One cell, measured now."""
    begin = time.perf_counter()
    values = json.loads(json.dumps(experiments()[name].run(each), default=float))  # plain numbers
    seconds = round(time.perf_counter() - begin, 3)
    setting = dict(each.setting)
    return Result(name, setting, each.method, each.seed, values, seconds, **source)


def claim_of(name: str, each: Cell, folder: Path) -> Path:
    """The folder that is locked by who measures a cell."""
    digest = hashlib.sha256(f"{folder.absolute()} {name} {each.key}".encode()).hexdigest()
    return CACHE / "claims" / digest[:24]


def _measured(name: str, each: Cell, folder: Path, stop: float, source: Mapping[str, str]) -> Done:
    """A cell, if there is time and nobody else has it."""
    claim = claim_of(name, each, folder)
    with ExitStack() as held:
        if time.time() > stop:
            return Done(name, each)
        claim.mkdir(parents=True, exist_ok=True)
        try:
            held.enter_context(sole_writer(claim, "another run"))
        except ChooseAnotherOutput:
            return Done(name, each)
        held.callback(shutil.rmtree, claim, ignore_errors=True)
        if each.key in {r.key for r in results(name, folder)}:
            return Done(name, each)
        try:
            result = measure(name, each, source)
        except Exception as error:  # noqa: BLE001  # said at the end; the other cells go on
            return Done(name, each, failure=f"{type(error).__name__}: {error}")
        append(result, folder)
        return Done(name, each, result)


# -------------------------------------------------------------------------------------- checking


@dataclass(frozen=True)
class Check:
    """A value measured again."""

    experiment: str
    words: str
    measure: str
    before: float
    now: float
    held: bool


def to_check(
    wanted: Sequence[Experiment], folder: Path = RESULTS, hours: float = 1 / 3
) -> list[tuple[Experiment, Cell, Result]]:
    """The cheapest measured cells of each experiment, as many as its share of the time allows."""
    found, share = [], 3600 * hours / max(len(wanted), 1)
    for one in wanted:
        known, spent = {each.key: each for each in one.cells()}, 0.0
        there = [r for r in results(one.name, folder) if r.key in known]
        for number, result in enumerate(sorted(there, key=lambda r: r.seconds)):
            spent += result.seconds
            if number and spent > share:
                break
            found.append((one, known[result.key], result))
    return found


def check(items: Iterable[tuple[Experiment, Cell, Result]]) -> Iterator[Check]:
    """Each cell measured again, value by value; nothing is written."""
    for one, each, before in items:
        now = measure(one.name, each, origin("check")).numbers
        for name, value in before.numbers.items():
            if "seconds" in name:
                continue
            again = now.get(name, float("nan"))
            held = abs(again - value) <= one.tolerance * max(1.0, abs(value))
            yield Check(one.name, each.words, name, value, again, held)
