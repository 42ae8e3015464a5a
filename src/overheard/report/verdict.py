"""Which secrets are exposed, by which rule, and how is that said in one sentence?

The verdict picks fields of the audit's record and compares them; it estimates nothing. The rule
is part of the page (`LEVELS`), so that nobody has to guess what "exposed" means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from overheard.evaluation.record import AttackInfo, Audit, Finding, Heard, Pooled
from overheard.report import words
from overheard.report.suspects import what_of

CLOSE = 0.01
"""A model that loses at most this much more than the optimum counts as the client's own."""

SHARES = frozenset({"accuracy", "f1"})
"""Metrics in [0, 1] of which more is worse; the others are losses and errors."""

BASELINES = frozenset({"majority", "global_model", "naive", "auxiliary_mean"})
"""Guesses that need no listening: what the attacks are measured against."""

_PLAIN_READINGS = {"global_model": "the global model", "last_returned": "the model last returned"}


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
    "The whole 95% interval is better than every way of guessing without listening. Attributes: "
    "above both always guessing the client's commonest value and a stranger's imputation. "
    "Properties of clients: an F1 above that of accusing nobody and of accusing everybody. Own "
    "model: below the excess loss of the global model, and at most 1%. Labels: an error below "
    "that of a stranger's prediction and of every other guess.",
)
UNCLEAR = Level(
    "unclear",
    "◆",
    2,
    "The measured value is better than guessing without listening, but the interval does not "
    "exclude that it is not; or there is no such guess to compare with; or, for the client's own "
    "model, the copy beats the global model but may be more than 1% off.",
)
NO_SIGN = Level(
    "no sign",
    "○",
    1,
    "The best attack tried does no better than guessing without listening. Not a proof that "
    "nothing leaks: another attack may do better.",
)
NOT_MEASURED = Level("not measured", "–", 0, "No attack on this could be run.")
LEVELS = (EXPOSED, UNCLEAR, NO_SIGN, NOT_MEASURED)


class Topic(NamedTuple):
    """One thing that was asked about every client."""

    question: str
    attribute: str | None
    metric: str

    @property
    def name(self) -> str:
        """The secret's name, as short as a column heading."""
        if self.metric == "mean_absolute_error":
            return "label" if self.attribute is None else f"mean label by {self.attribute}"
        if self.attribute is not None:
            return self.attribute
        return "own model" if self.question == "local_model" else self.question.replace("_", " ")


@dataclass(frozen=True)
class Judged:
    """A finding (of one client, or pooled) with its level and what it was compared with."""

    finding: Finding | Pooled
    topic: Topic
    level: Level
    baseline: bool
    reference: float | None

    @property
    def client(self) -> str | None:
        return self.finding.client if isinstance(self.finding, Finding) else None

    @property
    def strength(self) -> tuple[bool, int, float]:
        """Orders what was learned, most last: level first, then the margin over guessing."""
        found = self.finding
        if found.metric == "excess_loss":
            return not self.baseline, self.level.rank, -found.value
        if found.metric == "mean_absolute_error":
            share = found.value / self.reference if self.reference else found.value
            return not self.baseline, self.level.rank, -share
        margin = found.lift if found.lift is not None else found.value - (self.reference or 0.0)
        return not self.baseline, self.level.rank, margin


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


def is_baseline(name: str, info: AttackInfo | None = None) -> bool:
    """Is this one of the guesses that attacks are compared with, rather than an attack?"""
    return name in BASELINES or (info is not None and info.paper.lower() in {"", "baseline"})


def judge(audit: Audit) -> list[Judged]:
    """Every finding with its level, in the record's order."""
    return _judge(audit, audit.findings)


def judge_pooled(audit: Audit) -> list[Judged]:
    """Every pooled finding with its level, in the record's order."""
    return _judge(audit, audit.pooled)


def everything(audit: Audit) -> list[Finding | Pooled]:
    """Findings of single clients, then pooled ones."""
    return [*audit.findings, *audit.pooled]


