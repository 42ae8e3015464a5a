"""Two audits side by side: did leakage rise, and by more than chance?

Per secret the strongest attack of each audit, all clients together. The same clients are paired,
and their records too where both audits kept which of them were guessed right (`hits_json`).
A difference counts when its interval excludes zero; the intervals of all rows hold together. For
shares the lift over guessing is compared, so that a change of the guesses is no change of leakage.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, TypeAdapter, ValidationError, computed_field
from pydantic.dataclasses import dataclass

from overheard.errors import FixRecording
from overheard.evaluation.decision import (
    Changed,
    best_of,
    by_interval,
    by_record,
    by_share,
    mean_change,
)
from overheard.evaluation.record import Audit, Finding, Part, few, first_wrong
from overheard.evaluation.scoring import Scored
from overheard.foreign.files import read_json
from overheard.foreign.limits import check

TOGETHER = 0.98
"""Confidence that the intervals of all rows of a comparison hold together, so that about one of
100 comparisons shows a rise that is none (``experiments/robustness/compare.py`` counts them)."""
SIDES = ("before", "after")
Paired = Literal["records", "clients", "nothing"]


@dataclass(frozen=True)
class Compared:
    """A secret in both audits. ``difference`` is how much more leaks in the second, in the units
    of the metric (shares: of the lift), with its interval; ``paired``: what was paired."""

    secret: str
    metric: str
    client: str | None
    before: Finding
    after: Finding
    difference: float
    low: float
    high: float
    paired: Paired

    @computed_field  # type: ignore[prop-decorator]
    @property
    def change(self) -> Literal["rose", "fell", "no change shown"]:
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

    @computed_field  # type: ignore[prop-decorator]
    @property
    def rose(self) -> bool:
        return any(row.change == "rose" for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """For a program: everything."""
        told: dict[str, Any] = TypeAdapter(Comparison).dump_python(self, mode="json")
        return told


def compare(
    before: Audit, after: Audit, clients: bool = False, hits: tuple[Hits, Hits] | None = None
) -> Comparison:
    """What leaks more or less in ``after``; with ``clients`` for each client alone as well.

    ``hits``: which records each of them guessed right, where that was kept.
    """
    audits, kept = (before, after), hits or ({}, {})
    lost = _lost(*audits)
    first, second = (
        best_of(f for f in audit.everything if f.reliable and (clients or f.client is None))
        for audit in audits
    )
    pairs = [(first[key], second[key]) for key in first if key in second]
    level = 1 - (1 - TOGETHER) / max(len(pairs), 1)
    rows = tuple(_compared(audits, kept, pair, level) for pair in pairs)
    differs = _differs(*audits)
    if not rows and not lost:
        differs += ("no secret was measured in both",)
    return Comparison(
        rows, differs, _changed(*audits), _cautions(*audits), lost, _unpaired(rows, kept)
    )


def _differs(before: Audit, after: Audit) -> tuple[str, ...]:
    """Why a difference of the two would mean nothing."""
    differs = []
    for name in ("data", "threat"):
        a, b = getattr(before.run, name), getattr(after.run, name)
        if a != b:
            differs.append(f"{name}: {a!r} and {b!r}")
    if set(before.run.clients) != set(after.run.clients):
        sizes = f"{len(before.run.clients)} and {len(after.run.clients)}"
        differs.append(f"clients: {sizes}, not the same names")
    asked = [sorted({str(f.client) for f in x.findings}) for x in (before, after)]
    if asked[0] != asked[1] and not differs:
        differs.append(f"audited clients: {few(asked[0], 3)} and {few(asked[1], 3)}")
    for which, audit in zip(SIDES, (before, after), strict=True):
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
    told = []
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
        told.append(
            f"{strongest.attack}, which learned most about {_secret(strongest)} before, gave no "
            f"answer to rely on now for {len(gone)} of {len(was)} client(s): {why}"
        )
    return tuple(told)


def _compared(
    audits: tuple[Audit, Audit],
    hits: tuple[Hits, Hits],
    best: tuple[Finding, Finding],
    level: float,
) -> Compared:
    """One row: paired as closely as the two audits allow."""
    pairs = _pairs(audits, best)
    changes = [_change(pair, hits) for pair in pairs]
    shift = _guessed([b for _, b in pairs]) - _guessed([a for a, _ in pairs])
    if not pairs:
        changes, shift = [by_interval(_leak(best[0]), _leak(best[1]), best[1].n)], 0.0
    value, low, high = (end - shift for end in mean_change(changes, level))
    paired: Paired = "clients" if len(pairs) > 1 else "nothing"
    if pairs and all(_same_records(pair, hits) for pair in pairs):
        paired = "records"
    first = best[0]
    return Compared(_secret(first), first.metric, first.client, *best, value, low, high, paired)


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


def _change(pair: tuple[Finding, Finding], hits: tuple[Hits, Hits]) -> Changed:
    before, after = pair
    if not before.measure.hits:
        return by_interval(_leak(before), _leak(after), after.n)
    if _same_records(pair, hits):
        return by_record(hits[0][about(before)].bits, hits[1][about(after)].bits)
    return by_share(before.value, after.value, before.n, after.n)


def _same_records(pair: tuple[Finding, Finding], hits: tuple[Hits, Hits]) -> bool:
    one, other = (h.get(about(f)) for h, f in zip(hits, pair, strict=True))
    return one is not None and other is not None and one.records == other.records


def _unpaired(rows: Sequence[Compared], hits: tuple[Hits, Hits]) -> tuple[str, ...]:
    """What is to be said where records, or even clients, were not paired."""
    told = []
    if any(row.before.measure.hits and row.paired != "records" for row in rows):
        missing = [which for which, kept in zip(SIDES, hits, strict=True) if not kept]
        why = f"no hits.json ({' and '.join(missing)})" if missing else "not the same records"
        told.append(
            f"records could not be paired: {why}; audits made with --keep-hits can be, and "
            "show smaller changes of single clients"
        )
    alone = [r for r in rows if r.paired == "nothing" and not r.before.topic.together]
    if alone:
        named = few(sorted({f"{r.secret} of {r.client or 'all'}" for r in alone}), 3)
        told.append(f"not paired at all, so that only a large change would show: {named}")
    return tuple(told)


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
        {"rounds": str(x.run.rounds), "knows": ", ".join(x.run.knows)} | _settings(x.run.recipe)
        for x in (before, after)
    )
    names = dict.fromkeys([*a, *b])
    return tuple((k, a.get(k, "-"), b.get(k, "-")) for k in names if a.get(k) != b.get(k))


def _settings(part: Mapping[str, Any], at: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in part.items():
        if isinstance(value, dict):
            flat |= _settings(value, f"{at}{name}.")
        elif not isinstance(value, list) or len(str(value)) < 60:
            flat[f"{at}{name}"] = str(value)
    return flat


def _cautions(before: Audit, after: Audit) -> tuple[str, ...]:
    told = []
    a, b = ({f.attack for f in x.findings} for x in (before, after))
    if a != b:
        only = " and ".join(
            f"only {which}: {', '.join(sorted(names))}"
            for which, names in zip(SIDES, (a - b, b - a), strict=True)
            if names
        )
        told.append(
            f"not the same attacks gave results ({only}): less may have been learned because less "
            "was tried, or because an attack no longer applies"
        )
    for which, audit in zip(SIDES, (before, after), strict=True):
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
"""Beside an audit, where it was asked for: a 0 or 1 for each record, attack and client.

