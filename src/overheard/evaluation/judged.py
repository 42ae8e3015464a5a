"""How much does each finding show? Its level, of one client or of all together, decided once.

What is exposed follows from `overheard.evaluation.decision`. The strongest finding about a secret
is that of the highest level, and of these the one with the largest margin over guessing: reports,
comparisons, curves and ladders all mean this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from overheard.evaluation.decision import Decision, decide
from overheard.evaluation.record import Audit, Finding, Pooled, unfit_clients
from overheard.questions.question import Topic

UNFIT = "the declared recipe does not reproduce what the client sent"


class Level(NamedTuple):
    """A risk level: a word and a sign, so that no reader depends on a colour. What each means is
    said by `overheard.report.verdict.rules`."""

    name: str
    sign: str
    rank: int


EXPOSED, UNCLEAR = Level("exposed", "▲", 3), Level("unclear", "◆", 2)
NO_SIGN, NOT_MEASURED = Level("no sign", "○", 1), Level("not measured", "–", 0)
LEVELS = (EXPOSED, UNCLEAR, NO_SIGN, NOT_MEASURED)


@dataclass(frozen=True)
class Judged:
    """A finding (of one client, or pooled) with its level and what it was compared with; ``why``
    it is not a measurement, where it is none."""

    finding: Finding | Pooled
    level: Level
    baseline: bool
    reference: float | None
    why: str = ""

    @property
    def topic(self) -> Topic:
        return self.finding.topic

    @property
    def client(self) -> str | None:
        return self.finding.client

    @property
    def reliable(self) -> bool:
        """Whether it listened and does not flag its own answer."""
        return not self.baseline and not self.finding.flag

    @property
    def strength(self) -> tuple[bool, int, float]:
        """Orders what was learned, most last: level first, then the margin over guessing."""
        margin = self.topic.measure.strength(self.finding, self.reference)
        return not self.baseline, self.level.rank, margin


def strongest(judged: Iterable[Judged]) -> Judged | None:
    return max(judged, key=lambda j: j.strength, default=None)


def best_of(judged: Iterable[Judged]) -> dict[tuple[str | None, Topic], Judged]:
    """By client and secret what leaks most, in order of appearance."""
    best: dict[tuple[str | None, Topic], Judged] = {}
    for j in judged:
        known = best.get((j.client, j.topic))
        if known is None or j.strength > known.strength:
            best[j.client, j.topic] = j
    return best


@dataclass(frozen=True)
class Judgement:
    """An audit's findings with their levels: of every client, and of all together. ``exposed``:
    the secrets that all clients together show."""

    findings: tuple[Judged, ...]
    pooled: tuple[Judged, ...]
    exposed: frozenset[Topic]


def judge(audit: Audit) -> Judgement:
    """What the whole audit shows."""
    decision = decide(audit)
    findings, pooled = (
        _levelled(audit, found, decision) for found in (audit.findings, audit.pooled)
    )
    return Judgement(findings, pooled, frozenset(decision.topics))


def _levelled(
    audit: Audit, findings: Sequence[Finding | Pooled], decision: Decision
) -> tuple[Judged, ...]:
    free, listening = _free(audit), audit.listening
    first = []
    for f in findings:
        guesses = [f.majority] if f.measure.share else free.get((f.topic, f.client), [])
        reference = f.measure.best(g for g in (*guesses, f.imputation) if g is not None)
        first.append(_judged(f, reference, f.attack in listening, decision))
    lacking, unfit = _lacking(audit, first), unfit_clients(audit)
    # told a wrong recipe an attack learns less than it could: what it shows all the same stands
    all_unfit = bool(unfit) and unfit >= {f.client for f in audit.findings}
    judged = []
    for j in first:
        strange = all_unfit if j.client is None else j.client in unfit
        if j.level is NO_SIGN and _asked(j) in lacking:
            j = replace(j, level=NOT_MEASURED, why=lacking[_asked(j)])
        elif j.level in (NO_SIGN, UNCLEAR) and strange:
            j = replace(j, level=NOT_MEASURED, why=UNFIT)
        judged.append(j)
    return tuple(judged)


def _free(audit: Audit) -> dict[tuple[Topic, str | None], list[float]]:
    """What everybody gets who does not listen, by secret and client; shares say so themselves."""
    found: dict[tuple[Topic, str | None], list[float]] = {}
    everything: list[Finding | Pooled] = [*audit.findings, *audit.pooled]
    for one in everything:
        if one.attack not in audit.listening:
            found.setdefault((one.topic, one.client), []).append(one.value)
    return found


_Asked = tuple[str, str | None, str | None]


def _lacking(audit: Audit, judged: Sequence[Judged]) -> dict[_Asked, str]:
    """Where one attack could not read a client, and why: what the others did not find there is left
    open, and what none found over all clients (None) too."""
    found = {_asked(j): j.why for j in judged if j.why and not j.baseline}
    questions = {info.name: info.question for info in audit.attacks if info.listens}
    for f in audit.findings:
        if f.flag and f.attack in questions:
            found.setdefault((f.question, f.attribute, f.client), _flagged(f))
    for broken in audit.failed:
        if broken.attack in questions and not broken.doing:
            key = (questions[broken.attack], broken.attribute, broken.client)
            found.setdefault(key, f"{broken.attack} failed ({broken.error})")
    for client in unfit_clients(audit):
        for f in audit.findings:
            found.setdefault((f.question, f.attribute, client), UNFIT)
    for (question, attribute, where), why in list(found.items()):
        at = "" if where is None else f"at {where} "
        found.setdefault((question, attribute, None), at + why)
    return found


def _asked(judged: Judged) -> _Asked:
    return judged.topic.question, judged.topic.attribute, judged.client


def _flagged(found: Finding | Pooled) -> str:
    return f"{found.attack} flags its own answer: {found.flag}"


def _judged(
    found: Finding | Pooled, reference: float | None, listens: bool, decision: Decision
) -> Judged:
    level, why = NO_SIGN, ""
    better = reference is None or found.measure.gain(found.value, reference) > 0
    if not listens:
        level = NOT_MEASURED
    elif found.flag:
        level, why = NOT_MEASURED, _flagged(found)
    elif decision.exposed(found):
        level = EXPOSED
    elif better or (found.evidence or 0.0) > 0:
        level = UNCLEAR
    elif found.oversure:
        level, why = NOT_MEASURED, f"{found.attack} does not fit: {found.oversure}"
    return Judged(found, level, not listens, reference, why)
