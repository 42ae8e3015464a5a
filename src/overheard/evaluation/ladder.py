"""What would fewer rounds, or less knowledge of the clients, have shown the adversary?

Of every secret the attack that learned most over all clients is asked again, on the client where it
learned most: with the rounds observed cut to 1, 2, 5, 10, ..., the rest of the adversary's
knowledge as it is.

The knowledge ladder cuts what is known of a client: which columns, whether the labels, how many of
the records. Its first rung is the audit's own; the last knows only who might be there. On every
other rung `partial_decode` listens, beside imputation by who knows as much and does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from overheard.attacks import is_slow
from overheard.attacks.partial import PartialDecode
from overheard.data.dataset import together
from overheard.errors import FixConfig, GrantKnowledge
from overheard.evaluation.decision import best_of, strongest
from overheard.evaluation.parts import Asked, Part
from overheard.evaluation.record import Audit, Failed, Finding, Skipped
from overheard.evaluation.scoring import Case, Scored, Scorer, over_clients
from overheard.programs.records import Records
from overheard.questions.question import grouped
from overheard.randomness import stream
from overheard.transcript.kind import program_in
from overheard.transcript.knowledge import (
    AuxiliaryData,
    Labels,
    Messages,
    PublicRecords,
    Sums,
)
from overheard.transcript.store import Recording
from overheard.transcript.target import Target
from overheard.transcript.threat import Threat
from overheard.transcript.view import Attack, View, observe

# ------------------------------------------------------------------------------ fewer rounds


def prefixes(rounds: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50, ... below ``rounds``."""
    steps = (digit * 10**decade for decade in range(9) for digit in (1, 2, 5))
    return tuple(step for step in steps if step < rounds)


def messages(view: View) -> Any:
    """What the adversary observed: one client's messages, or sums of them."""
    return view.know(Messages if Messages in view.kinds else Sums)


def by_rounds(asked: Asked, record: Audit) -> list[Finding | Failed | Skipped]:
    """What the strongest attack on each secret learns from ever more rounds, the last: all of them.

    A number of rounds with which the attack cannot run is left out, and so are attacks
    that search for minutes; one with which it fails is listed as failed.
    """
    parts = []
    for best in _strongest(record):
        attack = next(a for a in asked.attacks if a.name == best.attack)
        target = asked.target_of(best)
        if not target.asked.together and not is_slow(attack):  # else: has evidence by round itself
            key = ("rounds", target.key, str(best.client), asked.key_of(attack))
            line = partial(_curve, target, attack, best)
            parts.append(Part(f"{target.key}, by rounds: {attack.name}", line, key))
    return asked.found_by(parts)


def _strongest(record: Audit) -> Iterator[Finding]:
    """Per secret: the attack strongest over all clients, where it learned most."""
    for best in best_of(row for row in record.pooled if row.reliable).values():
        about = (f for f in record.findings if f.key[:2] == best.key[:2] and f.reliable)
        if found := strongest(about):
            yield found


def _curve(
    target: Target, attack: Attack, best: Finding, asked: Asked
) -> Iterator[Finding | Failed | Skipped]:
    """One attack on one client, with ever more rounds, where its answer does not flag itself."""
    client = str(best.client)
    view, scorer = asked.case(target, client)
    observed = messages(view)

    def case(rounds: int) -> tuple[View, Scorer]:
        return view.knowing(observed.first(rounds)), scorer

    for rounds in prefixes(len(observed)):
        doing, one = f"with the first {rounds} rounds alone", partial(case, rounds)
        found = asked.tried(attack, target, client, one, doing)
        if isinstance(found, Scored) and not found.finding.flag:
            yield found.finding.model_copy(update={"rounds": rounds})
        elif isinstance(found, Failed):
            yield found
    yield best.model_copy(update={"rounds": len(observed), "level": None, "why": ""})


# ---------------------------------------------------------------------------- less knowledge

DEMOGRAPHICS = frozenset(
    "age sex gender female male race black white ethnicity hispanic marital married education educ "
    "region state country native nationality birth child children family household".split()
)
"""Words in the names of columns that a register of residents has."""


@dataclass(frozen=True)
class Rung:
    """``columns``: which of the public ones; ``records``: the share that is known. The report's
    words say who that is."""

    name: str
    columns: Literal["all", "demographics", "none"] = "all"
    labels: bool = True
    records: float = 1.0


