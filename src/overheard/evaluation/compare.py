"""Two audits side by side: did leakage rise, and by more than chance?

Per secret the strongest attack of each audit, all clients together. The same clients are paired,
and their records too where both audits kept which of them were guessed right (`hits_json`);
where neither can be, the interval is made from the two intervals (Newcombe's hybrid score method).
A difference counts when its interval excludes zero; the intervals of all rows hold together. For
shares the lift over guessing is compared, so that a change of the guesses is no change of leakage.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import hypot
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError
from scipy.special import ndtri

from overheard.errors import FixRecording
from overheard.evaluation.decision import best_of
from overheard.evaluation.intervals import Changed, by_interval, by_record, by_share, mean_change
from overheard.evaluation.notes import few
from overheard.evaluation.record import Audit, Failed, Finding, Part, Pooled, Skipped, first_wrong
from overheard.evaluation.scoring import Scored
from overheard.foreign.files import read_json
from overheard.foreign.limits import check
from overheard.questions.question import Topic

TOGETHER = 0.98
"""Confidence that the intervals of all rows of a comparison hold together, so that about one of
100 comparisons shows a rise that is none (``experiments/robustness/compare.py`` counts them)."""
Change = Literal["rose", "fell", "no change shown"]
By = Literal["records", "clients", "nothing"]


@dataclass(frozen=True)
class Compared:
    """A secret in both audits. ``difference`` is how much more leaks in the second, in the units
    of the metric (shares: of the lift), with its interval; ``paired``: what was paired."""

    secret: str
    metric: str
    client: str | None
    before: Finding | Pooled
    after: Finding | Pooled
    difference: float
    low: float
    high: float
    paired: By = "nothing"

    @property
    def change(self) -> Change:
        if self.low > 0:
            return "rose"
        return "fell" if self.high < 0 else "no change shown"


@dataclass(frozen=True)
class Comparison:
    """``differs``: why the two cannot be compared (empty if they can); ``lost``: what learned most
    before and did not run now, so that no rise could show; ``changed``: settings that are not the
    same, which is what one compares for; ``cautions``: what to keep in mind; ``unpaired``: what
    could not be paired, and why."""

    rows: tuple[Compared, ...]
    differs: tuple[str, ...]
    changed: tuple[tuple[str, str, str], ...]
    cautions: tuple[str, ...]
    lost: tuple[str, ...] = ()
    unpaired: tuple[str, ...] = ()

    @property
    def rose(self) -> bool:
        return any(row.change == "rose" for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        side = {"attack", "value", "low", "high", "lift", "n"}
        rows = [
            vars(row)
            | {name: getattr(row, name).model_dump(include=side) for name in ("before", "after")}
            | {"change": row.change}
            for row in self.rows
        ]
        return vars(self) | {"rows": rows, "rose": self.rose}


def compare(
    before: Audit, after: Audit, clients: bool = False, hits: tuple[Hits, Hits] | None = None
) -> Comparison:
    """What leaks more or less in ``after``; with ``clients`` for each client alone as well.

    ``hits``: which records each of them guessed right, where that was kept.
    """
    both = _Both(before, after, hits or ({}, {}))
    lost = _lost(both, best_of(row for row in before.pooled if row.reliable).values())
    first, second = (
        best_of(f for f in audit.everything if f.reliable and (clients or f.client is None))
        for audit in (before, after)
    )
    pairs = [(first[key], second[key]) for key in first if key in second]
    level = 1 - (1 - TOGETHER) / max(len(pairs), 1)
    rows = tuple(both.compared(*pair, level) for pair in pairs)
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
        differs.append(f"audited clients: {few(sorted(a), 3)} and {few(sorted(b), 3)}")
    for which, audit in (("before", before), ("after", after)):
        if audit.unfit:
            differs.append(
                f"{which}, {few(sorted(audit.unfit), 3)} did not train as declared, so that what "
                "was found about them is no measurement"
            )
    if not rows and not lost:
        differs.append("no secret was measured in both")
    topics = (found.topic for found, _ in pairs)
    cautions = _cautions(before, after)
    unpaired = tuple(both.unpaired(zip(topics, rows, strict=True)))
    return Comparison(rows, tuple(differs), _changed(before, after), cautions, lost, unpaired)


def _findings(audit: Audit, best: Finding | Pooled) -> dict[str, Finding]:
    """What the attack of a finding found about its secret, by client."""
    same = (best.attack, best.topic)
    return {f.client: f for f in audit.findings if (f.attack, f.topic) == same}


def _lost(both: _Both, first: Iterable[Pooled]) -> tuple[str, ...]:
    """What learned most about a secret before and gave no answer now that can be relied on."""
    told = []
    for strongest in first:
        was, now = (_findings(x, strongest) for x in (both.before, both.after))
        gone = [c for c, f in was.items() if not f.flag and (c not in now or now[c].flag)]
        if not gone:
            continue
        flags = [now[c].flag for c in gone if c in now]
        unanswered: list[Skipped | Failed] = [*both.after.skipped, *both.after.failed]
        attack, secret = strongest.attack, strongest.attribute
        skips = [s.reason for s in unanswered if s.client in gone
                 and (s.attack, s.attribute) == (attack, secret)]  # fmt: skip
        why = "; ".join(dict.fromkeys([*skips, *flags])) or "it was not tried"
        told.append(
            f"{attack}, which learned most about {_secret(strongest)} before, gave no answer "
            f"to rely on now for {len(gone)} of {len(was)} client(s): {why}"
        )
    return tuple(told)


@dataclass(frozen=True)
class _Both:
    before: Audit
    after: Audit
    hits: tuple[Hits, Hits]

    def compared(self, before: Finding | Pooled, after: Finding | Pooled, level: float) -> Compared:
        """One row: paired as closely as the two audits allow."""
        pairs = self._pairs(before, after)
        changes = [self._change(one, other) for one, other in pairs]
        by: By = "nothing"
        if changes and all(self._same_records(one, other) for one, other in pairs):
            by = "records"
        elif len(changes) > 1:
            by = "clients"
        if by == "nothing":
            ends = compared_leaks(_leak(before), _leak(after), level)
        else:
            found = mean_change(changes, level)
            shift = _guessed([o for _, o in pairs]) - _guessed([b for b, _ in pairs])
            ends = (found[0] - shift, found[1] - shift, found[2] - shift)
        return Compared(_secret(before), before.metric, before.client, before, after, *ends, by)

    def _pairs(
        self, before: Finding | Pooled, after: Finding | Pooled
    ) -> list[tuple[Finding, Finding]]:
        """The clients of which both know something to rely on."""
        if before.topic.together:
            return []
        a, b = _findings(self.before, before), _findings(self.after, after)
        names = [c for c in a if c in b and before.client in (None, c)]
        bad = self.before.unfit | self.after.unfit
        if len(bad) < len(names):
            names = [c for c in names if c not in bad]
        return [(a[c], b[c]) for c in names if not a[c].flag and not b[c].flag]

    def _change(self, before: Finding, after: Finding) -> Changed:
        if not before.measure.hits:
            return by_interval(_leak(before), _leak(after), after.n)
        if self._same_records(before, after):
            one, other = (
                h[about(f)].right for h, f in zip(self.hits, (before, after), strict=True)
            )
            return by_record(one, other)
        return by_share(before.value, after.value, before.n, after.n)

    def _same_records(self, before: Finding, after: Finding) -> bool:
        one, other = (h.get(about(f)) for h, f in zip(self.hits, (before, after), strict=True))
        return one is not None and other is not None and one.records == other.records

    def unpaired(self, rows: Iterable[tuple[Topic, Compared]]) -> list[str]:
        """What is to be said where records, or even clients, were not paired."""
        told, rows = [], list(rows)
        asked = [t for t, row in rows if t.measure.hits and row.paired != "records"]
        if asked:
            missing = [w for w, h in zip(("before", "after"), self.hits, strict=True) if not h]
            why = f"no hits.json ({' and '.join(missing)})" if missing else "not the same records"
            told.append(
                f"records could not be paired: {why}; audits made with --keep-hits can be, and "
                "show smaller changes of single clients"
            )
        alone = [row for t, row in rows if row.paired == "nothing" and not t.together]
        if alone:
            named = few(sorted({f"{r.secret} of {r.client or 'all'}" for r in alone}), 3)
            told.append(f"not paired at all, so that only a large change would show: {named}")
        return told


def _guessed(found: Sequence[Finding]) -> float:
    """What guessing gets on these clients together; 0 where more is no better."""
    if not found or not found[0].measure.share:
        return 0.0
    sizes = [f.n for f in found]
    guesses = [float(np.average([f.majority or 0.0 for f in found], weights=sizes))]
    imputed = [f.imputation for f in found if f.imputation is not None]
    if len(imputed) == len(found):
        guesses.append(float(np.average(imputed, weights=sizes)))
    return max(guesses)


def _secret(found: Finding | Pooled) -> str:
    return found.attribute or found.question.replace("_", " ")


def _leak(found: Finding | Pooled) -> tuple[float, float, float]:
    """Leakage with its interval, larger being worse: the lift, or minus the loss or error."""
    metric = found.measure
    if metric.share:
        shift = 0.0 if found.lift is None else found.lift - found.value
        return found.value + shift, found.low + shift, found.high + shift
    value, low, high = (-max(end, metric.same) for end in (found.value, found.high, found.low))
    return value, low, high


def compared_leaks(
    before: tuple[float, float, float], after: tuple[float, float, float], level: float = 0.95
) -> tuple[float, float, float]:
    """What leaks more in ``after``, with its interval, from (value, low, high) of each, which are
    95% intervals; another ``level`` widens them in proportion to normal quantiles."""
    (a, a_low, a_high), (b, b_low, b_high) = before, after
    wide = float(ndtri((1 + level) / 2) / ndtri(0.975))
    below, above = hypot(b - b_low, a_high - a), hypot(b_high - b, a - a_low)
    return b - a, b - a - wide * below, b - a + wide * above


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


# -------------------------------------------------------------- which records were guessed right

HITS = "hits.json"
"""Beside an audit, where it was asked for: one bit a record, attack and client.

