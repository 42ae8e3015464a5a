"""Leakage against utility: which settings are not beaten by another in both?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from overheard.errors import FixConfig, FixData
from overheard.questions.question import all_metrics, grouped
from overheard.report.svg import Mark, picture, scatter
from overheard.sweep.cell import DETAILS, POOLED
from overheard.sweep.table import Row


@dataclass(frozen=True)
class Point:
    """One setting: the worst attack's leakage and the model's utility, means over seeds.

    ``leakage`` is the lift over the best guess of somebody who does not listen (never below 0),
    ``bits`` what the adversary learned per record. ``spread`` are standard deviations over seeds.
    """

    defence: str
    strength: float
    varied: tuple[tuple[str, Any], ...]
    attack: str
    attribute: str
    leakage: float
    leakage_spread: float
    bits: float | None
    utility: float
    utility_spread: float
    utility_is: str
    seeds: int
    flagged: int
    best: bool = False

    @property
    def doubtful(self) -> bool:
        """The listener was sure and wrong: its decoder failed, which proves no privacy."""
        return self.bits is not None and self.bits < -0.05

    @property
    def name(self) -> str:
        strength = f" {self.strength:g}" if self.strength else ""
        return ", ".join([f"{self.defence}{strength}", *(f"{k}={v}" for k, v in self.varied)])


FIXED = frozenset(
    "cell defence strength seed utility utility_is error version records flagged".split()
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
        raise FixConfig(f"no finished cell tells a lift over a guess: {_instead(rows)}")
    points = []
    for (defence, strength, varied, attribute), attacks in groups.items():
        try:
            points.append(_point(defence, strength, varied, attribute, attacks))
        except OverflowError as error:
            raise FixData(
                f"{defence} {strength:g}: numbers too large for a mean over seeds; the training "
                "diverged there: leave this setting out"
            ) from error
    return [_marked(p, points) for p in points]


def _point(
    defence: str,
    strength: float,
    varied: tuple[tuple[str, Any], ...],
    attribute: str,
    attacks: Mapping[str, list[Row]],
) -> Point:
    worst = max(attacks, key=lambda a: fmean(r["lift"] for r in attacks[a]))
    mine = attacks[worst]
    lifts, worths = [max(r["lift"], 0.0) for r in mine], [r["utility"] for r in mine]
    bits = [r["bits_gained"] for r in mine if r.get("bits_gained") is not None]
    return Point(
        defence,
        strength,
        varied,
        worst,
        attribute,
        fmean(lifts),
        stdev(lifts) if len(lifts) > 1 else 0.0,
        fmean(bits) if bits else None,
        fmean(worths),
        stdev(worths) if len(worths) > 1 else 0.0,
        str(mine[0].get("utility_is") or ""),
        len({r["seed"] for r in mine}),
        sum(r.get("flagged") or 0 for r in mine),
    )


def _instead(rows: list[Row]) -> str:
    """Why there is nothing to draw, and what to do."""
    others = sorted({f"{r.get('question')} ({r['metric']})" for r in rows if r.get("metric")})
    if others:
        return (
            f"the findings are about {', '.join(others)}, which results.parquet holds; the "
            "frontier is drawn of an attribute or of membership"
        )
    failed = [r["error"] for r in rows if r.get("error")]
    if failed:
        return f"{len(failed)} cell(s) failed, the first with {failed[0]}"
    return "no attack ran in any cell; name attacks and targets that fit the threat model"


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
    """An SVG, a chart per secret: defences differ by shape and colour, the frontier is the line."""
    defences = list(dict.fromkeys(p.defence for p in points))
    charts = []
    for secret, mine in grouped(points, lambda p: p.attribute).items():
        marks = [
            Mark(
                p.leakage,
                p.utility,
                p.utility - p.utility_spread,
                p.utility + p.utility_spread,
                p.name,
                defences.index(p.defence),
            )
            for p in mine
        ]
        worth = f"{mine[0].utility_is} of the global model"
        best = sorted((p.leakage, p.utility) for p in mine if p.best)
        caption = f"{secret or 'membership'}: {worth} against leakage (lift over the best guess)"
        charts.append((caption, scatter(marks, worth, best)))
    return picture(title, charts, defences)
