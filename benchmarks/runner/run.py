"""Runs comparisons: ours, theirs, ours, theirs, each in a process of its own, one at a time."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess  # nosec B404  # this interpreter is run again, by list and without a shell
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.runner.child import below
from benchmarks.runner.entry import Entry, Growth, Opponent, Side, Sizes
from benchmarks.runner.fit import exponent
from overheard.errors import FixConfig

Row = dict[str, Any]
Show = Callable[[str, int, int], None]
ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 240
"""Seconds that a measurement of somebody else's engine may take."""
LOOPBACK = ("unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh")
QUIET = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ADDRESS": "local",  # a Ray of its own: not one that another program has started
    "RAY_DEDUP_LOGS": "0",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
"""One thread a process, and nobody is told about it."""


def why_not(side: Side) -> str:
    """Why a party cannot run here; empty if it can."""
    if side.needs and find_spec(side.needs) is None:
        return f"{side.needs} is not installed"
    if side.loopback:
        if not (shutil.which("unshare") and shutil.which("ip")):
            return "needs unshare and ip: it listens on every interface that it sees"
        tried = subprocess.run(  # nosec B603  # constants
            [*LOOPBACK, "true"], capture_output=True, check=False
        )
        if tried.returncode:
            return "no network namespaces here, and it listens on every interface that it sees"
    return ""


