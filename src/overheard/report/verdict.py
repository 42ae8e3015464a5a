"""How is it said in one sentence which secrets are exposed?

Levels are those of `overheard.evaluation.judged`; here every secret gets its sentence. The rule
behind the levels is part of the page (`rules`), so that nobody has to guess what "exposed" means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from overheard.evaluation.judged import (
    EXPOSED,
    NO_SIGN,
    NOT_MEASURED,
    UNCLEAR,
    Judged,
    Judgement,
    Level,
    best_of,
    judge,
    strongest,
)
from overheard.evaluation.record import Audit, Finding, Pooled
from overheard.questions.question import SKIPPED, Topic, all_metrics, grouped
from overheard.report import words

_RULES = {
    EXPOSED: "Better than every way of guessing without listening, by a test that errs with a "
    "probability of at most 5% over the whole audit, however many secrets, clients and attacks it "
    "has: all clients together first, then each.",
    UNCLEAR: "The measured value is better than guessing without listening, or its probabilities "
    "are, but that may be chance; or there is no such guess to compare with; or, for the client's "
    "own model, the copy beats the global model but may be more than 1% off.",
    NO_SIGN: "The attacks tried ran as they should, and the best does no better than guessing "
    "without listening. Not a proof that nothing leaks: another attack may do better.",
    NOT_MEASURED: "No attack that listens could be run, or its answer must not be relied on: it "
    "flags itself, or the declared recipe does not reproduce what the client sent. Says nothing "
    "either way.",
}


def rules() -> dict[Level, str]:
    """What each level means; of exposure, also what each metric asks for."""
    shares_first = sorted(all_metrics().values(), key=lambda metric: not metric.share)
    asked = [metric.rule for metric in shares_first]
    return _RULES | {EXPOSED: " ".join([_RULES[EXPOSED], *asked])}


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


def verdicts(audit: Audit, judgement: Judgement | None = None) -> list[Verdict]:
    """One verdict per question, or per attribute where the question is about attributes."""
    judgement = judgement or judge(audit)
    answers = []
    for topic in topics(audit):
        about = [j for j in judgement.findings if j.topic == topic]
        worst = strongest(about)
        if topic in judgement.exposed and (worst is None or worst.level is not EXPOSED):
            worst = strongest(j for j in judgement.pooled if j.topic == topic)
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
    groups = grouped(reasons, lambda reason: re.sub(r"[0-9][0-9.,e+-]*", "#", reason))
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