``audit.json`` holds nothing about single records. Whoever has the recording can run the attacks
again, and with these bits knows the secrets; so the file is for its owner alone, and belongs where
``truth/`` is.
"""


class About(NamedTuple):
    """Whose guesses, about what, of which client."""

    attack: str
    question: str
    attribute: str | None
    client: str


class Guessed(NamedTuple):
    """``records``: a digest of the records asked about, in their order; ``right`` (n,)."""

    records: str
    right: NDArray[np.bool_]


Hits = Mapping[About, Guessed]


class _Line(Part):
    attack: str
    question: str
    attribute: str | None
    client: str
    records: str
    n: int = Field(ge=1)
    right: str


class _File(Part):
    hits: Literal[1] = 1
    lines: tuple[_Line, ...]


def about(found: Finding | _Line) -> About:
    return About(found.attack, found.question, found.attribute, found.client)


def hits_json(outcomes: Iterable[Scored]) -> str:
    """What ``hits.json`` holds of the shares of records guessed right."""
    lines = [
        _Line(
            **about(one.finding)._asdict(),
            records=one.records,
            n=len(one.units),
            right=base64.b64encode(np.packbits(one.units > 0.5).tobytes()).decode(),
        )
        for one in outcomes
        if one.finding.measure.hits and one.records
    ]
    return _File(lines=tuple(lines)).to_json()


def read_hits(file: Path, audit: Audit) -> Hits:
    """The hits beside an audit; none if there is no such file. What contradicts the audit, or is
    not what `hits_json` writes, is refused."""
    if not file.exists() and not file.is_symlink():
        return {}
    try:
        content = _File.model_validate(read_json(file))
    except ValidationError as error:
        raise FixRecording(f"{file}: holds no hits: {first_wrong(error)}") from error
    check("rows", sum(line.n for line in content.lines), file)
    known = {about(found): found for found in audit.findings}
    found: dict[About, Guessed] = {}
    for number, line in enumerate(content.lines):
        finding, right = known.get(about(line)), _unpacked(line, f"{file}: line {number}")
        if finding is None or finding.n != line.n or abs(finding.value - right.mean()) > 1e-9:
            raise FixRecording(
                f"{file}: line {number} is not what the audit beside it found; put back the file "
                "that was written with it, or remove this one"
            )
        found[about(line)] = Guessed(line.records, right)
    return found


def _unpacked(line: _Line, where: str) -> NDArray[np.bool_]:
    try:
        raw = base64.b64decode(line.right, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FixRecording(f"{where}: holds no hits: not base64") from error
    if len(raw) != -(-line.n // 8):
        raise FixRecording(f"{where}: holds no hits: {len(raw)} bytes for {line.n} records")
    return np.unpackbits(np.frombuffer(raw, np.uint8), count=line.n).astype(np.bool_)
