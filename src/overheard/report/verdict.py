"""How much does each finding show, which secrets are exposed, and how is that said in one sentence?

What is exposed is decided in `overheard.evaluation.decision`; here every finding gets its level, of
one client or of all together, and every secret its sentence. The rule behind the levels is part of
the page (`LEVELS`), so that nobody has to guess what "exposed" means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from markupsafe import Markup

from overheard.evaluation.decision import (
    Decision,
    Key,
    decide,
    p_value_of,
    reference_of,
    references_of,
)
from overheard.evaluation.record import Audit, Finding, Pooled, unfit_clients
from overheard.questions.question import SKIPPED, Topic, all_metrics
from overheard.report import words

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
    return levelled(audit, audit.findings)


def judge_pooled(audit: Audit) -> list[Judged]:
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
    topic = found.topic
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


EVERY_CLIENT = "all clients"


@dataclass(frozen=True)
class Verdict:
    """One question, its level, and the sentence that answers it."""

    topic: Topic
    level: Level
    pattern: str
    names: Mapping[str, str]
    worst: Judged | None = None

    @property
    def text(self) -> str:
        """For a terminal: names of secrets in backquotes."""
        quoted = {k: f"`{v}`" if k in _CODE else v for k, v in self.names.items()}
        return self.pattern.format(**quoted)

    @property
    def html(self) -> Markup:
        """For the page: everything escaped, secrets as code, the number and client in bold."""
        marked = {k: _MARKS.get(k, Markup("{}")).format(v) for k, v in self.names.items()}
        return Markup(self.pattern).format(**marked)  # nosec B704  # a sentence of ours; names escaped


_CODE = frozenset({"secret"})
_MARKS = {
    "secret": Markup("<code>{}</code>"),
    "client": Markup('<strong class="name">{}</strong>'),
    "value": Markup("<strong>{}</strong>"),
    "share": Markup('<strong class="unbroken">{}</strong>'),
}


def everything(audit: Audit) -> list[Finding | Pooled]:
    return [*audit.findings, *audit.pooled]


def topics(audit: Audit) -> list[Topic]:
    """What was asked, people's attributes before the client's model; skipped ones included."""
    infos = {info.name: info for info in audit.attacks}
    seen = [f.topic for f in everything(audit)]
    measured = {(t.question, t.attribute) for t in seen}
    for skip in (*audit.skipped, *audit.failed):
        info = infos.get(skip.attack)
        key = (info.question if info else skip.attack, skip.attribute)
        if key not in measured and (info is None or info.listens):
            seen.append(Topic(*key, SKIPPED))
    return sorted(dict.fromkeys(seen), key=_place)


def verdicts(audit: Audit) -> list[Verdict]:
    """One verdict per question, or per attribute where the question is about attributes."""
    decision = decide(audit)
    judged = levelled(audit, audit.findings, decision)
    pooled = levelled(audit, audit.pooled, decision)
    answers = []
    for topic in topics(audit):
        about = [j for j in judged if j.topic == topic]
        worst = strongest(about)
        if topic in decision.topics and (worst is None or worst.level is not EXPOSED):
            worst = strongest(j for j in pooled if j.topic == topic)
        doubted = _doubted(about)
        if worst is None or worst.level is NOT_MEASURED or (worst.level is NO_SIGN and doubted):
            answers.append(_no_verdict(topic, about, doubted, _failed(audit, topic)))
        else:
            answers.append(_answered(worst, about))
    return answers


def _doubted(about: Iterable[Judged]) -> dict[str, str]:
    """The clients of whom nothing was measured, each with the first reason."""
    best = best_of(j for j in about if j.client is not None)
    return {str(client): j.why for (client, _), j in best.items() if j.level is NOT_MEASURED}


def _failed(audit: Audit, topic: Topic) -> bool:
    secret, asks = (topic.question, topic.attribute), audit.questions
    return any((asks.get(one.attack), one.attribute) == secret for one in audit.failed)


def _no_verdict(
    topic: Topic, about: Sequence[Judged], doubted: Mapping[str, str], failed: bool
) -> Verdict:
    """Says first why nothing can be said."""
    names = {"secret": topic.name}
    if not about:
        how = "was skipped or failed" if failed else "was skipped"
        why = f"every attack on it {how}, for the reasons listed"
    elif all(j.baseline for j in about):
        how = "was run to its end" if failed else "was run"
        why = f"nothing that listens {how}, only guesses to compare with"
    else:
        asked = len({j.client for j in about})
        parts = []
        for k, reasons in enumerate(_alike(doubted.values())):
            names[f"where{k}"] = f"{len(reasons)} of {words.count(asked, 'client')}"
            names[f"why{k}"] = reasons[0] or "its answers must not be relied on"
            parts.append(f"at {{where{k}}} {{why{k}}}")
        why = "; ".join([*parts, *(["no sign at the others"] if len(doubted) < asked else [])])
    return Verdict(topic, NOT_MEASURED, "{secret} was not measured: " + why + ".", names)


def _alike(reasons: Iterable[str]) -> list[list[str]]:
    """Reasons that differ in their numbers only, together; the most frequent first."""
    groups: dict[str, list[str]] = {}
    for reason in reasons:
        groups.setdefault(re.sub(r"[0-9][0-9.,e+-]*", "#", reason), []).append(reason)
    return sorted(groups.values(), key=len, reverse=True)


def overall(answers: Sequence[Verdict]) -> Level:
    """The highest level of all; "no sign" only where everything that was asked was measured."""
    highest = max((v.level for v in answers), key=lambda level: level.rank, default=NOT_MEASURED)
    lacking = any(v.level is NOT_MEASURED for v in answers)
    return NOT_MEASURED if highest is NO_SIGN and lacking else highest


def headline(audit: Audit) -> list[str]:
    """The verdicts as plain sentences, one per question or attribute."""
    if not audit.findings and not audit.skipped and not audit.failed:
        return ["Nothing was measured: no attack was run."]
    return [*(verdict.text for verdict in verdicts(audit)), *guessed_orders(audit)]


def guessed_orders(audit: Audit) -> list[str]:
    """Once per seed: whose mini-batches come in an order that was guessed, and the remedy."""
    clients: dict[str, list[str]] = {}
    for found in audit.findings:
        if said := found.details.get("order_guessed"):
            clients.setdefault(str(said), []).append(found.client)
    return [
        f"Clients shuffle in an order that can be guessed, {', '.join(dict.fromkeys(who))} with "
        f"{said}. Their mini-batches then hide nothing: what is said of their records was proven "
        "by training again. Do not seed the shuffling, or seed it at every client from a secret "
        "of its own."
        for said, who in clients.items()
    ]


def _place(topic: Topic) -> tuple[bool, bool]:
    return topic.skipped, topic.asked is not None and not topic.asked.people


def _answered(worst: Judged, about: Sequence[Judged]) -> Verdict:
    """The sentence, begun by the level and ended by what the metric has to tell."""
    metric, names = worst.topic.measure, _names(worst, worst.finding, about)
    told = metric.tells(worst, about, names)
    begun = metric.says[worst.level.rank - 1]
    return Verdict(worst.topic, worst.level, f"{begun}{told}.", names, worst)


def _names(worst: Judged, found: Finding | Pooled, about: Sequence[Judged]) -> dict[str, str]:
    threats = [j.finding.threat for j in about if isinstance(j.finding, Finding)]
    actor = words.actor(threats[0]) if threats else "the adversary"
    return {
        "actor": actor,
        "Actor": words.capital(actor),
        "secret": worst.topic.name,
        "client": EVERY_CLIENT if worst.client is None else worst.client,
        "s": "'" if worst.client is None else "'s",
        "n": words.count(found.n, worst.topic.unit),
    }