``audit.json`` holds nothing about single records. Whoever has the recording can run the attacks
again, and with these bits knows the secrets; so the file is for its owner alone, and belongs where
``truth/`` is.
"""
About = tuple[str, str, str | None, str | None]
"""Whose guesses, about which question and attribute, of which client."""


class Guessed(Part):
    """``records``: a digest of the records asked about, in their order; ``right``: a 1 for each
    that was guessed right, a 0 for each that was not."""

    about: About
    records: str
    right: Annotated[str, Field(pattern="^[01]+$")]

    @property
    def bits(self) -> NDArray[np.bool_]:
        return np.asarray(np.frombuffer(self.right.encode(), np.uint8) == ord("1"))


Hits = Mapping[About, Guessed]


class _File(Part):
    hits: Literal[2] = 2
    lines: tuple[Guessed, ...]


def about(found: Finding) -> About:
    return found.attack, found.question, found.attribute, found.client


def hits_json(outcomes: Iterable[Any]) -> str:
    """What ``hits.json`` holds of the shares of records guessed right."""
    lines = [
        Guessed(
            about=about(one.finding),
            records=one.records,
            right="".join("01"[int(right)] for right in one.units > 0.5),
        )
        for one in outcomes
        if isinstance(one, Scored)
        and one.finding.measure.hits
        and one.records
        and not one.finding.rung
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
    check("rows", sum(len(line.right) for line in content.lines), file)
    known = {about(found): found for found in audit.findings}
    for number, line in enumerate(content.lines):
        found, right = known.get(line.about), line.bits
        if found is None or found.n != len(right) or abs(found.value - right.mean()) > 1e-9:
            raise FixRecording(
                f"{file}: line {number} is not what the audit beside it found; put back the file "
                "that was written with it, or remove this one"
            )
    return {line.about: line for line in content.lines}
