"""The whole audit: every attack, and what fewer rounds or less knowledge would have told.

What ``overheard audit`` runs and `overheard.audit` returns are the same. Of every secret the attack
that learned most over all clients is asked again, on the client where it learned most: with the
rounds observed cut to 1, 2, 5, 10, ..., the rest of the adversary's knowledge as it is.

The knowledge ladder cuts what is known of a client: which columns, whether the labels, how many of
the records. Its first rung is the audit's own; the last knows only who might be there. On every
other rung `partial_decode` listens, beside imputation by who knows as much and does not.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from overheard.attacks import is_slow, listens
from overheard.attacks.partial import PartialDecode
from overheard.attacks.prior import imputed_prior
from overheard.errors import FixConfig, GrantKnowledge, ListenLonger
from overheard.evaluation.attempt import NOT_RUN, attempt
from overheard.evaluation.audit import AuditOptions, chosen_attacks, key_of
from overheard.evaluation.audit import audit as run_attacks
from overheard.evaluation.baselines import Imputer
from overheard.evaluation.calibration import BEYOND
from overheard.evaluation.decision import best_of, strongest
from overheard.evaluation.intervals import share_interval
from overheard.evaluation.record import Audit, Climbed, Failed, Finding, Heard, Skipped
from overheard.evaluation.resume import NOTHING_KEPT, Kept
from overheard.evaluation.scoring import Scoring, answers_in, scorer_of
from overheard.programs.records import Records
from overheard.questions.question import by_question, grouped
from overheard.randomness import stream
from overheard.transcript.kind import told_of
from overheard.transcript.knowledge import (
    AttributeDomain,
    AuxiliaryData,
    Labels,
    Messages,
    PublicRecords,
    SummedMessages,
)
from overheard.transcript.store import Recording
from overheard.transcript.target import Target, attribute, targets_in
from overheard.transcript.threat import Threat
from overheard.transcript.view import Attack, View, launch, observe


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
    given, options = tuple(attacks), replace(options, imputer=Imputer(options.seed))
    record = run_attacks(recording, threat, given, clients, targets, options, kept)
    if options.rounds and record.findings:
        record = record.adding(by_rounds(recording, threat, record, options, kept, given))
    if options.ladder:
        record = record.adding(by_knowledge(recording, threat, record, options, kept))
    return record


# ------------------------------------------------------------------------------ fewer rounds


def prefixes(rounds: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50, ... below ``rounds``."""
    steps = (digit * 10**decade for decade in range(9) for digit in (1, 2, 5))
    return tuple(step for step in steps if step < rounds)


def first_rounds(view: View, rounds: int) -> View:
    """The same adversary, who stopped listening after so many rounds with the client."""
    return view.knowing(_messages(view).first(rounds))


def _messages(view: View) -> Any:
    """What the adversary heard: one client's messages, or sums of them."""
    return view.know(SummedMessages) if view.lacks([Messages]) else view.know(Messages)


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
    chosen = list(_strongest(audit))
    known = {attack.name: attack for attack in chosen_attacks(tuple(attacks))}
    found: list[Heard | Failed | Skipped] = []
    for done, best in enumerate(chosen):
        target, attack = _target(recording, best), known[best.attack]
        if target is None or target.asked.together:  # its guess has evidence by round
            continue
        options.progress(f"{target.key}, round by round: {best.attack}", done, len(chosen))
        line = partial(_curve, recording, threat, target, best, attack, options)
        found += kept.parts(line, "rounds", target.key, best.client, key_of(attack))
    options.progress("rounds", len(chosen), len(chosen))
    return tuple(found)


def _curve(
    recording: Recording,
    threat: Threat,
    target: Target,
    best: Finding,
    attack: Attack,
    options: AuditOptions,
) -> list[Heard | Failed | Skipped]:
    """One attack on one client, with ever more rounds, where its answer does not flag itself."""
    view, recipe = observe(recording, threat, target, best.client), told_of(recording)
    if is_slow(attack) or not listens(attack):
        return []
    assert recipe is not None  # without one there is no audit
    answers, how = answers_in(recording, target), Scoring(imputer=options.imputer)
    scorer = scorer_of(recipe, recording.truth(), target, view, best.seed, answers, how)
    heard = len(_messages(view))
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
            found.append(
                attempt(run, attack.name, best.client, best.attribute, doing, options.budget)
            )
        except NOT_RUN:
            continue
    return [*found, _heard(best, heard)]


def _heard(finding: Finding, rounds: int) -> Heard:
    same = finding.model_dump(include=set(Heard.model_fields))
    return Heard(rounds=rounds, **same)