def measured(name: str, side: Side, sizes: Sizes, folder: Path) -> Row:
    """One measurement in a process of its own."""
    asked = {"entry": name, "side": side.name, "sizes": dict(sizes), "folder": str(folder)}
    words = [sys.executable, "-m", "benchmarks.runner.child", json.dumps(asked)]
    paths = (str(ROOT), os.environ.get("PYTHONPATH", ""))
    process = subprocess.Popen(  # nosec B603  # this interpreter and a module of ours
        [*(LOOPBACK if side.loopback else ()), *words],
        env={**os.environ, **QUIET, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, errors = process.communicate(timeout=PATIENCE if side.loopback else None)
    except subprocess.TimeoutExpired as late:
        raise FixConfig(f"{name}: {side.name!r} did not end within {PATIENCE} s") from late
    finally:
        if process.returncode is None:
            _end(process)
    if process.returncode:
        last = " ".join(errors.split()[-60:])
        raise FixConfig(f"{name}: {side.name!r} ended with code {process.returncode}: {last}")
    found: Row = json.loads(out.rstrip().splitlines()[-1])
    return found


def _end(process: subprocess.Popen[str]) -> None:
    """End a measurement and everything that it started."""
    for pid in reversed(below(process.pid)):
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    process.communicate()


def compare(entry: Entry, repeats: int, quick: bool, show: Show) -> list[Row]:
    """A row for each opponent, from ``repeats`` measurements of every party in turn."""
    sizes = entry.quick if quick else entry.sizes
    sides = entry.sides()
    out = {name: why_not(side) for name, side in sides.items()}
    able = [side for name, side in sides.items() if not out[name]]
    taken: dict[str, list[Row]] = {side.name: [] for side in able}
    with tempfile.TemporaryDirectory(prefix="overheard-bench-") as folder:
        for turn in range(repeats):
            for at, side in enumerate(able):
                if out[side.name]:
                    continue
                show(f"{entry.name}: {side.name}", turn * len(able) + at, repeats * len(able))
                try:
                    taken[side.name].append(measured(entry.name, side, sizes, Path(folder)))
                except FixConfig as error:
                    if not side.loopback:
                        raise
                    out[side.name] = str(error)  # somebody else's engine: the others go on
    return [_row(entry, opponent, taken, out, sizes) for opponent in entry.opponents]


def _row(
    entry: Entry,
    opponent: Opponent,
    taken: dict[str, list[Row]],
    out: dict[str, str],
    sizes: Sizes,
) -> Row:
    row: Row = {
        "entry": entry.name,
        "what": entry.what,
        "opponent": opponent.side.name,
        "sizes": dict(sizes),
        "clock": opponent.clock,
        "goal": opponent.goal or None,
        "seconds_more_allowed": opponent.seconds_more,
        "note": opponent.note,
    }
    missing = out[entry.ours.name] or out[opponent.side.name]
    if missing:
        return row | {"skipped": missing, "ratio": None, "met": None}
    ours, theirs = taken[entry.ours.name], taken[opponent.side.name]
    clock = opponent.clock
    ratios = [b[clock] / a[clock] for a, b in zip(ours, theirs, strict=True)]
    held = {
        c.says: all(c.holds(a["facts"], b["facts"]) for a, b in zip(ours, theirs, strict=True))
        for c in opponent.checks
    }
    more = [a[clock] - b[clock] for a, b in zip(ours, theirs, strict=True)]
    met = statistics.median(ratios) >= opponent.goal
    if opponent.seconds_more is not None:
        met = statistics.median(more) <= opponent.seconds_more
        row |= {"seconds_more": statistics.median(more)}
    row |= {
        "skipped": "",
        "ratio": statistics.median(ratios),
        "lowest": min(ratios),
        "highest": max(ratios),
        "ratios": ratios,
        "ours": _party(ours),
        "theirs": _party(theirs),
        "checks": held,
        "met": (met and all(held.values())) if opponent.goal or opponent.seconds_more else None,
    }
    if entry.limit is not None and not out[entry.limit.name]:
        least = taken[entry.limit.name]
        possible = [b[clock] / a[clock] for a, b in zip(least, theirs, strict=True)]
        row |= {"limit": entry.limit.name, "ratio_at_the_limit": statistics.median(possible)}
    return row


def _party(rows: Sequence[Row]) -> Row:
    return {
        "wall": [row["wall"] for row in rows],
        "cpu": [row["cpu"] for row in rows],
        "share": rows[0]["share"],
        "peak_mb": max(row["peak_mb"] for row in rows),
        "extra_mb": max(row["extra_mb"] for row in rows),
        "facts": rows[-1]["facts"],
    }


def grow(growth: Growth, quick: bool, show: Show) -> Row:
    """Time and memory at every point, with the exponents of their growth.

    One measurement a point: a curve over three orders of magnitude forgives noise, and its last
    points take minutes.
    """
    points = growth.quick if quick else growth.points
    taken = []
    with tempfile.TemporaryDirectory(prefix="overheard-bench-") as folder:
        for at, point in enumerate(points):
            show(f"{growth.name}: {point:,} {growth.axis}", at, len(points))
            place = Path(folder) / str(point)
            place.mkdir()
            sizes: Sizes = {str(growth.axis): point}
            found = measured(growth.name, growth.side, sizes, place)
            kept = ("cpu", "wall", "peak_mb", "extra_mb", "facts")
            taken.append({growth.axis: point} | {name: found[name] for name in kept})
            shutil.rmtree(place, ignore_errors=True)
    time = exponent(points, [row["cpu"] for row in taken])
    memory = exponent(points, [row["extra_mb"] for row in taken])
    most = max(row["peak_mb"] for row in taken) / 1024
    held = [
        growth.time is None or time <= growth.time + SLACK,
        growth.memory is None or memory <= growth.memory + SLACK,
        growth.most_gigabytes is None or most <= growth.most_gigabytes,
    ]
    return {
        "growth": growth.name,
        "what": growth.what,
        "axis": growth.axis,
        "points": taken,
        "time_exponent": time,
        "memory_exponent": memory,
        "time_expected": growth.time,
        "memory_expected": growth.memory,
        "peak_gigabytes": most,
        "most_gigabytes": growth.most_gigabytes,
        "why": growth.why,
        "met": all(held),
    }


SLACK = 0.15
"""How far a fitted exponent may exceed the expected one: curves of few noisy points."""
