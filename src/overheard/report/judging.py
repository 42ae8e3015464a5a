"""How much does each finding show? A level for every finding, of one client or of all together.

What is exposed is decided in `overheard.evaluation.decision`. The rule behind the levels is part of
the page (`LEVELS`), so that nobody has to guess what "exposed" means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from overheard.evaluation.decision import (
    Decision,
    Key,
    decide,
    p_value_of,
    reference_of,
    references_of,
    topic_of,
)
from overheard.evaluation.record import Audit, Finding, Pooled, unfit_clients
from overheard.questions.question import Topic, all_metrics

UNFIT = "the declared recipe does not reproduce what the client sent"


class Level(NamedTuple):
    """A risk level: a word and a sign, so that no reader depends on a colour."""

    name: str
    sign: str
    rank: int
    rule: str


EXPOSED = Level(
    "exposed",
    "▲",
    3,
    "Better than every way of guessing without listening, by a test that errs with a probability "
    "of at most 5% over the whole audit, however many secrets, clients and attacks it has: all "
    "clients together first, then each.",
)
UNCLEAR = Level(
    "unclear",
    "◆",
    2,
    "The measured value is better than guessing without listening, or its probabilities are, but "
    "that may be chance; or "
    "there is no such guess to compare with; or, for the client's own model, the copy beats the "
    "global model but may be more than 1% off.",
)
NO_SIGN = Level(
    "no sign",
    "○",
    1,
    "The attacks tried ran as they should, and the best does no better than guessing without "
    "listening. Not a proof that nothing leaks: another attack may do better.",
)
NOT_MEASURED = Level(
    "not measured",
    "–",
    0,
    "No attack that listens could be run, or its answer must not be relied on: it flags itself, or "
    "the declared recipe does not reproduce what the client sent. Says nothing either way.",
)
LEVELS = (EXPOSED, UNCLEAR, NO_SIGN, NOT_MEASURED)


def rules() -> dict[Level, str]:
    """What each level means; of exposure, also what each metric asks for."""
    shares_first = sorted(all_metrics().values(), key=lambda metric: not metric.share)
    asked = [metric.rule for metric in shares_first]
    return {level: level.rule for level in LEVELS} | {EXPOSED: " ".join([EXPOSED.rule, *asked])}


@dataclass(frozen=True)
class Judged:
    """A finding (of one client, or pooled) with its level and what it was compared with; ``why``
    it is not a measurement, where it is none."""

    finding: Finding | Pooled
    topic: Topic
    level: Level
    baseline: bool
    reference: float | None
    why: str = ""

    @property
    def client(self) -> str | None:
        return self.finding.client if isinstance(self.finding, Finding) else None

    @property
    def strength(self) -> tuple[bool, int, float]:
        """Orders what was learned, most last: level first, then the margin over guessing."""
        margin = self.topic.measure.strength(self.finding, self.reference)
        return not self.baseline, self.level.rank, margin


def judge(audit: Audit) -> list[Judged]:
    """Every finding with its level, in the record's order."""
    return levelled(audit, audit.findings)


def judge_pooled(audit: Audit) -> list[Judged]:
    """Every pooled finding with its level, in the record's order."""
    return levelled(audit, audit.pooled)


def best_of(judged: Iterable[Judged]) -> dict[tuple[str | None, Topic], Judged]:
    """By client and secret what leaks most, in order of appearance."""
    best: dict[tuple[str | None, Topic], Judged] = {}
    for j in judged:
        known = best.get((j.client, j.topic))
        if known is None or j.strength > known.strength:
            best[j.client, j.topic] = j
    return best


def strongest(judged: Iterable[Judged]) -> Judged | None:
    """What leaks most; the first of equals."""
    return max(judged, key=lambda j: j.strength, default=None)


def levelled(
    audit: Audit, findings: Sequence[Finding | Pooled], decision: Decision | None = None
) -> list[Judged]:
    """These findings with their levels; what is exposed is decided here unless it is given."""
    decision, references = decision or decide(audit), references_of(audit)
    listening = audit.listening
    first = [
        _judged(f, reference_of(f, references), f.attack in listening, decision, references)
        for f in findings
    ]
    lacking, unfit = _lacking(audit, first), unfit_clients(audit)
    # told a wrong recipe an attack learns less than it could: what it shows all the same stands
    all_unfit = bool(unfit) and unfit >= {f.client for f in audit.findings}
    judged = []
    for j in first:
        strange = all_unfit if j.client is None else j.client in unfit
        if j.level is NO_SIGN and _asked(j) in lacking:
            judged.append(replace(j, level=NOT_MEASURED, why=lacking[_asked(j)]))
        elif j.level in (NO_SIGN, UNCLEAR) and strange:
            judged.append(replace(j, level=NOT_MEASURED, why=UNFIT))
        else:
            judged.append(j)
    return judged


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
    found: Finding | Pooled,
    reference: float | None,
    listens: bool,
    decision: Decision,
    references: Mapping[Key, float],
) -> Judged:
    topic = topic_of(found)
    if not listens:
        return Judged(found, topic, NOT_MEASURED, True, reference)
    if found.flag:
        return Judged(found, topic, NOT_MEASURED, False, reference, _flagged(found))
    if decision.exposed(found, p_value_of(found, references)):
        return Judged(found, topic, EXPOSED, False, reference)
    if (
        reference is None
        or found.measure.gain(found.value, reference) > 0
        or (found.evidence or 0.0) > 0
    ):
        return Judged(found, topic, UNCLEAR, False, reference)
    if found.oversure:
        why = f"{found.attack} does not fit: {found.oversure}"
        return Judged(found, topic, NOT_MEASURED, False, reference, why)
    return Judged(found, topic, NO_SIGN, False, reference)
