"""Which clients hold a given record, poison or ride for free? Asked of all of them at once.

The score is F1: of those accused and those that have the property, how many are both. It is set
against accusing nobody and accusing everybody, which need no listening.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from overheard.errors import FixData, ListenLonger
from overheard.evaluation.decision import found_p_value
from overheard.evaluation.detection import answers_of, check_heard, f1, f1_interval, scores_of
from overheard.evaluation.judged import Judged
from overheard.evaluation.record import Finding
from overheard.evaluation.scoring import Case, Scored, Scorer, finite
from overheard.questions.metrics import share_strength
from overheard.questions.question import Column, Metric, Question
from overheard.randomness import stream
from overheard.report import words
from overheard.report.suspects import what_of
from overheard.transcript.guess import ClientProperty
from overheard.transcript.knowledge import Sums
from overheard.transcript.view import Attack, View

PROPERTIES = ("membership", "poisoning", "free-rider")
_PROPERTY = re.compile(r"membership(-[1-9][0-9]{0,3})?|poisoning|free-rider")


def _tells(worst: Judged, about: Sequence[Judged], names: dict[str, str]) -> str:
    found = worst.finding
    names["secret"] = f"who {what_of(found.attribute or '')}"
    told, details = "of {n}", getattr(found, "details", {})
    hits, positives, alarms = (details.get(k) for k in ("found", "positives", "false_alarms"))
    if isinstance(hits, int) and isinstance(positives, int) and isinstance(alarms, int):
        names["found"] = f"{hits} of {positives}"
        names["alarms"] = words.count(alarms, "false alarm")
        told += ", {found} found with {alarms}"
    names["value"] = words.score_interval(found.value, found.low, found.high)
    told += "; F1 {value}"
    if found.majority is not None:
        names["majority"] = f"{found.majority:.2f}"
        told += ", accusing nobody or everybody gets {majority}"
    return told


def _found(finding: Finding) -> str:
    told = [finding.details.get(key) for key in ("found", "positives")]
    return words.NOTHING if None in told else "{} of {}".format(*told)


F1 = Metric(
    name="f1",
    larger_leaks=True,
    share=True,
    axis="F1 score",
    head="F1",
    prefix="F1 ",
    rule="Properties of clients: an F1 above that of accusing nobody and of accusing everybody.",
    says=(
        "Nothing suggests that {actor} learns {secret}: ",
        "{Actor} may learn {secret}: ",
        "{Actor} learns {secret}: ",
    ),
    interval=lambda units, rng: (0.0, 1.0),  # of one number nothing is known; score() makes it
    pooled=lambda clients: (0.0, 1.0),  # asked of all clients together: there is nothing to pool
    strength=share_strength,
    text=lambda value, low, high, digits: words.score_interval(value, low, high),
    number=words.share,
    brief=lambda found: (f"{found.value:.2f}", ""),
    tells=_tells,
    over_all=lambda found: "",
    chart=lambda attribute: Markup(
        "F1 score of the clients accused, in per cent; <strong>further right leaks more</strong>. "
        "Grey is what accusing nobody or everybody gets. Lines are 95% intervals."
    ),
    caption="Properties of clients",
    columns=(
        Column("F1", lambda f: words.score_interval(f.value, f.low, f.high)),
        Column(
            "Nobody or everybody",
            lambda f: words.NOTHING if f.majority is None else f"{f.majority:.2f}",
        ),
        Column("Found", _found),
        Column("False alarms", lambda f: str(f.details.get("false_alarms", words.NOTHING))),
    ),
    legend=(("majority", "accusing nobody or everybody"),),
    intro="Which clients have a property is asked of all of them together: how many of those that "
    "have it were found, and how many others were accused. F1 is 1 when exactly the right ones are "
    "accused. <code>overheard detect</code> ranks the clients by name.",
    about_head="Property",
)


def score(case: Case) -> Scorer:
    clients = case.view.know(Sums).clients
    if case.answers is None:
        raise FixData(
            f"truth/ does not say which clients have {case.target.column!r}, so a guess cannot be "
            "scored; `overheard detect` lists the suspects"
        )
    answers = answers_of(case.answers, clients)
    free = max(f1(np.full(len(answers), guess), answers) for guess in (False, True))

    def scored(attack: Attack, guess: ClientProperty, seconds: float) -> Scored:
        if guess.clients != clients:
            raise FixData(f"{len(guess.clients)} guesses for {len(answers)} clients")
        chosen = guess.choice()
        value = f1(chosen, answers)
        rng = stream(case.seed, "interval", attack.name, case.target.key)
        low, high = f1_interval(chosen, answers, rng)
        details = finite({**guess.diagnostics, **scores_of(guess, answers)})
        found, accused, positives = (int(s.sum()) for s in (chosen & answers, chosen, answers))
        p = found_p_value(found, accused, positives, len(answers)) if value > free else 1.0
        finding = case.finding(
            attack,
            seconds,
            value=value,
            low=low,
            high=high,
            majority=free,
            lift=value - free,
            n=len(answers),
            details=details,
            p_value=None if "flag" in details else p,
        )
        return Scored(finding, np.array([value]), None)

    return scored


def check(view: View) -> None:
    """Sums of updates must be heard, and tell clients apart."""
    if Sums not in view.kinds:
        raise ListenLonger(
            f"{view.target.key!r} is asked of the sums of updates, which the threat model "
            f"{view.threat!r} does not hear; audit as 'secure-server'"
        )
    check_heard(view)


def allowed(column: str) -> str:
    """What is wrong with the name of a property."""
    if _PROPERTY.fullmatch(column):
        return ""
    return (
        f"unknown property {column!r}; known: {', '.join(PROPERTIES)} (and membership-2, "
        "membership-3, ... for further target records)"
    )


QUESTION = Question(
    name="property",
    title="Properties of clients",
    asks="which clients hold a given record, poison or ride for free?",
    metric=F1,
    answers=(ClientProperty,),
    score=score,
    together=True,
    truth="Property",
    check=check,
    column="must",
    allowed=allowed,
    hidden=lambda target, recipe: (),
    sums=True,
    noun="property",
    unit="client",
)
