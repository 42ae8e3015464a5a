"""Writes results: one JSON file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.runner.catalogue import entries, growths
from benchmarks.runner.results import key, machine, read_results

Row = dict[str, Any]


def _place(name: str) -> int:
    """Where a comparison or curve stands in the catalogue; what is not there comes last."""
    known = [*entries(), *growths()]
    return known.index(name) if name in known else len(known)


def write_results(out: Path, content: Row, repeats: int, notes: Sequence[str]) -> Row:
    """Write ``content`` to the file; rows that it already holds and that are not new stay."""
    kept: Row = {"comparisons": [], "growth": [], "notes": []}
    if out.exists():
        old = read_results(out)
        if old["quick"] == content["quick"]:
            kept = old
    comparisons = {key(row): row for row in (*kept["comparisons"], *content["comparisons"])}
    growth = {row["growth"]: row for row in (*kept["growth"], *content["growth"])}
    whole = {
        "quick": content["quick"],
        "repeats": repeats,
        "machine": machine(),
        "notes": list(dict.fromkeys([*kept["notes"], *notes])),
        "comparisons": sorted(comparisons.values(), key=lambda row: _place(row["entry"])),
        "growth": sorted(growth.values(), key=lambda row: _place(row["growth"])),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return whole
