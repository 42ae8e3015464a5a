"""The tables of docs/trees.md, made from benchmarks/trees.json."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean
from typing import Any

from pages import table
from released import results

Rows = dict[int, list[dict[str, Any]]]


def by_case() -> dict[str, Rows]:
    """Every case: the number of rounds to the rows of all seeds."""
    found: dict[str, Rows] = {}
    for key, kept in results("trees").items():
        case = found.setdefault(key.rpartition("; ")[0], {})
        for row in kept["rows"]:
            case.setdefault(row["rounds"], []).append(row)
    return found


def mean(rows: Iterable[dict[str, Any]], what: str) -> float:
    return fmean(float(row[what]) for row in rows)


def _some(rows: Iterable[dict[str, Any]], what: str) -> str:
    """The mean of a field that not every row has; nothing where none has."""
    found = [row for row in rows if what in row]
    return f"{mean(found, what):.3f}" if found else ""


def curve_table() -> str:
    """What is guessed right after so many rounds, and what no listening would get."""
    cases = by_case()
    heard = sorted({rounds for rows in cases.values() for rounds in rows})
    lines = []
    for name, rows in cases.items():
        last = rows[max(rows)]
        cells = [f"{mean(rows[n], 'accuracy'):.3f}" if n in rows else "" for n in heard]
        counted = _some([row["counts"] for row in last if "counts" in row], "accuracy")
        best = [_some(last, "ceiling_of_trees"), _some(last, "ceiling")]
        lines.append(
            (name, *cells, *best, counted, _some(last, "stranger"), _some(last, "majority"))
        )
    free = ["best of these trees", "best possible", "counts of leaves", "stranger", "majority"]
    return table(["", *(f"{n} rounds" for n in heard), *free], lines)


def certain_table() -> str:
    """How many records are called certain without any auxiliary record, and how many wrongly."""
    cases = by_case()
    heard = sorted({rounds for rows in cases.values() for rounds in rows})
    lines = []
    for name, rows in cases.items():
        cells = []
        for n in heard:
            if n not in rows:
                cells.append("")
                continue
            people = sum(row["records"] for row in rows[n])
            sure = sum(row["certain_without_auxiliary"] for row in rows[n])
            wrong = sum(row["certain_wrong_without_auxiliary"] for row in rows[n])
            cells.append(f"{100 * sure / people:.0f}%, {wrong} wrong")
        slowest = max(row["seconds"] for each in rows.values() for row in each)
        lines.append((name, *cells, f"{slowest:.1f}"))
    heads = ["", *(f"{n} rounds" for n in heard), "slowest, CPU s"]
    every = [row for rows in cases.values() for each in rows.values() for row in each]
    told = [row for row in every if "proven_wrong" in row]
    wrongly = sum(row["proven_wrong"] for row in told)
    words = "Not run." if not every else (
        f"With a stranger's prior, over all {len(every)} rows of the file: "
        f"{sum(r['certain'] for r in every):,} certain, "
        f"{sum(r['certain_wrong'] for r in every):,} of them wrong; mean calibration error "
        f"{mean(every, 'calibration_error'):.3f}. Without it, {sum(r['proven'] for r in told):,} "
        f"proven by single leaves in {len(told)} rows, {wrongly:,} of them wrongly."
    )  # fmt: skip
    return "\n".join([table(heads, lines), "", words])
