"""Two audits side by side: did leakage rise, and by more than chance?

Per secret the strongest attack of each audit, all clients together. The same clients are paired.
A difference counts when its interval excludes zero; the intervals of all rows hold together. For
shares the lift over guessing is compared, so that a change of the guesses is no change of leakage.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, computed_field

from overheard.evaluation.decision import best_of, mean_change
from overheard.evaluation.record import Audit, Finding, few, leaves

TOGETHER = 0.98
"""Confidence that the intervals of all rows of a comparison hold together, so that about one of
100 comparisons shows a rise that is none (``experiments/robustness/compare.py`` counts them)."""


class Compared(BaseModel, frozen=True):
    """A secret in both audits. ``difference`` is how much more leaks in the second, in the units
    of the metric (shares: of the lift), with its interval."""

    secret: str
    metric: str
    client: str | None
    before: Finding
    after: Finding
    difference: float
    low: float
    high: float

    @computed_field  # type: ignore[prop-decorator]
    @property
    def change(self) -> Literal["rose", "fell", "no change shown"]:
        if self.low > 0:
            return "rose"
        return "fell" if self.high < 0 else "no change shown"


class Comparison(BaseModel, frozen=True):
    """``differs``: why the two cannot be compared (empty if they can); ``lost``: what learned most
    before and did not run now, so that no rise could show; ``changed``: settings that are not the
    same, which is what one compares for, attacks that gave results among them."""

    rows: tuple[Compared, ...]
    differs: tuple[str, ...]
    changed: tuple[tuple[str, str, str], ...]
    lost: tuple[str, ...] = ()

    @computed_field  # type: ignore[prop-decorator]
    @property
    def rose(self) -> bool:
        return any(row.change == "rose" for row in self.rows)


def compare(before: Audit, after: Audit, clients: bool = False) -> Comparison:
    """What leaks more or less in ``after``; with ``clients`` for each client alone as well."""
    audits = (before, after)
    lost = _lost(*audits)
    first, second = (
        best_of(f for f in audit.everything if f.reliable and (clients or f.client is None))
        for audit in audits
    )
    pairs = [(first[key], second[key]) for key in first if key in second]
    level = 1 - (1 - TOGETHER) / max(len(pairs), 1)
    rows = tuple(_compared(audits, pair, level) for pair in pairs)
    differs = _differs(*audits)
    if not rows and not lost:
        differs += ("no secret was measured in both",)
    return Comparison(rows=rows, differs=differs, changed=_changed(*audits), lost=lost)


def _differs(before: Audit, after: Audit) -> tuple[str, ...]:
    """Why a difference of the two would mean nothing."""
    differs = []
    for name in ("data", "threat"):
        a, b = getattr(before.run, name), getattr(after.run, name)
        if a != b:
            differs.append(f"{name}: {a!r} and {b!r}")
    asked = [sorted({str(f.client) for f in x.findings}) for x in (before, after)]
    if asked[0] != asked[1]:
        differs.append(f"audited clients: {few(asked[0], 3)} and {few(asked[1], 3)}")
    for which, audit in (("before", before), ("after", after)):
        if audit.unfit:
            differs.append(
                f"{which}, {few(sorted(audit.unfit), 3)} did not train as declared, so that what "
                "was found about them is no measurement"
            )
    return tuple(differs)


def _findings(audit: Audit, best: Finding) -> dict[str | None, Finding]:
    """What the attack of a finding found about its secret, by client."""
    return {f.client: f for f in audit.findings if f.key[:2] == best.key[:2]}


def _lost(before: Audit, after: Audit) -> tuple[str, ...]:
    """What learned most about a secret before and gave no answer now that can be relied on."""
    lines = []
    for strongest in best_of(row for row in before.pooled if row.reliable).values():
        was, now = (_findings(x, strongest) for x in (before, after))
        gone = [c for c, f in was.items() if not f.flag and (c not in now or now[c].flag)]
        if not gone:
            continue
        about = (strongest.attack, strongest.attribute)
        unanswered = (s for s in (*after.skipped, *after.failed) if s.client in gone)
        skips = [s.reason for s in unanswered if (s.attack, s.attribute) == about]
        flags = [now[c].flag for c in gone if c in now]
        why = "; ".join(dict.fromkeys([*skips, *flags])) or "it was not tried"
        lines.append(
            f"{strongest.attack}, which learned most about {_secret(strongest)} before, gave no "
            f"answer to rely on now for {len(gone)} of {len(was)} client(s): {why}"
        )
    return tuple(lines)


def _compared(audits: tuple[Audit, Audit], best: tuple[Finding, Finding], level: float) -> Compared:
    """One row: its clients are paired, where both audits have them."""
    pairs = _pairs(audits, best) or [best]
    leaks = np.array([[_leak(found) for found in pair] for pair in pairs])
    sizes = np.array([after.n for _, after in pairs], dtype=np.float64)
    value, low, high = mean_change(leaks[:, 0], leaks[:, 1], sizes, level)
    made: dict[str, Any] = {"difference": value, "low": low, "high": high}
    made |= {"before": best[0], "after": best[1], "secret": _secret(best[0])}
    return Compared(**made, metric=best[0].metric, client=best[0].client)


def _pairs(
    audits: tuple[Audit, Audit], best: tuple[Finding, Finding]
) -> list[tuple[Finding, Finding]]:
    """The clients of which both know something to rely on."""
    if best[0].topic.together:
        return []
    a, b = (_findings(*side) for side in zip(audits, best, strict=True))
    names = [c for c in a if c in b and best[0].client in (None, c)]
    bad = audits[0].unfit | audits[1].unfit
    if len(bad) < len(names):
        names = [c for c in names if c not in bad]
    return [(a[c], b[c]) for c in names if not a[c].flag and not b[c].flag]


def _secret(found: Finding) -> str:
    return found.attribute or found.question.replace("_", " ")


def _leak(found: Finding) -> tuple[float, float, float]:
    """Leakage with its interval, larger being worse: the lift, or minus the loss or error."""
    metric = found.measure
    if metric.share:
        shift = 0.0 if found.lift is None else found.lift - found.value
        return found.value + shift, found.low + shift, found.high + shift
    value, low, high = (-max(end, metric.same) for end in (found.value, found.high, found.low))
    return value, low, high


def _changed(before: Audit, after: Audit) -> tuple[tuple[str, str, str], ...]:
    a, b = (
        {
            "overheard": x.run.software.get("overheard", ""),
            "attacks": ", ".join(sorted({f.attack for f in x.findings})),
            "rounds": str(x.run.rounds),
            "knows": ", ".join(x.run.knows),
            **{".".join(keys): str(v) for keys, v in leaves(x.run.recipe) if not _long(v)},
        }
        for x in (before, after)
    )
    names = dict.fromkeys([*a, *b])
    return tuple((k, a.get(k, "-"), b.get(k, "-")) for k in names if a.get(k) != b.get(k))


def _long(value: Any) -> bool:
    return value == {} or (isinstance(value, list) and len(str(value)) >= 60)
