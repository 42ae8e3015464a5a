"""How much longer must one listen? What the strongest attack learns from the first rounds alone.

For every secret of an audit: the attack that learned most over all clients, on the client where it
learned most, with the rounds heard cut to 1, 2, 5, 10, ... The rest of the adversary's knowledge
stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from overheard.attacks import is_slow
from overheard.attacks.wire import only
from overheard.errors import FixRecording, ListenLonger
from overheard.evaluation.attempt import NOT_RUN, attempt, check_budget
from overheard.evaluation.audit import chosen_attacks, key_of
from overheard.evaluation.kept import NOTHING_KEPT, Kept
from overheard.evaluation.pace import estimate
from overheard.evaluation.record import Audit, Failed, Finding, Heard, Skipped
from overheard.evaluation.scoring import answers_in, scorer_of
from overheard.programs.program import Told
from overheard.programs.records import Records
from overheard.questions.question import by_question
from overheard.transcript.knowledge import LISTENING, Link, Releases, Sums
from overheard.transcript.observe import observe, told_of
from overheard.transcript.store import Recording
from overheard.transcript.target import Target, targets_in
from overheard.transcript.threat import Threat
from overheard.transcript.view import Attack, View, launch

Progress = Callable[[str, int, int], None]


def prefixes(rounds: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50, ... below ``rounds``."""
    steps = (digit * 10**decade for decade in range(9) for digit in (1, 2, 5))
    return tuple(step for step in steps if step < rounds)


def first_rounds(view: View, rounds: int) -> View:
    """The same adversary, who stopped listening after so many rounds with the client."""
    if Link in view.kinds:
        return view.knowing(only(view.know(Link), np.arange(rounds)))
    if Releases in view.kinds:
        return view.knowing(view.know(Releases).first(rounds))
    return view.knowing(view.know(Sums).first(rounds))


def by_rounds(
    recording: Recording,
    threat: Threat,
    audit: Audit,
    progress: Progress = lambda what, done, total: None,
    kept: Kept = NOTHING_KEPT,
    budget: float | None = None,
    attacks: Iterable[str | Attack] = (),
) -> tuple[Heard | Failed | Skipped, ...]:
    """What the strongest attack on each secret learns from ever more rounds, the last: all of them.

    ``attacks``: as given to the audit.

    A number of rounds with which the attack cannot run is left out, and so are attacks that search
    for minutes; one with which it fails, or takes more than ``budget`` seconds, is listed as such.
    """
    check_budget(budget)
    recipe = told_of(recording)
    if recipe is None:
        raise FixRecording(f"{recording.path}: has no training recipe; nothing is scored")
    chosen = _strongest(audit)
    truth = recording.truth()
    known = {attack.name: attack for attack in chosen_attacks(tuple(attacks))}
    found: list[Heard | Failed | Skipped] = []
    for done, best in enumerate(chosen):
        target = _target(recording, best)
        if target is None or target.asked.together:  # its guess has evidence by round
            continue
        cost = estimate(len(prefixes(len(recording.rounds))) * best.seconds)
        progress(f"{target.key}, round by round: {best.attack}{cost}", done, len(chosen))

        def line(best: Finding = best, target: Target = target) -> list[Heard | Failed | Skipped]:
            attack = known[best.attack]
            return _line(recording, threat, target, best, attack, recipe, truth, budget)

        found += kept.parts(Heard, line, target.key, best.client, key_of(known[best.attack]))
    progress("rounds", len(chosen), len(chosen))
    return tuple(found)


def _line(
    recording: Recording,
    threat: Threat,
    target: Target,
    best: Finding,
    attack: Attack,
    recipe: Told,
    truth: Mapping[str, Records],
    budget: float | None,
) -> list[Heard | Failed | Skipped]:
    """One attack on one client, with ever more rounds, where its answer does not flag itself."""
    seed = best.seed
    view = observe(recording, threat, target, best.client)
    listens = [kind for kind in LISTENING if kind in attack.needs & view.kinds]
    if is_slow(attack) or not listens:
        return []
    scorer = scorer_of(recipe, truth, target, view, seed, answers_in(recording, target))
    heard = len(view.know(listens[0]))
    found: list[Heard | Failed | Skipped] = []
    for rounds in prefixes(heard):

        def run(rounds: int = rounds) -> Heard:
            guess = launch(attack, first_rounds(view, rounds), seed)
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
    shared = ("attack", "question", "client", "attribute", "metric", "value", "low", "high")
    return Heard(rounds=rounds, **{name: getattr(finding, name) for name in shared})


def _strongest(audit: Audit) -> list[Finding]:
    """Per secret: the attack best over all clients, where it is best over them."""
    attacks = audit.listening
    best: dict[tuple[str, str | None, str], tuple[float, str]] = {}
    for row in audit.pooled:
        key = (row.question, row.attribute, row.metric)
        score = row.measure.sign * row.value
        if row.attack in attacks and not row.flag and score > best.get(key, (-np.inf, ""))[0]:
            best[key] = (score, row.attack)
    chosen = []
    for asked, (_, attack) in best.items():
        of = [
            f
            for f in audit.findings
            if (f.question, f.attribute, f.metric) == asked and f.attack == attack and not f.flag
        ]
        chosen.append(max(of, key=_gain))
    return chosen


def _gain(found: Finding) -> float:
    return found.measure.sign * found.value if found.lift is None else found.lift


def _target(recording: Recording, found: Finding) -> Target | None:
    asked = by_question(targets_in(recording.targets)).get(found.question, [])
    same = [t for t in asked if (t.column or None) == found.attribute]
    return next(iter(same or asked), None)
