"""Run a sweep's cells, several at once, and keep each result the moment it is there.

Only the process that was started writes results: ``DIR/sweep.json`` says what is swept,
``DIR/cells/KEY.json`` is one finished cell, ``DIR/scratch/`` has the recordings of the cells that
are being measured. Killed at any moment, the next call runs what is missing. A cell that fails is
kept with its error, and the others go on.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from overheard.data.source import add_sources, added
from overheard.errors import ChooseAnotherOutput, FixConfig, FixRecording
from overheard.files import sole_writer, write_durably
from overheard.foreign.files import read_bounded, read_json
from overheard.sweep.grid import Cell, SweepConfig, cells
from overheard.workers import in_processes, on_cluster

Result = dict[str, Any]
Scalar = float | int | str | None


class CellFinding(BaseModel):
    """A row of a cell's findings, as far as anybody computes with it."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)
    __pydantic_extra__: dict[str, Scalar] = Field(init=False)

    attack: str = ""
    question: str = ""
    attribute: str | None = None
    metric: str | None = None
    value: float | None = None
    lift: float | None = None
    bits_gained: float | None = None
    flagged: int | None = Field(default=None, ge=0, le=10**9)


class CellResult(BaseModel):
    """What a file of a finished cell holds: a stranger may have written it."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    key: str
    version: str | None = None
    utility: float | None = None
    utility_is: str | None = None
    error: str | None = None
    findings: list[CellFinding] = []


Progress = Callable[[str, int, int], None]
SCRATCH = "scratch"


def sweep(
    config: SweepConfig,
    out: str | Path,
    workers: int = 1,
    ray: str = "",
    again: bool = False,
    progress: Progress = lambda what, done, total: None,
) -> Path:
    """Run every cell that ``out`` does not hold yet; returns ``out``.

    ``workers`` processes on this machine, or a Ray cluster at the address ``ray``. ``again``: run
    cells once more that failed before, or that another version of this package ran;
    without it such cells are not mixed with new ones. A disk that is full ends the sweep; what is
    finished is kept, and the next call goes on from there.
    """
    folder = Path(out)
    wanted = cells(config)
    if workers < 1:
        raise FixConfig(f"{workers} workers cannot work; give at least one")
    with _sole_writer(folder, config):
        finished = _finished(folder, wanted, again)
        left = [cell for cell in wanted if cell.key not in finished]
        done = len(finished)
        progress("", done, len(wanted))
        try:
            for result in _results(left, workers, ray, folder / SCRATCH):
                _keep(folder, result)
                done += 1
                progress(str(result["name"]), done, len(wanted))
        except OSError as error:
            raise ChooseAnotherOutput(
                f"{error.filename or folder}: cannot be written ({error.strerror or error}); "
                f"{done} of {len(wanted)} cells are kept in {folder}: make room and give the same "
                "command again"
            ) from error
    return folder


def measure(cell: Cell, scratch: Path | None, known: Sequence[str]) -> Result:
    """`overheard.sweep.cell.run_cell`, imported where it runs: whoever hands out cells need not.

    ``known``: the packages whose data sources whoever hands out the cell knows.
    """
    from overheard.sweep.cell import run_cell

    for package in known:
        add_sources(package)
    return run_cell(cell, scratch)


def _results(cells: Sequence[Cell], workers: int, ray: str, scratch: Path) -> Iterator[Result]:
    """Results as they come, of tasks of a Ray cluster or of processes here, one thread each.

    ``scratch``: where these record; what a killed process leaves there, the next sweep removes.
    """
    if ray:
        yield from on_cluster(measure, [(cell, None, added()) for cell in cells], ray)
    elif workers == 1 or len(cells) < 2:
        yield from (measure(cell, scratch, ()) for cell in cells)
    else:
        calls = [(cell, scratch, added()) for cell in cells]
        yield from in_processes(measure, calls, min(workers, len(cells)), "cell")


@contextmanager
def _sole_writer(folder: Path, config: SweepConfig) -> Iterator[None]:
    """The folder, begun or continued, with this process its only writer."""
    about = config.model_dump_json(indent=1) + "\n"
    (folder / "cells").mkdir(parents=True, exist_ok=True)
    with sole_writer(folder, "another sweep"):
        for part in (folder / "cells").glob("*.part"):
            part.unlink()  # of a writer that was killed; nobody else writes here
        shutil.rmtree(folder / SCRATCH, ignore_errors=True)
        described = folder / "sweep.json"
        if not described.exists():
            write_durably(described, [about.encode()])
        elif read_bounded(described, "json_bytes") != about.encode():
            raise ChooseAnotherOutput(
                f"{folder} holds another sweep; choose another folder, or give the same file"
            )
        try:
            (folder / SCRATCH).mkdir(mode=0o700, exist_ok=True)
            yield
        finally:
            shutil.rmtree(folder / SCRATCH, ignore_errors=True)


def _finished(folder: Path, wanted: Sequence[Cell], again: bool) -> set[str]:
    found = set()
    for cell in wanted:
        path = folder / "cells" / f"{cell.key}.json"
        if not path.exists():
            continue
        result = read_result(path)
        other = result.get("version") != version("overheard")
        if again and (other or "error" in result):
            path.unlink()
        elif other:
            raise ChooseAnotherOutput(
                f"{folder} holds cells of another version of overheard; choose another folder, or "
                "give --again to run those anew"
            )
        else:
            found.add(cell.key)
    return found


def _keep(folder: Path, result: Result) -> None:
    text = json.dumps(result, indent=1, sort_keys=True, allow_nan=False) + "\n"
    write_durably(folder / "cells" / f"{result['key']}.json", [text.encode()])


def read_result(path: Path) -> dict[str, Any]:
    content = read_json(path)
    try:
        return CellResult.model_validate(content).model_dump(exclude_unset=True)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))[:200] or "top level"
        raise FixRecording(
            f"{path}: is not a cell's result: {where}: {first['msg']}; remove it"
        ) from error
