"""Leakage against utility: which settings are not beaten by another in both?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from overheard.errors import FixConfig, FixData
from overheard.questions.question import all_metrics, grouped
from overheard.report.advice import Measured
from overheard.report.svg import Mark, picture, scatter
from overheard.sweep.run import DETAILS, POOLED, TABLE, Result, read_rows


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


def frontier(rows: Iterable[Result]) -> list[Point]:
    """The points of each secret, worst attack first chosen on the mean over seeds; ``best``: no
    other setting leaks less and is worth more."""
    groups: dict[tuple[Any, ...], dict[str, list[Result]]] = {}
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
    points = [_point(about, attacks) for about, attacks in groups.items()]
    return [_marked(p, points) for p in points]


def _point(about: tuple[Any, ...], attacks: Mapping[str, list[Result]]) -> Point:
    defence, strength, varied, attribute = about
    try:
        worst = max(attacks, key=lambda a: fmean(r["lift"] for r in attacks[a]))
        mine = attacks[worst]
        lifts, worths = [max(r["lift"], 0.0) for r in mine], [r["utility"] for r in mine]
        bits = [r["bits_gained"] for r in mine if r.get("bits_gained") is not None]
        leakage, worth = ((fmean(x), stdev(x) if len(x) > 1 else 0.0) for x in (lifts, worths))
        known = fmean(bits) if bits else None
    except OverflowError as error:
        raise FixData(
            f"{defence} {strength:g}: numbers too large for a mean over seeds; the training "
            "diverged there: leave this setting out"
        ) from error
    name, seeds = str(mine[0].get("utility_is") or ""), len({r["seed"] for r in mine})
    flagged = sum(r.get("flagged") or 0 for r in mine)
    about = (defence, strength, varied, worst, attribute)
    return Point(*about, *leakage, known, *worth, name, seeds, flagged)


def _instead(rows: list[Result]) -> str:
    """Why there is nothing to draw, and what to do."""
    others = sorted({f"{r.get('question')} ({r['metric']})" for r in rows if r.get("metric")})
    if others:
        return (
            f"the findings are about {', '.join(others)}, which {TABLE} holds; the "
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
        marks = []
        for p in mine:
            low, high = p.utility - p.utility_spread, p.utility + p.utility_spread
            number = defences.index(p.defence)
            marks.append(Mark(p.leakage, p.utility, low, high, p.name, number))
        worth = f"{mine[0].utility_is} of the global model"
        best = sorted((p.leakage, p.utility) for p in mine if p.best)
        caption = f"{secret or 'membership'}: {worth} against leakage (lift over the best guess)"
        charts.append((caption, scatter(marks, worth, best)))
    return picture(title, charts, defences)


def measured_by(folder: Path) -> list[Measured]:
    """A sweep's settings as a report shows them."""
    names = [field.name for field in fields(Measured)]
    return [Measured(**{n: getattr(p, n) for n in names}) for p in frontier(read_rows(folder))]
