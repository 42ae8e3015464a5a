"""The whole audit: every attack, and what fewer rounds or less knowledge would have told.

What ``overheard audit`` runs and `overheard.audit` returns are the same. Of every secret the attack
that learned most over all clients is asked again, on the client where it learned most: with the
rounds heard cut to 1, 2, 5, 10, ..., the rest of the adversary's knowledge as it is. What is known
of a client is cut by `evaluation.rungs`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np

from overheard.attacks import is_slow
from overheard.attacks.wire import only
from overheard.errors import ListenLonger
from overheard.evaluation.attempt import NOT_RUN, attempt
from overheard.evaluation.audit import AuditOptions, chosen_attacks, key_of
from overheard.evaluation.audit import audit as run_attacks
from overheard.evaluation.judged import best_of, judge, strongest
from overheard.evaluation.record import Audit, Failed, Finding, Heard, Skipped
from overheard.evaluation.resume import NOTHING_KEPT, Kept
from overheard.evaluation.rungs import by_knowledge
from overheard.evaluation.scoring import answers_in, scorer_of
from overheard.questions.question import by_question
from overheard.transcript.knowledge import (
    LISTENING,
    Link,
    Releases,
    SummedReleases,
    Sums,
)
from overheard.transcript.observe import observe, told_of
from overheard.transcript.store import Recording
from overheard.transcript.target import Target, targets_in
from overheard.transcript.threat import Threat
from overheard.transcript.view import Attack, View, launch


def prefixes(rounds: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50, ... below ``rounds``."""
    steps = (digit * 10**decade for decade in range(9) for digit in (1, 2, 5))
    return tuple(step for step in steps if step < rounds)


def first_rounds(view: View, rounds: int) -> View:
    """The same adversary, who stopped listening after so many rounds with the client."""
    if Link in view.kinds:
        return view.knowing(only(view.know(Link), np.arange(rounds)))
    for kind in (Releases, SummedReleases):
        if kind in view.kinds:
            return view.knowing(view.know(kind).first(rounds))
    return view.knowing(view.know(Sums).first(rounds))


def by_rounds(
    recording: Recording,
    threat: Threat,
    audit: Audit,
    options: AuditOptions = AuditOptions(),
    kept: Kept = NOTHING_KEPT,
    attacks: Iterable[str | Attack] = (),
) -> tuple[Heard | Failed | Skipped, ...]:
    """What the strongest attack on each secret learns from ever more rounds, the last: all of them.

    ``attacks``: as given to the audit.

    A number of rounds with which the attack cannot run is left out, and so are attacks that search
    for minutes; one with which it fails, or takes longer than its budget, is listed as such.
    """
    chosen = _strongest(audit)
    known = {attack.name: attack for attack in chosen_attacks(tuple(attacks))}
    found: list[Heard | Failed | Skipped] = []
    for done, best in enumerate(chosen):
        target, attack = _target(recording, best), known[best.attack]
        if target is None or target.asked.together:  # its guess has evidence by round
            continue
        options.progress(f"{target.key}, round by round: {best.attack}", done, len(chosen))
        line = partial(_line, recording, threat, target, best, attack, options.budget)
        found += kept.parts(line, "rounds", target.key, best.client, key_of(attack))
    options.progress("rounds", len(chosen), len(chosen))
    return tuple(found)


def _line(
    recording: Recording,
    threat: Threat,
    target: Target,
    best: Finding,
    attack: Attack,
    budget: float | None,
) -> list[Heard | Failed | Skipped]:
    """One attack on one client, with ever more rounds, where its answer does not flag itself."""
    view, recipe = observe(recording, threat, target, best.client), told_of(recording)
    listens = [kind for kind in LISTENING if kind in attack.needs & view.kinds]
    if is_slow(attack) or not listens:
        return []
    assert recipe is not None  # without one there is no audit
    answers = answers_in(recording, target)
    scorer = scorer_of(recipe, recording.truth(), target, view, best.seed, answers)
    heard = len(view.know(listens[0]))
    found: list[Heard | Failed | Skipped] = []
    for rounds in prefixes(heard):

        def run(rounds: int = rounds) -> Heard:
            guess = launch(attack, first_rounds(view, rounds), best.seed)
            found = scorer(attack, guess, 0.0).finding
            if found.flag:
                raise ListenLonger(found.flag)
            return _heard(found, rounds)

        doing = f"with the first {rounds} rounds alone"
        try:
            found.append(attempt(run, attack.name, best.client, best.attribute, doing, budget))
        except NOT_RUN:
            continue
    return [*found, _heard(best, heard)]


def _heard(finding: Finding, rounds: int) -> Heard:
    same = finding.model_dump(include=set(Heard.model_fields))
    return Heard(rounds=rounds, **same)


def _strongest(audit: Audit) -> list[Finding]:
    """Per secret: the attack strongest over all clients, where it learned most."""
    judgement = judge(audit)
    chosen = []
    for best in best_of(j for j in judgement.pooled if j.reliable).values():
        same = (best.topic, best.finding.attack)
        of = (j for j in judgement.findings if j.reliable and (j.topic, j.finding.attack) == same)
        worst = strongest(of)
        if worst is not None and isinstance(worst.finding, Finding):
            chosen.append(worst.finding)
    return chosen


def _target(recording: Recording, found: Finding) -> Target | None:
    asked = by_question(targets_in(recording.targets)).get(found.question, [])
    same = [t for t in asked if (t.column or None) == found.attribute]
    return next(iter(same or asked), None)


def audit(
    recording: Recording,
    threat: Threat,
    attacks: Iterable[str | Attack] = (),
    clients: Iterable[str] = (),
    targets: Iterable[str] = (),
    options: AuditOptions = AuditOptions(),
    kept: Kept = NOTHING_KEPT,
) -> Audit:
    """As `overheard.evaluation.audit.audit`, and curves for what was learned most."""
    given = tuple(attacks)
    record = run_attacks(recording, threat, given, clients, targets, options, kept)
    if options.rounds and record.findings:
        record = record.adding(by_rounds(recording, threat, record, options, kept, given))
    if options.ladder:
        record = record.adding(by_knowledge(recording, threat, record, options, kept))
    return record
