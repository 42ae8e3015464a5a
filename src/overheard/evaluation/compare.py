"""Two audits side by side: did leakage rise, and by more than chance?

Per secret the strongest attack of each audit, all clients together. A difference counts when its
95% interval, made from the two intervals (Newcombe's hybrid score method), excludes zero. For
shares the lift over guessing is compared, so that a change of the guesses is no change of leakage.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from math import hypot
from typing import Any, Literal

from overheard.evaluation.record import Audit, Finding, Pooled

SAME_MODEL = 1e-4
"""Copies of a client's model that lose at most this much more (0.01%) are equally its own."""
SHARES = frozenset({"accuracy", "f1"})
Change = Literal["rose", "fell", "no change shown"]


@dataclass(frozen=True)
class Side:
    """One audit's strongest attack on a secret."""

    attack: str
    value: float
    low: float
    high: float
    lift: float | None
    n: int


@dataclass(frozen=True)
class Compared:
    """A secret in both audits. ``difference`` is how much more leaks in the second, in the units
    of the metric (shares: of the lift), with its 95% interval."""

    secret: str
    metric: str
    client: str | None
    before: Side
    after: Side
    difference: float
    low: float
    high: float

    @property
    def change(self) -> Change:
        if self.low > 0:
            return "rose"
        return "fell" if self.high < 0 else "no change shown"


@dataclass(frozen=True)
class Comparison:
    """``differs``: why the two cannot be compared (empty if they can); ``changed``: settings that
    are not the same, which is what one compares for; ``cautions``: what to keep in mind."""

    rows: tuple[Compared, ...]
    differs: tuple[str, ...]
    changed: tuple[tuple[str, str, str], ...]
    cautions: tuple[str, ...]

    @property
    def rose(self) -> bool:
        return any(row.change == "rose" for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        rows = [asdict(row) | {"change": row.change} for row in self.rows]
        return asdict(self) | {"rows": rows, "rose": self.rose}


def compare(before: Audit, after: Audit, clients: bool = False) -> Comparison:
    """What leaks more or less in ``after``; with ``clients`` for each client alone as well."""
    first, second = _strongest(before, before.pooled), _strongest(after, after.pooled)
    rows = [_compared(key, first[key], second[key]) for key in first if key in second]
    if clients:
        first, second = _strongest(before, before.findings), _strongest(after, after.findings)
        rows += [_compared(key, first[key], second[key]) for key in first if key in second]
    differs = []
    for name in ("data", "threat"):
        a, b = getattr(before.run, name), getattr(after.run, name)
        if a != b:
            differs.append(f"{name}: {a!r} and {b!r}")
    if set(before.run.clients) != set(after.run.clients):
        differs.append(
            f"clients: {len(before.run.clients)} and {len(after.run.clients)}, not the same names"
        )
    a, b = ({f.client for f in x.findings} for x in (before, after))
    if a != b and not differs:
        differs.append(f"audited clients: {_few(a)} and {_few(b)}")
    if not rows:
        differs.append("no secret was measured in both")
    return Comparison(
        tuple(rows), tuple(differs), _changed(before, after), _cautions(before, after)
    )


def _few(names: set[str]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:3]) + (f" and {len(listed) - 3} more" if len(listed) > 3 else "")


_Key = tuple[str, str | None, str, str | None]


def _strongest(audit: Audit, found: Iterable[Finding | Pooled]) -> dict[_Key, Finding | Pooled]:
    free = {info.name for info in audit.attacks if info.paper in ("", "baseline")}
    best: dict[_Key, Finding | Pooled] = {}
    for f in found:
        if f.attack in free:
            continue
        client = f.client if isinstance(f, Finding) else None
        key = (f.question, f.attribute, f.metric, client)
        if key not in best or _leak(f)[0] > _leak(best[key])[0]:
            best[key] = f
    return best


def _leak(found: Finding | Pooled) -> tuple[float, float, float]:
    """Leakage with its interval, larger being worse: the lift, or minus the loss or error."""
    if found.metric in SHARES:
        shift = 0.0 if found.lift is None else found.lift - found.value
        return found.value + shift, found.low + shift, found.high + shift
    ends = (found.value, found.high, found.low)
    if found.metric == "excess_loss":
        ends = tuple(max(end, SAME_MODEL) for end in ends)  # type: ignore[assignment]
    return -ends[0], -ends[1], -ends[2]


def _compared(key: _Key, before: Finding | Pooled, after: Finding | Pooled) -> Compared:
    question, attribute, metric, client = key
    difference, low, high = compared_leaks(_leak(before), _leak(after))
    return Compared(
        secret=attribute or question.replace("_", " "),
        metric=metric,
        client=client,
        before=_side(before),
        after=_side(after),
        difference=difference,
        low=low,
        high=high,
    )


def compared_leaks(
    before: tuple[float, float, float], after: tuple[float, float, float]
) -> tuple[float, float, float]:
    """What leaks more in ``after``, with its interval, from (value, low, high) of each."""
    (a, a_low, a_high), (b, b_low, b_high) = before, after
    return b - a, b - a - hypot(b - b_low, a_high - a), b - a + hypot(b_high - b, a - a_low)


def _side(found: Finding | Pooled) -> Side:
    return Side(found.attack, found.value, found.low, found.high, found.lift, found.n)


def _changed(before: Audit, after: Audit) -> tuple[tuple[str, str, str], ...]:
    a, b = _settings(before), _settings(after)
    names = dict.fromkeys([*a, *b])
    return tuple((k, a.get(k, "-"), b.get(k, "-")) for k in names if a.get(k) != b.get(k))


def _settings(audit: Audit) -> dict[str, str]:
    flat = {"rounds": str(audit.run.rounds), "knows": ", ".join(audit.run.knows)}
    stack = [("", audit.run.recipe)]
    while stack:
        at, part = stack.pop()
        for name, value in part.items():
            if isinstance(value, dict):
                stack.append((f"{at}{name}.", value))
            elif not isinstance(value, list) or len(str(value)) < 60:
                flat[f"{at}{name}"] = str(value)
    return flat


def _cautions(before: Audit, after: Audit) -> tuple[str, ...]:
    told = []
    a, b = ({f.attack for f in x.findings} for x in (before, after))
    if a != b:
        only = " and ".join(
            f"only {which}: {', '.join(sorted(names))}"
            for which, names in (("before", a - b), ("after", b - a))
            if names
        )
        told.append(
            f"not the same attacks gave results ({only}): less may have been learned because less "
            "was tried, or because an attack no longer applies"
        )
    for which, audit in (("before", before), ("after", after)):
        if audit.run.damage:
            told.append(
                f"{which}: {len(audit.run.damage)} part(s) of a damaged recording were left out, "
                "so that less may have been learned than the whole would tell"
            )
    versions = {x.run.software.get("overheard") for x in (before, after)}
    if len(versions) > 1:
        told.append(f"made by different versions: {', '.join(sorted(map(str, versions)))}")
    return tuple(told)