def _strongest(audit: Audit) -> Iterator[Finding]:
    """Per secret: the attack strongest over all clients, where it learned most."""
    for best in best_of(row for row in audit.pooled if row.reliable).values():
        same = (best.topic, best.attack)
        worst = strongest(f for f in audit.findings if f.reliable and (f.topic, f.attack) == same)
        if worst is not None:
            yield worst


def _target(recording: Recording, found: Finding) -> Target | None:
    asked = by_question(targets_in(recording.targets)).get(found.question, [])
    same = [t for t in asked if (t.column or None) == found.attribute]
    return next(iter(same or asked), None)


# ---------------------------------------------------------------------------- less knowledge

DEMOGRAPHICS = frozenset(
    "age sex gender female male race black white ethnicity hispanic marital married education educ "
    "region state country native nationality birth child children family household".split()
)
"""Words in the names of columns that a register of residents has."""


@dataclass(frozen=True)
class Rung:
    """``columns``: which of the public ones; ``records``: the share that is known."""

    name: str
    words: str
    columns: Literal["all", "demographics", "none"] = "all"
    labels: bool = True
    records: float = 1.0


RUNGS = (
    Rung("colleague", "knows every record, all but the attribute"),
    Rung("half", "knows half of the records", records=0.5),
    Rung("registry", "knows of everybody the demographics and the label", "demographics"),
    Rung("demographics", "knows of everybody the demographics", "demographics", labels=False),
    Rung("schema", "knows how many records there are, and people like them", "none", labels=False),
)


def with_others(recording: Recording, view: View) -> View:
    """The same adversary, who knows people like the client's. Where the recording has no auxiliary
    records, the other clients' stand for them, as they do for imputation."""
    recipe = told_of(recording)
    if AuxiliaryData in view.kinds or recipe is None:
        return view
    others = [table for who, table in recording.truth().items() if who != view.client]
    if not others:
        raise GrantKnowledge(
            "nobody like the client's people is known: no other client, and no auxiliary records"
        )
    together = {n: np.concatenate([table[n] for table in others]) for n in others[0].columns}
    return view.knowing(AuxiliaryData.split(Records(together), recipe.target.column))


def demographic(columns: Iterable[str], named: Iterable[str] = ()) -> tuple[str, ...]:
    """The columns that are demographics: those named, else those whose names say so."""
    there = tuple(columns)
    if wrong := [name for name in named if name not in there]:
        raise FixConfig(f"no public column {wrong[0]!r}; there are {', '.join(there)}")
    spaced = {name: name.lower().replace("-", "_").replace(".", "_").split("_") for name in there}
    return tuple(named) or tuple(n for n, words in spaced.items() if DEMOGRAPHICS & set(words))


def lowered(
    view: View, rung: Rung, demographics: tuple[str, ...], seed: int
) -> tuple[View, NDArray[Any]]:
    """The view of an adversary on this rung, and which of the client's records it knows of."""
    records, labels = view.know(PublicRecords).records, view.know(Labels).values
    rng = stream(seed, "rung", rung.name, view.client, view.target.key)
    known = np.arange(len(labels))
    if rung.records < 1:
        known = np.sort(rng.permutation(known)[: max(2, round(rung.records * len(known)))])
        records, labels = records.take(known), labels[known]
    if rung.columns == "none":
        records = Records({"record": known.astype(np.float64)})  # how many, and nothing else
    if rung.columns == "demographics":
        if not demographics:
            raise GrantKnowledge("no column is called like a demographic one; name them")
        records = records.only(demographics)
    view = view.knowing(PublicRecords(records), Labels(labels))
    return (view if rung.labels else view.narrowed(view.kinds - {Labels})), known


def by_knowledge(
    recording: Recording,
    threat: Threat,
    audit: Audit,
    options: AuditOptions = AuditOptions(),
    kept: Kept = NOTHING_KEPT,
) -> tuple[Climbed | Failed | Skipped, ...]:
    """Of every attribute and client of an audit, what is learned on each rung.

    A rung on which nothing can be decoded is listed as skipped, with the reason.
    """
    asked = (f for f in audit.findings if f.question == PartialDecode.question)
    best = list(best_of(f for f in asked if f.attack in audit.listening).values())
    found_on: list[Climbed | Failed | Skipped] = []
    for done, top in enumerate(best):
        options.progress(f"{top.attribute} of {top.client}, by what is known", done, len(best))
        line = partial(_rungs, recording, threat, top, options.demographics, options.budget)
        found_on += kept.parts(line, "ladder", str(top.attribute), top.client)
    options.progress("ladder", len(best), len(best))
    return (*found_on, *_pooled([one for one in found_on if isinstance(one, Climbed)]))


