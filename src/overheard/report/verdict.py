"""Which secrets are exposed, in a sentence each, and did clients train as declared?

Levels and strongest findings are the audit's (`overheard.evaluation.decision`); here every secret
gets its sentence. The rule behind the levels is part of the page (`words.rules`), so that nobody
has to guess what "exposed" means.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from overheard.evaluation.decision import COMPARISON, EXPOSED, LEVELS, NO_SIGN, NOT_MEASURED
from overheard.evaluation.record import Audit, Finding, Replay, Secret, pooled_rate
from overheard.questions.question import grouped
from overheard.report import words

SKEWED = 0.9
"""Share of the commonest value from which the rare ones are counted beside accuracy."""
SMALL = 0.02
"""A gain in accuracy below which a verdict of "exposed" says what else it rests on."""
NAMED = 3
_PLAIN_READINGS = {"global_model": "the global model", "last_returned": "the model last returned"}


@dataclass(frozen=True)
class Verdict:
    """A secret, and the sentence that answers it: a pattern, and the names to fill in."""

    secret: Secret
    pattern: str
    names: Mapping[str, str]

    @property
    def level(self) -> str:
        return self.secret.level

    @property
    def text(self) -> str:
        """For a terminal: names of secrets in backquotes."""
        return self.pattern.format(**{**self.names, "secret": f"`{self.names['secret']}`"})

    @property
    def html(self) -> Markup:
        """For the page: everything escaped, secrets as code, the number and client in bold."""
        marked = {k: _MARKS.get(k, Markup("{}")).format(v) for k, v in self.names.items()}
        return Markup(self.pattern).format(**marked)  # nosec B704  # a sentence of ours; names escaped


_MARKS = {
    "secret": Markup("<code>{}</code>"),
    "client": Markup('<strong class="name">{}</strong>'),
    "value": Markup("<strong>{}</strong>"),
    "share": Markup('<strong class="unbroken">{}</strong>'),
}


def verdicts(audit: Audit) -> list[Verdict]:
    """One verdict per question, or per attribute where the question is about attributes."""
    return [
        _no_verdict(audit, s) if s.level == NOT_MEASURED else _answered(audit, s)
        for s in audit.secrets
    ]


def headline(audit: Audit) -> list[str]:
    """The verdicts as plain sentences, one per question or attribute."""
    if not audit.secrets:
        return ["Nothing was measured: no attack was run."]
    return [*(verdict.text for verdict in verdicts(audit)), *guessed_orders(audit)]


def guessed_orders(audit: Audit) -> list[str]:
    """Once per seed: whose mini-batches come in an order that was guessed, and the remedy."""
    guessed = (f for f in audit.findings if f.details.get("order_guessed"))
    return [
        f"Clients shuffle in an order that can be guessed, "
        f"{', '.join(words.unique(str(f.client) for f in of))} with {seed}. Their mini-batches "
        "then hide nothing: the values above were proven by training again. Do not "
        "seed the shuffling, or seed it at every client from a secret of its own."
        for seed, of in grouped(guessed, lambda f: f.details["order_guessed"]).items()
    ]


def _no_verdict(audit: Audit, secret: Secret) -> Verdict:
    """Says first why there is no answer."""
    names = {"secret": words.secret(secret.topic)}
    asked, asks = (secret.question, secret.attribute), audit.questions
    failed = any((asks.get(one.attack), one.attribute) == asked for one in audit.failed)
    found = audit.strongest(secret)
    if found is None:
        how = "was skipped or failed" if failed else "was skipped"
        why = f"every attack on it {how}, for the reasons listed"
    elif found.level == COMPARISON:
        how = "was run to its end" if failed else "was run"
        why = f"no attack on the updates {how}, only baselines"
    else:
        parts = []
        for k, reasons in enumerate(_alike(secret.doubts.values())):
            names[f"where{k}"] = f"{len(reasons)} of {words.count(secret.clients, 'client')}"
            names[f"why{k}"] = reasons[0] or "its answers must not be relied on"
            parts.append(f"at {{where{k}}} {{why{k}}}")
        others = ["no sign at the others"] if len(secret.doubts) < secret.clients else []
        why = "; ".join([*parts, *others])
    return Verdict(secret, "{secret} was not measured: " + why + ".", names)


def _alike(reasons: Iterable[str]) -> list[list[str]]:
    """Reasons that differ in their numbers only, together; the most frequent first."""
    groups = grouped(reasons, lambda reason: re.sub(r"[0-9][0-9.,e+-]*", "#", reason))
    return sorted(groups.values(), key=len, reverse=True)


def _answered(audit: Audit, secret: Secret) -> Verdict:
    """The sentence, begun by the level and ended by what the metric has to tell."""
    found = audit.strongest(secret)
    assert found is not None  # something was measured
    actor, whole = words.actor(audit.run.threat), found.client is None
    names = {
        "actor": actor,
        "Actor": words.capital(actor),
        "secret": words.secret(secret.topic),
        "client": "all clients" if whole else str(found.client),
        "s": "'" if whole else "'s",
        "n": words.count(found.n, words.unit(secret.topic)),
    }
    if found.client is None and found.flagged:
        names["client"] = words.together(found)
    metric = found.measure
    tells = _TELLS.get(metric.name) or (_share if metric.hits else _error)
    ending = tells(found, [f for f in audit.findings if f.topic == secret.topic], names)
    begun = words.of(metric)["says"][LEVELS.index(secret.level) - LEVELS.index(NO_SIGN)]
    return Verdict(secret, f"{begun}{ending}.", names)


Tells = Callable[[Finding, Sequence[Finding], dict[str, str]], str]


def _share(found: Finding, about: Sequence[Finding], names: dict[str, str]) -> str:
    guess = found.reference
    same = words.percent(found.value) == words.percent(guess or 0.0)
    digits = 1 if same and found.value != guess else 0
    names["share"] = words.interval(found.value, found.low, found.high, digits)
    compared = []
    if found.majority is not None:
        names["majority"] = words.percent(found.majority, digits)
        compared.append("the majority baseline gets {majority}")
    if found.imputation is not None:
        names["imputation"] = words.percent(found.imputation, digits)
        compared.append("the imputation baseline {imputation}")
    # of a number that was cut into ranges: a note says where they end
    ranges = [f.details["right_is"] for f in about if "right_is" in f.details]
    right = "{share} of {client}{s} {n}"
    right += f" ({str(ranges[0]).partition(':')[0]})" if ranges else ""
    text = "; ".join(filter(None, [right, ", ".join(compared), _rare(found, names)]))
    close = found.value - (guess or 0) < (SMALL if found.level == EXPOSED else 0)
    if found.level != NO_SIGN and (found.evidence or 0) > 0 and close:
        names["evidence"] = f"{found.evidence:,.1f}"
        text += "; its probabilities beat both baselines by {evidence} bits over all records"
        text += ", which may be random" if found.level != EXPOSED else ""
    if found.overconfident:
        names["overconfident"] = found.overconfident
        text += "; how sure it is of them must not be relied on: {overconfident}"
    return text


def _rare(found: Finding, names: dict[str, str]) -> str:
    """Where one value is rare, accuracy hardly sees it: how many of the rare ones are found."""
    details = found.details
    if "rare_recall" not in details or (found.majority or 0.0) < SKEWED:
        return ""
    precision = details.get("rare_precision")
    names["rare"] = str(details["rare_value"])
    names["there"] = words.count(int(details["rare_records"]), "record")
    names["recall"] = words.percent(float(details["rare_recall"]))
    names["precision"] = "none" if precision is None else words.percent(float(precision))
    return "of the {there} with {rare} it finds {recall}, and of those it names {precision} are"


def _error(found: Finding, about: Sequence[Finding], names: dict[str, str]) -> str:
    names["value"] = words.value(found)
    text = "off by {value} on average for {client}{s} {n}"
    if found.reference is None:
        return text
    names["guess"] = words.loss(found.reference)
    return text + "; the best baseline by {guess}"


def _own_model(found: Finding, about: Sequence[Finding], names: dict[str, str]) -> str:
    names["value"] = words.excess_interval(found.value, found.low, found.high)
    compared: list[str] = []
    for other in about:
        plain = _PLAIN_READINGS.get(other.attack)
        if plain and other.client == found.client and other.attack != found.attack:
            free, loss = f"free{len(compared)}", f"loss{len(compared)}"
            names[free], names[loss] = plain, words.excess(other.value)
            compared.append(f"{{{free}}} is {{{loss}}} above")
    whose = "their" if found.client is None else "the client's"
    parts = [f"the copy's loss on {whose} {{n}} is {{value}} above the best possible"]
    parts += [", ".join(compared)] if compared else []
    if endless := found.details.get("optimum"):
        parts.append(f"the best possible model lies {endless}")
    return "; ".join(parts)


def _property(found: Finding, about: Sequence[Finding], names: dict[str, str]) -> str:
    names["secret"] = f"who {words.what_of(found.attribute or '')}"
    text, details = "of {n}", found.details
    if all(isinstance(details.get(k), int) for k in ("found", "positives", "false_alarms")):
        names["found"] = f"{details['found']} of {details['positives']}"
        names["alarms"] = words.count(int(details["false_alarms"]), "false alarm")
        text += ", {found} found with {alarms}"
    names["value"] = words.value(found)
    text += "; F1 {value}"
    if found.majority is not None:
        names["majority"] = f"{found.majority:.2f}"
        text += ", accusing nobody or everybody gets {majority}"
    return text


_TELLS: dict[str, Tells] = {"excess_loss": _own_model, "f1": _property}


# ----------------------------------------------------------------- did they train as declared?


def replay_words(audit: Audit) -> str:
    """What replaying the clients' own records under the declared training showed."""
    by = grouped(audit.replays, lambda r: r.outcome)
    unfit, unchecked = by.get("does not fit", []), by.get("cannot be checked", [])
    fits, all_ = by.get("fits", []), words.count(len(audit.replays), "client")
    reasons = words.joined(words.unique(r.reason for r in unchecked), NAMED)
    if not audit.replays:
        return "Replay check: not done, so a wrong description of the training would go unnoticed."
    if not unfit and not fits:
        return (
            f"Replay check: cannot be done ({reasons}), so a wrong description of the training "
            "would go unnoticed, and attacks under one learn little."
        )
    if unfit:
        who = words.joined([f"{r.client} ({r.reason or _off(r)})" for r in unfit], NAMED)
        text = (
            f"Replay check failed for {len(unfit):,} of {all_}: declared training does not "
            f"reproduce the updates: {who}. Records, encoding, optimiser, learning rate, epochs "
            "or loss differ from the description, or clients are confused. What attacks find "
            "about these clients is no measurement: under a wrong description they learn little."
        )
    else:
        exact = [r.off or 0.0 for r in fits if not r.by_chance]
        how = [f"relative error {max(exact):.1g}"] if exact else []
        how += ["as closely as random batch orders or noise allow"] * (len(exact) < len(fits))
        messages = words.count(sum(len(r.rounds) for r in fits), "message")
        text = (
            f"Replay check passed for {len(fits):,} of {all_}: declared training reproduces the "
            f"updates ({' or '.join(how)}; {messages} compared)."
        )
        if (pooled := pooled_rate(fits)) is not None:
            rate = f"A learning rate off by a factor of {pooled.noticed:.3g}"
            rate = rate if pooled.noticed < 100 else "No wrong learning rate"
            text += f" {rate} would have been noticed with 95%."
    return text + (f" {len(unchecked):,} could not be checked ({reasons})." if unchecked else "")


def replay_lines(audit: Audit) -> list[tuple[str, str]]:
    """Each client with its outcome in words; what does not fit first."""
    order = ["does not fit", "cannot be checked", "fits"]
    return [
        (r.client, f"{r.outcome}: {r.reason or _off(r, words.count(len(r.rounds), 'round'))}")
        for r in sorted(audit.replays, key=lambda r: order.index(r.outcome))
    ]


def _off(replay: Replay, rounds: str = "") -> str:
    """off by 3.1% of its update in round 7, where replays differ by up to 4% apart"""
    text = f"off by {words.excess(replay.off or 0.0)} of its update in round {replay.round}"
    if replay.by_chance:
        text += f", where replays differ by up to {words.excess(replay.by_chance)}"
    return f"{text}; {rounds} replayed" if rounds else text