def topics(audit: Audit) -> list[Topic]:
    """What was asked, people's attributes before the client's model; skipped ones included."""
    infos = {info.name: info for info in audit.attacks}
    seen = [topic_of(f) for f in everything(audit)]
    measured = {(t.question, t.attribute) for t in seen}
    for skip in (*audit.skipped, *audit.failed):
        info = infos.get(skip.attack)
        key = (info.question if info else skip.attack, skip.attribute)
        if key not in measured and not is_baseline(skip.attack, info):
            seen.append(Topic(*key, "skipped"))
    return sorted(dict.fromkeys(seen), key=_place)


def strongest(judged: Iterable[Judged]) -> Judged | None:
    """What leaks most; the first of equals."""
    return max(judged, key=lambda j: j.strength, default=None)


def verdicts(audit: Audit) -> list[Verdict]:
    """One verdict per question, or per attribute where the question is about attributes."""
    judged = judge(audit)
    answers = []
    for topic in topics(audit):
        about = [j for j in judged if j.topic == topic]
        worst = strongest(about)
        if worst is None or not isinstance(worst.finding, Finding):
            how = "was skipped or failed" if audit.failed else "was skipped"
            pattern = "{secret} was not measured: every attack on it " + how
            answers.append(
                Verdict(
                    topic,
                    NOT_MEASURED,
                    pattern + ", for the reasons listed.",
                    {"secret": topic.name},
                )
            )
        elif topic.metric == "excess_loss":
            answers.append(_model_verdict(worst, worst.finding, about))
        elif topic.metric == "mean_absolute_error":
            answers.append(_error_verdict(worst, worst.finding))
        elif topic.metric == "f1":
            answers.append(_property_verdict(worst, worst.finding))
        else:
            answers.append(_share_verdict(worst, worst.finding))
    return answers


def headline(audit: Audit) -> list[str]:
    """The verdicts as plain sentences, one per question or attribute."""
    if not audit.findings and not audit.skipped and not audit.failed:
        return ["Nothing was measured: no attack was run."]
    return [verdict.text for verdict in verdicts(audit)]


def _place(topic: Topic) -> tuple[bool, bool]:
    return topic.metric == "skipped", topic.question == "local_model"


def topic_of(found: Finding | Pooled | Heard) -> Topic:
    """What a finding is about."""
    return Topic(found.question, found.attribute, found.metric)


def _unit(found: Finding | Pooled) -> str:
    return found.client if isinstance(found, Finding) else ""


def _judge(audit: Audit, findings: Sequence[Finding | Pooled]) -> list[Judged]:
    infos = {info.name: info for info in audit.attacks}
    free: dict[tuple[Topic, str], float] = {}
    for f in findings:
        if f.metric not in SHARES and is_baseline(f.attack, infos.get(f.attack)):
            key = (topic_of(f), _unit(f))
            free[key] = min(f.value, free.get(key, f.value))
    judged = []
    for f in findings:
        topic = topic_of(f)
        if f.metric == "excess_loss":
            reference = free.get((topic, _unit(f)))
            level = _loss_level(f, reference)
        elif f.metric == "mean_absolute_error":
            free_errors = [free.get((topic, _unit(f))), f.imputation]
            reference = min((e for e in free_errors if e is not None), default=None)
            level = _error_level(f, reference)
        else:
            guesses = [g for g in (f.majority, f.imputation) if g is not None]
            reference = max(guesses, default=None)
            level = _share_level(f, reference)
        judged.append(
            Judged(f, topic, level, is_baseline(f.attack, infos.get(f.attack)), reference)
        )
    return judged


def _share_level(found: Finding | Pooled, reference: float | None) -> Level:
    if reference is None:
        return UNCLEAR
    if found.low > reference:
        return EXPOSED
    return UNCLEAR if found.value > reference else NO_SIGN


def _loss_level(found: Finding | Pooled, reference: float | None) -> Level:
    best_free = float("inf") if reference is None else reference
    if found.high < best_free and found.high <= CLOSE:
        return EXPOSED
    return UNCLEAR if found.value < best_free else NO_SIGN


def _error_level(found: Finding | Pooled, reference: float | None) -> Level:
    if reference is None:
        return UNCLEAR
    if found.high < reference:
        return EXPOSED
    return UNCLEAR if found.value < reference else NO_SIGN


