"""The tables of docs/statistics.md, made from benchmarks/released_tables.json and newton.json."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pages import ROOT, table

ATTRIBUTES = ("female", "black", "physlm")


def results(name: str) -> dict[str, dict[str, Any]]:
    """The rows of a file of benchmarks/; none where it was not run."""
    path = ROOT / "benchmarks" / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def released_table() -> str:
    """Every release: what is guessed right, and how many people are named for certain."""
    rows = results("released_tables")
    names = list(dict.fromkeys(key.rpartition("; ")[0] for key in rows))
    lines = []
    for name in names:
        cells = []
        for attribute in ATTRIBUTES:
            found = rows.get(f"{name}; {attribute}")
            cells.append(
                "not run"
                if found is None
                else f"{found['accuracy']:.3f}, certain {found['certified']:,}"
            )
        lines.append((name, *cells))
    free = [rows.get(f"{names[0]}; {a}", {}) for a in ATTRIBUTES] if names else []
    for words, key in (("the commonest value", "majority"), ("a stranger", "stranger")):
        lines.append((words, *(f"{one[key]:.3f}" if one else "not run" for one in free)))
    heads = ("released, once", *(f"`{a}`" for a in ATTRIBUTES))
    return "\n".join([table(heads, lines), "", *_kept(rows)])


def _kept(rows: dict[str, dict[str, Any]]) -> Iterable[str]:
    """What held in every row, in words."""
    if not rows:
        return
    named = sum(row["certain"] for row in rows.values())
    right = sum(row["certain_right"] for row in rows.values())
    worst = max(row["calibration_error"] for row in rows.values())
    people = max(row["records"] for row in rows.values())
    yield (
        f"Of {people:,} people at six sites; {named:,} times in all a person was called certain, "
        f"and {right:,} times rightly. The largest calibration error of a row is {worst:.3f}."
    )


def newton_table() -> str:
    """Newton steps: after how many messages what is known, site by site."""
    rows = results("newton")
    heard = sorted({one["messages"] for row in rows.values() for one in row["curve"]})
    lines = []
    for key, row in rows.items():
        site, attribute = key.split("; ")[:2]
        curve = {one["messages"]: one for one in row["curve"]}
        cells = [f"{curve[n]['accuracy']:.3f} ({curve[n]['rank']})" for n in heard if n in curve]
        best = "" if row["best_possible"] == 1 else f" of {row['best_possible']:.4f}"
        people = f"{site}, {row['records']:,} people"
        after = row["reached_after"]
        lines.append((people, f"`{attribute}`", *cells, f"{after}{best}", f"{row['stranger']:.3f}"))
    heads = ["site", "attribute", *(f"{n} heard" for n in heard), "all after", "stranger"]
    own = [row for row in rows.values() if "own_excess" in row]
    words = "" if not own else (
        f"The site's own model, from its last message alone (`structured`), loses "
        f"{100 * max(row['own_excess'] for row in own):.2f}% more on the site's people than the "
        f"one that the site would have made by itself, at most, and agrees with it on "
        f"{100 * min(row['agreement'] for row in own):.0f}% of the other sites' people or more; "
        f"the global model loses {100 * min(row['global_excess'] for row in own):.1f}% to "
        f"{100 * max(row['global_excess'] for row in own):.1f}% more."
    )  # fmt: skip
    return "\n".join([table(heads, lines), *(["", words] if words else [])])


def defended_table(program: str) -> str:
    """What a sweep over a program's defences found, setting by setting."""
    rows = results("program_defences").get(program, {}).get("rows", [])
    lines = [
        (
            row["defence"],
            f"{row['leakage']:.3f} ± {row['leakage_spread']:.3f}",
            "" if row["bits"] is None else f"{row['bits']:.2f}",
            f"{row['utility']:.3f}",
            f"{row['epsilon']:.3g}" if "epsilon" in row else "",
            "yes" if row["best"] else "",
        )
        for row in rows
    ]
    worth = rows[0]["utility_is"] if rows else "worth"
    heads = ["", "lift", "bits a record", worth, "epsilon", "not dominated"]
    if not any("epsilon" in row for row in rows):
        heads.remove("epsilon")
        lines = [(*line[:4], line[5]) for line in lines]
    return table(heads, lines)
