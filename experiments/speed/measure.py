"""How many times faster? Each party's work in a process of its own with one thread, in turn.

A `Comparison` is our work and an opponent's work of the same result; a `Growth` is one piece of our
work against a size. What is measured is a `Job`, made by a party's ``prepare``, a function at the
top of a module, so that another process finds it:

    python -m experiments.speed.measure '{"prepare": "experiments.speed.x:f", "sizes": ..., ...}'

prepares, warms up, runs, and prints what that took as one line of JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import shutil
import statistics
import subprocess  # nosec B404  # this interpreter is run again, by list and without a shell
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from math import log
from pathlib import Path
from typing import Any, Literal

from overheard.errors import FixConfig

Sizes = Mapping[str, int]
Facts = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
SHORT, LONG_ENOUGH, MOST = 1.0, 0.5, 50
"""A run below SHORT seconds is repeated until LONG_ENOUGH seconds, at most MOST times."""
PATIENCE = 240
"""Seconds that a measurement of somebody else's engine may take."""
LOOPBACK = tuple("unshare -rn --pid --fork --kill-child --mount-proc sh -c".split())
LOOPBACK += ('ip link set lo up && exec "$@"', "sh")
"""Where no network but loopback is seen, and nothing outlives its first process."""
QUIET = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ADDRESS": "local",  # a Ray of its own: not one that another program has started
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
"""One thread a process, and nobody is told about it."""


@dataclass(frozen=True)
class Job:
    """Prepared work. ``run`` is timed and may return facts about its result, among them
    ``seconds`` where it has a start that does not count.

    ``share``: how much of the whole work it does; its time is divided by that. ``warm``: a small
    run before the clock starts, of what loads or compiles lazily. ``before``: done before every
    run, not timed.
    """

    run: Callable[[], Facts]
    share: float = 1.0
    warm: Callable[[], object] | None = None
    before: Callable[[], object] | None = None


Prepare = Callable[[Sizes, Path], Job]


@dataclass(frozen=True)
class Party:
    """Who works. ``prepare`` makes the job from the sizes and a folder that both parties share.

    ``needs``: a module without which it is not measured. ``engine``: somebody else's, with
    processes and ports of its own: it sees no network but loopback, all its memory counts, and it
    is ended after `PATIENCE`.
    """

    name: str
    prepare: Prepare
    needs: str = ""
    engine: bool = False


@dataclass(frozen=True)
class Comparison:
    """One line of the table: ours against an opponent at stated sizes.

    ``goal``: the least ratio wanted, opponent's time over ours; 0: shown without one. ``limit``:
    the part of our work that nobody can leave out (the same products by BLAS alone, the digest of
    the same bytes); it says which ratio would be possible at all. ``check``: what must hold of
    both results. ``clock``: processor time, or wall time where disks or processes are involved.
    """

    name: str
    what: str
    ours: Prepare | Party
    theirs: Party
    sizes: Sizes
    quick: Sizes
    goal: float = 0.0
    limit: Prepare | None = None
    check: Callable[[Facts, Facts], bool] = lambda ours, theirs: True
    clock: Literal["cpu", "wall"] = "cpu"


@dataclass(frozen=True)
class Growth:
    """Time and memory of our work against one size, the ``others`` being as they are; ``time`` and
    ``memory`` are the greatest exponents expected. ``peak``: the most memory that it may take, in
    GB; 0: no bound."""

    name: str
    what: str
    axis: Literal["records", "parameters", "clients", "rounds", "candidates"]
    points: tuple[int, ...]
    prepare: Prepare
    others: Sizes
    time: float
    memory: float
    peak: float = 0.0


# ------------------------------------------------------------------------- in the process measured


def measure(job: Job, engine: bool = False) -> dict[str, Any]:
    """Seconds by both clocks (of the whole work), memory at the peak and beyond the start's."""
    before = _status("VmRSS")
    _reset_peak()
    watch = Watch() if engine else None
    if job.warm is not None:
        job.warm()
    runs = [_once(job)]
    if runs[0][0] < SHORT and watch is None:
        runs.clear()
        while not runs or (sum(r[0] for r in runs) < LONG_ENOUGH and len(runs) < MOST):
            runs.append(_once(job))
    top = max(_status("VmHWM"), watch.stop() if watch else 0)
    return {
        "wall": statistics.median(r[0] for r in runs) / job.share,
        "cpu": statistics.median(r[1] for r in runs) / job.share,
        "peak_mb": top / 2**20,
        "extra_mb": max(top - before, 0) / 2**20,
        "facts": runs[-1][2],
    }


def _once(job: Job) -> tuple[float, float, Facts]:
    if job.before is not None:
        job.before()
    wall, cpu = time.perf_counter(), _cpu()
    facts = job.run()
    spent = time.perf_counter() - wall
    return facts.pop("seconds", spent), _cpu() - cpu, facts


