"""What is promised, by which experiment it is tried, and what came of it: docs/evidence.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from experiments.pages import table
from experiments.runner import Result, experiments, results


def tried(trials: int, faults: int, said: str) -> dict[str, Any]:
    """What a cell gave: of so many trials so many broke the promise; and in words."""
    return {"trials": int(trials), "faults": int(faults), "said": said}


def total(found: Sequence[Result], measure: str) -> int:
    """Over all cells."""
    return sum(int(r.values.get(measure, 0)) for r in found)


def counted(found: Sequence[Result]) -> str:
    """Trials and faults; of the faults where they are."""
    wrong = [f"{r.setting}: {r.values['said']}" for r in found if r.values["faults"]]
    return f"{total(found, 'faults')} faults" + "".join(f"; {where}" for where in wrong)


def promise_table() -> str:
    """Every promise, the command that tries it, and what came of it."""
    rows = []
    for one in (one for one in experiments().values() if one.must):
        found, cells = results(one.name), len(one.cells())
        if not found:
            rows.append([one.must, f"`{one.name}`", "not run since it was written anew"])
            continue
        part = "" if len(found) >= cells else f" ({len(found)} of {cells} cells)"
        came = f"{total(found, 'trials'):,} trials{part}: {(one.came or counted)(found)}"
        commit = max((r.date, r.commit) for r in found)[1][:8]
        rows.append([one.must, f"`{one.name}`", f"{came} (at {commit})"])
    return table(["what must hold", "command", "what came of it"], rows)


TABLES = {"promises": promise_table}