BRIEF = ("half", "schema")
"""What an audit asks by itself, of the secret of which most was learned, where it takes seconds."""
RUNGS = (
    Rung("colleague"),
    Rung("half", records=0.5),
    Rung("registry", "demographics"),
    Rung("demographics", "demographics", labels=False),
    Rung("schema", "none", labels=False),
)


def with_others(recording: Recording, view: View) -> View:
    """The same adversary, who knows people like the client's. Where the recording has no auxiliary
    records, the other clients' stand for them, as they do for imputation."""
    recipe = program_in(recording)
    if AuxiliaryData in view.kinds or recipe is None:
        return view
    others = [table for who, table in recording.truth().items() if who != view.client]
    if not others:
        raise GrantKnowledge(
            "nobody like the client's people is known: no other client, and no auxiliary records"
        )
    return view.knowing(AuxiliaryData.split(together(*others), recipe.target.column))


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
    if Labels not in view.kinds:
        raise GrantKnowledge("the knowledge ladder is not asked of labels")
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


def case_on(
    rung: Rung,
    recording: Recording,
    threat: Threat,
    target: Target,
    client: str,
    demographics: tuple[str, ...] = (),
    seed: int = 0,
) -> tuple[View, Scorer]:
    """What an adversary on this rung holds of a client, and what scores its guesses: beside those
    of somebody who knows as much and does not listen."""
    view = with_others(recording, observe(recording, threat, target, client))
    named = demographic(view.know(PublicRecords).records.columns, demographics)
    view, known = lowered(view, rung, named, seed)
    recipe, records = program_in(recording), recording.truth()[client].take(known)
    assert recipe is not None  # without one nothing is scored
    return view, Case(recipe, {client: records}, target, view, seed).scorer()


def by_knowledge(
    asked: Asked, record: Audit, scored: Sequence[Scored]
) -> list[Finding | Failed | Skipped]:
    """Of every attribute and client of an audit, what is learned on each rung.

    A rung on which nothing can be decoded is listed as skipped, with the reason. All clients
    together: one of which an answer must not be relied on is left out of every rung, so that all
    are of the same people; where that would leave nobody, out of its own rung only.
    """
    about = [f for f in record.findings if f.question == PartialDecode.question]
    best: Iterable[Finding] = best_of(f for f in about if f.attack in record.listening).values()
    if asked.options.ladder == "brief":
        one = strongest(f for f in _strongest(record) if f.question == PartialDecode.question)
        best = [one] if one else []
    behind, parts = {s.finding.key: s for s in scored}, []
    for top in best:
        name, key = f"{top.attribute} of {top.client}, by what is known", top.key[1:]
        parts.append(Part(name, partial(_lower, top), ("ladder", *map(str, key))))
    made = [_on(RUNGS[0], behind[top.key]) for top in best] + asked.found_by(parts)
    answers = [one for one in made if isinstance(one, Scored)]
    flagged = {(f.attribute, f.client) for s in answers if (f := s.finding).flag}
    over_all = []
    for same_rung in grouped(answers, lambda s: (s.finding.attribute, s.finding.rung)).values():
        same = [s for s in same_rung if (s.finding.attribute, s.finding.client) not in flagged]
        whole = over_clients(same or same_rung)
        elsewhere = len(same_rung) - len(same) if same else 0
        over_all.append(whole.model_copy(update={"flagged": whole.flagged + elsewhere}))
    return [*(one.finding if isinstance(one, Scored) else one for one in made), *over_all]


def _lower(top: Finding, asked: Asked) -> Iterator[Scored | Failed | Skipped]:
    """The attribute and client of a finding, on every rung but the first."""
    client, target, options = str(top.client), asked.target_of(top), asked.options
    brief = options.ladder == "brief"
    for rung in RUNGS[1:] if not brief else [r for r in RUNGS if r.name in BRIEF]:
        if brief and rung.columns != "all" and top.n > options.brief_records:
            reason = f"as {rung.name}: would take minutes; --ladder asks it of every client"
            about = {"attack": PartialDecode.name, "client": client, "attribute": top.attribute}
            yield Skipped(**about, reason=reason, doing=f"as {rung.name}")  # type: ignore[arg-type]
            continue
        this = (rung, asked.recording, asked.threat, target, client)
        case = partial(case_on, *this, options.demographics, options.seed)
        found = asked.tried(PartialDecode(), target, client, case, f"as {rung.name}")
        yield _on(rung, found) if isinstance(found, Scored) else found


def _on(rung: Rung, scored: Scored) -> Scored:
    return replace(scored, finding=scored.finding.model_copy(update={"rung": rung.name}))