def _cpu() -> float:
    """Of this process, and of children that ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def _reset_peak() -> None:
    """Let the peak begin where memory is now, where the system can do that."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def _status(field: str, process: str = "self") -> int:
    """Bytes, as the system says; 0 of a process that is gone."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    found = [line.split() for line in lines.splitlines() if line.startswith(f"{field}:")]
    return int(found[0][1]) * 1024 if found else 0


class Watch:
    """Samples, ten times a second, what all processes of an engine's namespace hold together."""

    def __init__(self) -> None:
        self.most = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Bytes at the peak."""
        self._end.set()
        self._thread.join()
        return self.most

    def _sample(self) -> None:
        while not self._end.wait(0.1):
            there = [p.name for p in Path("/proc").iterdir() if p.name.isdigit()]
            self.most = max(self.most, sum(_status("VmRSS", name) for name in there))


# ------------------------------------------------------------------------ in the process that asks


def cannot(party: Party) -> str:
    """Why a party cannot run here; empty if it can."""
    if party.needs and find_spec(party.needs) is None:
        return f"{party.needs} is not installed"
    if party.engine:
        there = shutil.which("unshare") and shutil.which("ip")
        asked = [*LOOPBACK, "true"]
        if not there or subprocess.run(asked, capture_output=True, check=False).returncode:  # nosec B603  # constants
            return "no namespaces here, and it listens on every interface that it sees"
    return ""


def measured(party: Party, sizes: Sizes, folder: Path) -> dict[str, Any]:
    """One measurement in a process of its own."""
    where = f"{party.prepare.__module__}:{party.prepare.__qualname__}"
    asked = {"prepare": where, "sizes": dict(sizes), "folder": str(folder), "engine": party.engine}
    words = [sys.executable, "-m", "experiments.speed.measure", json.dumps(asked)]
    paths = (str(ROOT), os.environ.get("PYTHONPATH", ""))
    try:
        done = subprocess.run(  # nosec B603  # this interpreter and a module of ours
            [*(LOOPBACK if party.engine else ()), *words],
            env={**os.environ, **QUIET, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE if party.engine else None,
        )
    except subprocess.TimeoutExpired as late:
        raise FixConfig(f"{party.name!r} did not end within {PATIENCE} s") from late
    if done.returncode:
        last = " ".join(done.stderr.split()[-60:])
        raise FixConfig(f"{party.name!r} ended with code {done.returncode}: {last}")
    found: dict[str, Any] = json.loads(done.stdout.rstrip().splitlines()[-1])
    return found


def compared(line: Comparison, quick: bool = False) -> dict[str, Any]:
    """Ours, theirs and the limit, one after the other: how many times longer they take."""
    sizes, clock = line.quick if quick else line.sizes, line.clock
    if why := cannot(line.theirs):
        return {"skipped": why}
    ours = line.ours if isinstance(line.ours, Party) else Party("ours", line.ours)
    parties = [ours, line.theirs]
    parties += [Party("limit", line.limit)] if line.limit else []
    with tempfile.TemporaryDirectory(prefix="overheard-speed-") as folder:
        try:
            mine, theirs, *limit = (measured(party, sizes, Path(folder)) for party in parties)
        except FixConfig as error:
            if not line.theirs.engine:
                raise
            return {"skipped": str(error)}  # somebody else's engine: the others go on
    return {
        "ratio": theirs[clock] / mine[clock],
        "possible": theirs[clock] / limit[0][clock] if limit else None,
        "ours_seconds": mine[clock],
        "theirs_seconds": theirs[clock],
        "ours_mb": mine["peak_mb"],
        "theirs_mb": theirs["peak_mb"],
        "holds": line.check(mine["facts"], theirs["facts"]),
    }


def grown(line: Growth, size: int) -> dict[str, Any]:
    """One point of a curve."""
    with tempfile.TemporaryDirectory(prefix="overheard-speed-") as folder:
        found = measured(
            Party("ours", line.prepare), {**line.others, line.axis: size}, Path(folder)
        )
    return {"size": size, **{name: found[name] for name in ("cpu", "peak_mb", "extra_mb")}}


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The slope of the values against the sizes, both in logarithms, by least squares. Constant
    work at small sizes bends the curve and lowers the slope."""
    x, y = [log(size) for size in sizes], [log(max(value, 1e-3)) for value in values]
    return statistics.linear_regression(x, y).slope


if __name__ == "__main__":
    asked = json.loads(sys.argv[1])
    module, _, name = asked["prepare"].partition(":")
    prepare = getattr(importlib.import_module(module), name)
    found = measure(prepare(asked["sizes"], Path(asked["folder"])), asked["engine"])
    sys.stdout.write(f"\n{json.dumps(found)}\n")
