"""Which committed results are older than the code that they depend on: ``make stale``.

Every result under papers/ and benchmarks/ that says by which code it was measured is compared with
the code of today; one that does not say is of unknown age. Nothing fails: to measure is another
matter, and may take hours. The command beside each line measures only what is old.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# papers/ and benchmarks/ are not in the package
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import any_training
from benchmarks.runner import provenance as benches
from overheard.code_digest import Age, age_of
from overheard.sweep.grid import cell_code, parse_sweep
from papers.common import provenance
from papers.common.catalogue import experiments
from papers.common.rows import read_reproduction

ROOT = Path(__file__).resolve().parents[2]
AGES: dict[Age, str] = {"older": "older than their code", "unknown": "of unknown age"}


@dataclass(frozen=True)
class Result:
    """One committed row: of what, how old, and what would measure it anew (empty: not said)."""

    file: str
    what: str
    age: Age
    command: str


def results(root: Path = ROOT) -> Iterator[Result]:
    """Every row of every file of results."""
    for path in sorted([*root.glob("papers/**/*.json"), *root.glob("benchmarks/*.json")]):
        content = json.loads(path.read_text(encoding="utf-8"))
        name = str(path.relative_to(root))
        if {"name", "paper", "rows"} <= content.keys():
            yield from _reproduced(path, name)
        elif "comparisons" in content:
            yield from _timed(content, name)
        elif "points" in content:
            yield from _swept(content, name)
        elif all(isinstance(row, dict) and "runs" in row for row in content.values()):
            for what, row in content.items():
                yield Result(name, what, age_of(row["code"], any_training.code()), row["command"])
        else:
            yield Result(name, "all", "unknown", "")


def _reproduced(path: Path, name: str) -> Iterator[Result]:
    outcome = read_reproduction(path)
    known = experiments().get(outcome.name)
    for row in outcome.rows:
        how = f"{row.command} --out {Path(name).parent} --again" if row.command else ""
        yield Result(name, row.method, provenance.age(known, row), how)


def _timed(content: dict[str, Any], name: str) -> Iterator[Result]:
    for row in (*content["comparisons"], *content["growth"]):
        what = row.get("growth") or row["entry"]
        how = row.get("command", f"overheard bench {what}")
        yield Result(name, what, benches.age(row), f"{how} --out {name} --again")


def _swept(content: dict[str, Any], name: str) -> Iterator[Result]:
    today = set()
    if "sweep" in content:
        swept = parse_sweep(content["sweep"], name)
        today = {cell_code(setting.attacks or swept.attacks) for setting in swept.setting}
    for point in content["points"]:
        code = point.get("code")
        age = age_of(code, code if code in today else None)
        how = f"{point['command']} --again" if "command" in point else ""
        yield Result(name, point["attack"], age, how)


def listing(found: list[Result]) -> str:
    """The rows that are not current, by file and command, and how many there are of each age."""
    groups: dict[tuple[str, Age, str], list[str]] = {}
    for result in found:
        if result.age != "current":
            groups.setdefault((result.file, result.age, result.command), []).append(result.what)
    lines = [
        f"{file}: {len(names)} rows {AGES[age]} ({', '.join(dict.fromkeys(names))})"
        + (f": {command}" if command else "")
        for (file, age, command), names in groups.items()
    ]
    ages = Counter(result.age for result in found)
    counts = ", ".join(f"{ages[age]} {age}" for age in ("current", "older", "unknown"))
    return "\n".join([*lines, f"{len(found)} rows: {counts}"])


def main() -> None:
    """Print the listing, of this repository or of the folder given."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    print(listing(list(results(root))))


if __name__ == "__main__":
    main()