def _pooled(found: Sequence[Climbed]) -> Iterator[Climbed]:
    """Every rung of every attribute, all clients together (client "").

    A client of which an answer must not be relied on is left out of every rung, so that all are of
    the same people; where that would leave nobody, out of its own rung only.
    """
    flagged = {(one.attribute, one.client) for one in found if one.flag}
    for line in grouped(found, lambda one: (one.attribute, one.rung)).values():
        same = [one for one in line if (one.attribute, one.client) not in flagged]
        yield _together(same or [one for one in line if not one.flag] or line)


def _together(of: Sequence[Climbed]) -> Climbed:
    """One rung over several clients."""
    sizes = np.array([one.n for one in of])
    right = round(sum(one.value * one.n for one in of))
    low, high = share_interval((np.arange(sizes.sum()) < right).astype(np.float64))

    def mean(name: str) -> float | None:
        known = [getattr(one, name) for one in of]
        return None if None in known else float(np.average(known, weights=sizes))

    return of[0].model_copy(
        update={
            "client": "",
            "n": int(sizes.sum()),
            "value": right / int(sizes.sum()),
            "low": low,
            "high": high,
            **{name: mean(name) for name in ("majority", "imputation", "confidence")},
            **{k: sum(getattr(r, k) for r in of) for k in ("certain", "certain_right", "seconds")},
        }
    )


def _rungs(
    recording: Recording,
    threat: Threat,
    top: Finding,
    demographics: tuple[str, ...],
    budget: float | None,
) -> list[Climbed | Failed | Skipped]:
    """One attribute of one client, rung by rung."""
    made: list[Climbed | Failed | Skipped] = [_colleague(top)]
    name, client, secret = PartialDecode.name, top.client, top.attribute
    for rung in RUNGS[1:]:
        run = partial(_climbed, recording, threat, top, rung, demographics)
        try:
            made.append(attempt(run, name, client, secret, f"as {rung.name}", budget))
        except NOT_RUN as error:
            why = f"as {rung.name}: {error}"
            made.append(Skipped(attack=name, client=client, attribute=secret, reason=why))
    return made


def _colleague(found: Finding) -> Climbed:
    """The first rung: what the audit found."""
    same = ("attack", "client", "n", "value", "low", "high", "majority", "seconds", "flag")
    return Climbed(
        rung=RUNGS[0].name,
        words=RUNGS[0].words,
        attribute=str(found.attribute),
        imputation=found.imputation,
        certain=found.calibration.certain if found.calibration else 0,
        certain_right=found.calibration.certain_right if found.calibration else 0,
        **{name: getattr(found, name) for name in same},
    )


def _climbed(
    recording: Recording, threat: Threat, top: Finding, rung: Rung, demographics: tuple[str, ...]
) -> Climbed:
    """What is learned on a lower rung, about the attribute and client of a finding."""
    view = with_others(
        recording, observe(recording, threat, attribute(str(top.attribute)), top.client)
    )
    named = demographic(view.know(PublicRecords).records.columns, demographics)
    view, known = lowered(view, rung, named, top.seed)
    truth = view.know(AttributeDomain).positions(recording.truth()[top.client])[known]
    return learned(view, rung, PartialDecode(), top.seed, truth)[0]


def learned(
    view: View, rung: Rung, attack: Attack, seed: int, truth: NDArray[Any]
) -> tuple[Climbed, NDArray[np.float64], NDArray[np.bool_]]:
    """What an attack on a lowered view finds; for each record how sure it is and whether right.

    ``truth``: positions of the known records' values, which are looked at here only.
    """
    begin = time.process_time()
    guess = launch(attack, view, seed)
    seconds = time.process_time() - begin
    right, sure = guess.probabilities.argmax(axis=1) == truth, guess.probabilities.max(axis=1)
    low, high = share_interval(right)
    flag = str(guess.diagnostics.get("flag", ""))
    certain = (sure > BEYOND) & (not flag)  # what a flagged answer claims is not repeated
    found = Climbed(
        rung=rung.name,
        words=rung.words,
        attack=attack.name,
        client=view.client,
        attribute=str(view.target.column),
        n=len(truth),
        value=float(right.mean()),
        low=low,
        high=high,
        majority=float(np.bincount(truth).max() / len(truth)),
        imputation=float((imputed_prior(view).argmax(axis=1) == truth).mean()),
        confidence=None if flag else float(sure.mean()),
        certain=int(certain.sum()),
        certain_right=int(right[certain].sum()),
        seconds=seconds,
        flag=flag,
    )
    return found, sure, right
