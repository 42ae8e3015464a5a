"""Leakage against utility: which settings are not beaten by another in both?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

from overheard.errors import FixConfig
from overheard.evaluation.decision import COMPARISON, EXPOSED
from overheard.evaluation.record import Audit
from overheard.questions.question import all_metrics, grouped
from overheard.report.advice import Mean, Point
from overheard.sweep.run import OF_CELL, POOLED, TABLE, Row, read_rows

FIXED = frozenset(
    "cell defence strength seed records flagged audited people_known bits level".split()
).union(POOLED, OF_CELL)
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
    used = [row for of in groups.values() for mine in of.values() for row in mine]
    for key, what in (("threat", "threat models"), ("audited", "numbers of clients")):
        kinds = sorted({str(row.get(key)) for row in used})
        if len(kinds) > 1:
            raise FixConfig(
                f"its settings were audited under different {what} ({', '.join(kinds)}), which no "
                "figure compares; give each a sweep of its own"
            )
    points = [_point(about, attacks) for about, attacks in groups.items()]
    chosen = _chosen(points)
    return [_marked(replace(p, chosen=p.setting == chosen), points) for p in points]


def _chosen(points: list[Point]) -> tuple[Any, ...] | None:
    """The setting to recommend, for all secrets at once: of those that the usual policy allows and
    that are worth as much as the best of them, as far as seeds tell, the one with the smallest
    epsilon. None where no setting is allowed, or where nothing needs to change."""
    by_setting = grouped(points, lambda p: p.setting)
    allowed = [mine for mine in by_setting.values() if all(p.allowed for p in mine)]
    if not allowed or any(mine[0].plain for mine in allowed):
        return None
    best = max((mine[0].utility for mine in allowed), key=lambda u: u.value)
    least = best.value if best.low is None else best.low
    near = [mine[0] for mine in allowed if (mine[0].utility.high or mine[0].utility.value) >= least]
    return min(near, key=lambda p: (p.epsilon or inf, p.leakage.value)).setting


def _point(about: tuple[Any, ...], attacks: Mapping[str, list[Row]]) -> Point:
    defence, strength, varied, attribute = about
    real = {a: r for a, r in attacks.items() if {x.get("level") for x in r} != {COMPARISON}}
    attacks = real or attacks
    worst = max(attacks, key=lambda a: fmean(r["lift"] for r in attacks[a]))
    mine = attacks[worst]
    lifts, worths = [max(r["lift"], 0.0) for r in mine], [r["utility"] for r in mine]
    bits = [b for r in mine if isinstance(b := r.get("bits"), int | float)]
    people = [n for r in mine if (n := r.get("people_known")) is not None]
    epsilons = [e for r in mine if (e := r.get("epsilon")) is not None]
    majority = [m for r in mine if (m := r.get("utility_majority")) is not None]
    return Point(
        *(defence, strength, varied, worst, attribute),
        leakage=Mean.of(lifts),
        people=fmean(people) if people else None,
        bits=fmean(bits) if bits else None,
        utility=Mean.of(worths),
        utility_is=str(mine[0].get("utility_is") or ""),
        seeds=len({r["seed"] for r in mine}),
        flagged=sum(r.get("flagged") or 0 for r in mine),
        epsilon=max(epsilons) if len(epsilons) == len(mine) else None,
        majority=fmean(majority) if majority else None,
        exposed=any(r.get("level") == EXPOSED for of in attacks.values() for r in of),
    )


def _marked(point: Point, points: list[Point]) -> Point:
    if point.doubtful:
        return point
    rivals = [p for p in points if p.attribute == point.attribute and p != point and not p.doubtful]
    beaten = any(
        (-p.leakage.value, p.utility.value) != (-point.leakage.value, point.utility.value)
        and p.leakage.value <= point.leakage.value
        and p.utility.value >= point.utility.value
        for p in rivals
    )
    return replace(point, best=not beaten)


def for_audit(folder: str | Path, audit: Audit) -> list[Point]:
    """The points of a sweep beside an audit, which must be of the same threat model and clients."""
    rows, mine = read_rows(folder), {str(f.client) for f in audit.findings}
    swept = {name for row in rows if (name := row.get("threat"))}
    if swept - {audit.run.threat} or {r["audited"] for r in rows if r["audited"]} - {len(mine)}:
        raise FixConfig(
            f"{folder}: was audited as {', '.join(sorted(swept))} on other clients or under "
            f"another threat model than this audit ({audit.run.threat}, {len(mine)} clients); "
            "sweep the same ones"
        )
    return frontier(rows)