def _error_verdict(worst: Judged, found: Finding) -> Verdict:
    names = _names(worst, found)
    names["value"] = words.loss_interval(found.value, found.low, found.high)
    told = "off by {value} on average for {client}'s {n}"
    if worst.reference is not None:
        names["stranger"] = words.loss(worst.reference)
        told += "; the best guess without listening by {stranger}"
    pattern = {
        EXPOSED: "{Actor} learns the {secret}: ",
        UNCLEAR: "{Actor} may learn the {secret}: ",
        NO_SIGN: "Nothing suggests that {actor} learns the {secret}: the best attack is ",
    }[worst.level]
    return Verdict(worst.topic, worst.level, f"{pattern}{told}.", names, worst)


def _share_verdict(worst: Judged, found: Finding) -> Verdict:
    names = _names(worst, found)
    close = words.percent(found.value) == words.percent(worst.reference or 0.0)
    digits = 1 if close and found.value != worst.reference else 0
    names["share"] = words.interval(found.value, found.low, found.high, digits)
    compared = []
    if found.majority is not None:
        names["majority"] = words.percent(found.majority, digits)
        compared.append("always guessing the commonest value gets {majority}")
    if found.imputation is not None:
        names["imputation"] = words.percent(found.imputation, digits)
        compared.append("a stranger without listening {imputation}")
    told = "; ".join(filter(None, ["{share} of {client}'s {n}", ", ".join(compared)]))
    pattern = {
        EXPOSED: "{Actor} learns {secret} for ",
        UNCLEAR: "{Actor} may learn {secret}: the best attack is right for ",
        NO_SIGN: "Nothing suggests that {actor} learns {secret}: the best attack is right for ",
    }[worst.level]
    return Verdict(worst.topic, worst.level, f"{pattern}{told}.", names, worst)


def _property_verdict(worst: Judged, found: Finding) -> Verdict:
    names = _names(worst, found)
    names["n"] = words.count(found.n, "client")
    names["secret"] = f"who {what_of(found.attribute or '')}"
    told = "of {n}"
    details = found.details
    hits, positives, alarms = (details.get(k) for k in ("found", "positives", "false_alarms"))
    if isinstance(hits, int) and isinstance(positives, int) and isinstance(alarms, int):
        names["found"] = f"{hits} of {positives}"
        names["alarms"] = words.count(alarms, "false alarm")
        told += ", {found} found with {alarms}"
    names["value"] = f"{found.value:.2f} ({found.low:.2f}–{found.high:.2f})"
    told += "; F1 {value}"
    if found.majority is not None:
        names["majority"] = f"{found.majority:.2f}"
        told += ", accusing nobody or everybody gets {majority}"
    pattern = {
        EXPOSED: "{Actor} learns {secret}: ",
        UNCLEAR: "{Actor} may learn {secret}: ",
        NO_SIGN: "Nothing suggests that {actor} learns {secret}: ",
    }[worst.level]
    return Verdict(worst.topic, worst.level, f"{pattern}{told}.", names, worst)


def _model_verdict(worst: Judged, found: Finding, about: list[Judged]) -> Verdict:
    names = _names(worst, found)
    names["value"] = words.excess_interval(found.value, found.low, found.high)
    compared: list[str] = []
    for other in about:
        plain = _PLAIN_READINGS.get(other.finding.attack)
        if plain and other.client == found.client and other is not worst:
            free, loss = f"free{len(compared)}", f"loss{len(compared)}"
            names[free], names[loss] = plain, words.excess(other.finding.value)
            compared.append(f"{{{free}}} is {{{loss}}} above")
    told = "; ".join(
        filter(
            None,
            [
                "the copy's loss on the client's {n} is {value} above the best possible",
                ", ".join(compared),
            ],
        )
    )
    pattern = {
        EXPOSED: "{Actor} rebuilds {client}'s own model: ",
        UNCLEAR: "{Actor} may rebuild {client}'s own model: ",
        NO_SIGN: "Nothing suggests that {actor} rebuilds {client}'s own model: ",
    }[worst.level]
    return Verdict(worst.topic, worst.level, f"{pattern}{told}.", names, worst)


def _names(worst: Judged, found: Finding) -> dict[str, str]:
    actor = words.actor(found.threat)
    return {
        "actor": actor,
        "Actor": words.capital(actor),
        "secret": worst.topic.name,
        "client": found.client,
        "n": words.count(found.n, "record"),
    }
