"""Leakage against utility: which settings are not beaten by another in both?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

from overheard.errors import FixConfig
from overheard.questions.question import all_metrics
from overheard.report.advice import Point, frontiers
from overheard.report.svg import picture
from overheard.sweep.run import DETAILS, POOLED, TABLE, Row

FIXED = frozenset(
    "cell defence strength seed utility utility_is error records flagged".split()
).union(POOLED, DETAILS)
"""The table's own columns; the others are what the grid varies."""


def frontier(rows: Iterable[Row]) -> list[Point]:
    """The points of each secret, worst attack first chosen on the mean over seeds; ``best``: no
    other setting leaks less and is worth more."""
    groups: dict[tuple[Any, ...], dict[str, list[Row]]] = {}
    rows = list(rows)
    for row in rows:
        metric = all_metrics().get(str(row.get("metric")))
        if row.get("error") or metric is None or not metric.hits:
            continue
        if row.get("lift") is None or row.get("utility") is None:
            continue
        varied = tuple((k, v) for k, v in row.items() if k not in FIXED)
        about = (row["defence"], row["strength"], varied, str(row.get("attribute") or ""))
        groups.setdefault(about, {}).setdefault(str(row.get("attack")), []).append(row)
    if not groups:
        failed = next((f"; a cell failed with {r['error']}" for r in rows if r.get("error")), "")
        raise FixConfig(
            "no finished cell tells a lift over a guess at an attribute or at membership, of which "
            f"the frontier is drawn; {TABLE} holds what there is{failed}"
        )
    points = [_point(about, attacks) for about, attacks in groups.items()]
    return [_marked(p, points) for p in points]


def _point(about: tuple[Any, ...], attacks: Mapping[str, list[Row]]) -> Point:
    defence, strength, varied, attribute = about
    worst = max(attacks, key=lambda a: fmean(r["lift"] for r in attacks[a]))
    mine = attacks[worst]
    lifts, worths = [max(r["lift"], 0.0) for r in mine], [r["utility"] for r in mine]
    bits = [b for r in mine if isinstance(b := r.get("bits_gained"), int | float)]
    leakage, worth = ((fmean(x), stdev(x) if len(x) > 1 else 0.0) for x in (lifts, worths))
    known = fmean(bits) if bits else None
    name, seeds = str(mine[0].get("utility_is") or ""), len({r["seed"] for r in mine})
    flagged = sum(r.get("flagged") or 0 for r in mine)
    about = (defence, strength, varied, worst, attribute)
    return Point(*about, *leakage, known, *worth, name, seeds, flagged)


def _marked(point: Point, points: list[Point]) -> Point:
    if point.doubtful:
        return point
    rivals = [p for p in points if p.attribute == point.attribute and p != point and not p.doubtful]
    beaten = any(
        p.leakage <= point.leakage
        and p.utility >= point.utility
        and (p.leakage < point.leakage or p.utility > point.utility)
        for p in rivals
    )
    return replace(point, best=not beaten)


def draw(points: Sequence[Point], title: str = "") -> str:
    """The charts of a report as an SVG of their own."""
    charts = []
    for one in frontiers(points):
        worth = f"{one.utility_is} of the global model against leakage (lift over the best guess)"
        charts.append((f"{one.secret or 'membership'}: {worth}", one.figure))
    return picture(title, charts, list(dict.fromkeys(p.defence for p in points)))
