"""Which secrets are exposed, and how is that said in one sentence?

What is exposed is decided in `overheard.evaluation.decision`, every finding has its level from
`overheard.report.judging`; here every secret gets its sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from overheard.evaluation.decision import Topic, decide, topic_of
from overheard.evaluation.record import Audit, Finding, Pooled
from overheard.report import words
from overheard.report.judging import (
    EXPOSED,
    NO_SIGN,
    NOT_MEASURED,
    UNCLEAR,
    Judged,
    Level,
    levelled,
    strongest,
)
from overheard.report.suspects import what_of

SKEWED = 0.9
"""Share of the commonest value from which the rare ones are counted beside accuracy."""
SMALL = 0.02
"""A gain in accuracy below which a verdict of "exposed" says what else it rests on."""
EVERY_CLIENT = "all clients"
_PLAIN_READINGS = {"global_model": "the global model", "last_returned": "the model last returned"}


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
        if key not in measured and (info is None or info.listens):
            seen.append(Topic(*key, "skipped"))
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
            answers.append(_SENTENCES[topic.metric](worst, worst.finding, about))
    return answers


def _doubted(about: Iterable[Judged]) -> dict[str, str]:
    """The clients of whom nothing was measured, each with the first reason."""
    best: dict[str, Judged] = {}
    for j in about:
        if j.client is not None and (j.client not in best or j.strength > best[j.client].strength):
            best[j.client] = j
    return {client: j.why for client, j in best.items() if j.level is NOT_MEASURED}


def _failed(audit: Audit, topic: Topic) -> bool:
    """Did an attack on this secret fail?"""
    asks = {info.name: info.question for info in audit.attacks}
    return any(
        (asks.get(broken.attack), broken.attribute) == (topic.question, topic.attribute)
        for broken in audit.failed
    )


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
    return [verdict.text for verdict in verdicts(audit)]


def _place(topic: Topic) -> tuple[bool, bool]:
    return topic.metric == "skipped", topic.question == "local_model"


def _error_verdict(worst: Judged, found: Finding | Pooled, about: list[Judged]) -> Verdict:
    names = _names(worst, found, about)
    names["value"] = words.loss_interval(found.value, found.low, found.high)
    told = "off by {value} on average for {client}{s} {n}"
    if worst.reference is not None:
        names["stranger"] = words.loss(worst.reference)
        told += "; the best guess without listening by {stranger}"
    pattern = {
        EXPOSED: "{Actor} learns the {secret}: ",
        UNCLEAR: "{Actor} may learn the {secret}: ",
        NO_SIGN: "Nothing suggests that {actor} learns the {secret}: the best attack is ",
    }[worst.level]
    return Verdict(worst.topic, worst.level, f"{pattern}{told}.", names, worst)


def _share_verdict(worst: Judged, found: Finding | Pooled, about: list[Judged]) -> Verdict:
    names = _names(worst, found, about)
    same = words.percent(found.value) == words.percent(worst.reference or 0.0)
    digits = 1 if same and found.value != worst.reference else 0
    names["share"] = words.interval(found.value, found.low, found.high, digits)
    compared = []
    if found.majority is not None:
        names["majority"] = words.percent(found.majority, digits)
        compared.append("always guessing the commonest value gets {majority}")
    if found.imputation is not None:
        names["imputation"] = words.percent(found.imputation, digits)
        compared.append("a stranger without listening {imputation}")
    ranges = _ranges(about)
    right = "{share} of {client}{s} {n}" + (f" ({ranges})" if ranges else "")
    told = "; ".join(filter(None, [right, ", ".join(compared), *_rare(found, names)]))
    close = found.value - (worst.reference or 0) < (SMALL if worst.level is EXPOSED else 0)
    if worst.level is not NO_SIGN and (found.evidence or 0) > 0 and close:
        names["evidence"] = f"{found.evidence:,.1f}"
        told += "; its probabilities beat both guesses by {evidence} bits over all records"
        told += ", which may be chance" if worst.level is UNCLEAR else ""
    if found.oversure:
        names["oversure"] = found.oversure
        told += "; how sure it is of them must not be relied on: {oversure}"
    pattern = {
        EXPOSED: "{Actor} learns {secret} for ",
        UNCLEAR: "{Actor} may learn {secret}: the best attack is right for ",
        NO_SIGN: "Nothing suggests that {actor} learns {secret}: the best attack is right for ",
    }[worst.level]
    return Verdict(worst.topic, worst.level, f"{pattern}{told}.", names, worst)


def _ranges(about: Iterable[Judged]) -> str:
    """What counts as right of a number that was cut into ranges: a note says where they end."""
    said = (j.finding.details.get("right_is") for j in about if isinstance(j.finding, Finding))
    return next((str(text).partition(":")[0] for text in said if text), "")


def _rare(found: Finding | Pooled, names: dict[str, str]) -> list[str]:
    """Where one value is rare, accuracy hardly sees it: how many of the rare ones are found."""
    details = found.details if isinstance(found, Finding) else {}
    told = [details.get(k) for k in ("rare_value", "rare_records", "rare_recall")]
    if None in told or (found.majority or 0.0) < SKEWED:
        return []
    precision = details.get("rare_precision")
    names["rare"], names["there"] = str(told[0]), words.count(int(told[1] or 0), "record")
    names["recall"] = words.percent(float(told[2] or 0.0))
    names["precision"] = "none" if precision is None else words.percent(float(precision))
    return ["of the {there} with {rare} it finds {recall}, and of those it names {precision} are"]


def _property_verdict(worst: Judged, found: Finding | Pooled, about: list[Judged]) -> Verdict:
    names = _names(worst, found, about)
    names["n"] = words.count(found.n, "client")
    names["secret"] = f"who {what_of(found.attribute or '')}"
    told = "of {n}"
    details = found.details if isinstance(found, Finding) else {}
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


def _model_verdict(worst: Judged, found: Finding | Pooled, about: list[Judged]) -> Verdict:
    names = _names(worst, found, about)
    names["value"] = words.excess_interval(found.value, found.low, found.high)
    whose = "their" if worst.client is None else "the client's"
    endless = found.details.get("optimum") if isinstance(found, Finding) else None
    compared: list[str] = []
    for other in about:
        plain = _PLAIN_READINGS.get(other.finding.attack)
        if plain and other.client == worst.client and other is not worst:
            free, loss = f"free{len(compared)}", f"loss{len(compared)}"
            names[free], names[loss] = plain, words.excess(other.finding.value)
            compared.append(f"{{{free}}} is {{{loss}}} above")
    told = "; ".join(
        filter(
            None,
            [
                f"the copy's loss on {whose} {{n}} is {{value}} above the best possible",
                ", ".join(compared),
                f"the best possible model lies {endless}" if endless else "",
            ],
        )
    )
    pattern = {
        EXPOSED: "{Actor} rebuilds {client}{s} own model: ",
        UNCLEAR: "{Actor} may rebuild {client}{s} own model: ",
        NO_SIGN: "Nothing suggests that {actor} rebuilds {client}{s} own model: ",
    }[worst.level]
    return Verdict(worst.topic, worst.level, f"{pattern}{told}.", names, worst)


def _names(worst: Judged, found: Finding | Pooled, about: Sequence[Judged]) -> dict[str, str]:
    threats = [j.finding.threat for j in about if isinstance(j.finding, Finding)]
    actor = words.actor(threats[0]) if threats else "the adversary"
    return {
        "actor": actor,
        "Actor": words.capital(actor),
        "secret": worst.topic.name,
        "client": EVERY_CLIENT if worst.client is None else worst.client,
        "s": "'" if worst.client is None else "'s",
        "n": words.count(found.n, "record"),
    }


_SENTENCES = {
    "excess_loss": _model_verdict,
    "mean_absolute_error": _error_verdict,
    "f1": _property_verdict,
    "accuracy": _share_verdict,
}
