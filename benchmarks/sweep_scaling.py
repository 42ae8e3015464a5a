"""Do two processes sweep faster than one? ``python benchmarks/sweep_scaling.py``

The same 24 cells (a simulation, an audit and the model's worth, about a second each) are run by
one process and by two, one thread each, start-up included; both tables must be the same.
Must hold: two processes take at most 0.6 of the time of one.

Needs two idle processors: where other work runs the wall clock says little. The processor seconds
stand beside it, and the ratio at best: half of two processes' over those of one.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ALLOWED = 0.6
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def config(victim: int) -> dict[str, Any]:
    """24 cells: four learning rates, six seeds."""
    return {
        "base": {
            "data": {
                "source": "digits",
                "options": {
                    "victim": victim,
                    "participants": 2,
                    "public": 100,
                    "attributes": ["c043"],
                },
            },
            "model": {"name": "mlp", "hidden": [16]},
            "training": {"rounds": 8, "learning_rate": 0.1},
        },
        "grid": {"training.learning_rate": [0.05, 0.1, 0.2, 0.4]},
        "attacks": ["max_entropy", "majority"],
        "clients": ["victim"],
        "seeds": [0, 1, 2, 3, 4, 5],
    }


def processor_seconds() -> float:
    """Of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def swept(sweep: dict[str, Any], workers: int, out: Path) -> tuple[float, float, bytes]:
    """Seconds that the command takes, those of processors, and the table that it leaves."""
    out.mkdir()
    file = out / "sweep.toml"
    file.write_text(as_toml(sweep))
    command = Path(sys.executable).with_name("overheard")
    words = [str(command), "sweep", str(file), "--out", str(out / "s"), "--workers", str(workers)]
    begin, before = time.perf_counter(), processor_seconds()
    done = subprocess.run(
        words,
        env={**os.environ, **dict.fromkeys(ONE_THREAD, "1")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=True,
    )
    took = time.perf_counter() - begin
    if "failed: cell" in done.stderr:
        sys.exit(f"a cell failed, so this measures nothing: {done.stderr[:300]}")
    return took, processor_seconds() - before, (out / "s" / "results.parquet").read_bytes()


def as_toml(sweep: dict[str, Any]) -> str:
    """Top-level values, then one inline table a section."""

    def value(content: Any) -> str:
        if isinstance(content, dict):
            pairs = (f"{json.dumps(k)} = {value(v)}" for k, v in content.items())
            return "{ " + ", ".join(pairs) + " }"
        return json.dumps(content)

    return "".join(f"{name} = {value(content)}\n" for name, content in sweep.items())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--victim", type=int, default=640, help="records of the decoded client")
    parser.add_argument("--times", type=int, default=1, help="repetitions; the smallest count")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    options = parser.parse_args()
    sweep = config(options.victim)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    work: dict[int, list[float]] = {1: [], 2: []}
    tables = set()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.times):
            for workers in (2, 1):
                took, processors, table = swept(
                    sweep, workers, Path(folder) / f"{number}-{workers}"
                )
                seconds[workers].append(took)
                work[workers].append(processors)
                tables.add(table)
    best = {workers: min(took) for workers, took in seconds.items()}
    found = {
        "cells": 24,
        "one_process_seconds": best[1],
        "two_processes_seconds": best[2],
        "ratio": best[2] / best[1],
        "one_process_work": min(work[1]),
        "two_processes_work": min(work[2]),
        "ratio_at_best": min(work[2]) / 2 / min(work[1]),
        "allowed": ALLOWED,
        "tables": len(tables),
    }
    for name, figure in found.items():
        print(f"{name:<24} {figure:.4g}")
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    held = found["ratio"] <= ALLOWED and len(tables) == 1
    print("held" if held else "NOT HELD")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
