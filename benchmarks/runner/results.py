"""The file of results: what it holds, and whether a new run lost against it."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from overheard.errors import FixConfig

Row = dict[str, Any]
LOSS = 0.30
"""The greatest loss of a ratio that the guard lets pass."""


def machine() -> Row:
    """Where it ran, as far as the ratios depend on it."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(x.partition(":")[2].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {
        "processor": model,
        "processors": os.cpu_count(),
        "load_average": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        **{name: _version(name) for name in ("numpy", "scipy", "torch", "flwr", "ray")},
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def read_results(path: Path) -> Row:
    """A results file; an error says what is wrong with it."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        found["comparisons"], found["quick"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FixConfig(
            f"{path} is no file of results ({error}); `python -m benchmarks --out FILE` writes one"
        ) from error
    return dict(found)


def key(row: Row) -> tuple[str, str]:
    """What a row is about."""
    return row["entry"], row["opponent"]


def lost(committed: Row, fresh: Sequence[Row]) -> list[Row]:
    """The rows whose ratio fell by more than 30%, with what it was before.

    A row that is new, or that could not be measured on either side, is no loss.
    """
    before = {key(row): row["ratio"] for row in committed["comparisons"]}
    found = []
    for row in fresh:
        old = before.get(key(row))
        if old is not None and row["ratio"] is not None and row["ratio"] < (1 - LOSS) * old:
            found.append(row | {"before": old})
    return found
