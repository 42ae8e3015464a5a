"""How much must one know? What is learned of a client, by what is known of it.

A rung says how much less its adversary knows than the audit's: which columns, whether the labels,
how many of the records. The first is the audit's own; the last knows
only who might be there. On every other rung `partial_decode` listens, beside a stranger who knows
as much and does not.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.attribute.partial_decode import PartialDecode
from overheard.attacks.stranger import beforehand
from overheard.errors import FixConfig, GrantKnowledge
from overheard.evaluation.attempt import NOT_RUN, attempt
from overheard.evaluation.audit import AuditOptions
from overheard.evaluation.intervals import share_interval
from overheard.evaluation.judged import best_of, judge
from overheard.evaluation.record import Audit, Climbed, Failed, Finding, Skipped
from overheard.evaluation.resume import NOTHING_KEPT, Kept
from overheard.evaluation.sureness import BEYOND
from overheard.programs.records import Records
from overheard.questions.question import grouped
from overheard.randomness import stream
from overheard.transcript.knowledge import (
    AttributeDomain,
    AuxiliaryData,
    Labels,
    PublicRecords,
)
from overheard.transcript.observe import observe, told_of
from overheard.transcript.store import Recording
from overheard.transcript.target import attribute
from overheard.transcript.threat import Threat
from overheard.transcript.view import Attack, View, launch

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


def with_strangers(recording: Recording, view: View) -> View:
    """The same adversary, who knows people like the client's. Where the recording has no auxiliary
    records, the other clients' stand for them, as they do for a stranger."""
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
    best = [
        j.finding
        for j in best_of(j for j in judge(audit).findings if not j.baseline).values()
        if isinstance(j.finding, Finding) and j.topic.question == PartialDecode.question
    ]
    found_on: list[Climbed | Failed | Skipped] = []
    for done, top in enumerate(best):
        options.progress(f"{top.attribute} of {top.client}, by what is known", done, len(best))
        line = partial(_line, recording, threat, top, options.demographics, options.budget)
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
            **{name: mean(name) for name in ("majority", "stranger", "confidence")},
            **{k: sum(getattr(r, k) for r in of) for k in ("certain", "certain_right", "seconds")},
        }
    )


def _line(
    recording: Recording,
    threat: Threat,
    top: Finding,
    demographics: tuple[str, ...],
    budget: float | None,
) -> list[Climbed | Failed | Skipped]:
    """One attribute of one client, rung by rung."""
    made: list[Climbed | Failed | Skipped] = [_colleague(top)]
    about: dict[str, Any] = {
        "attack": PartialDecode.name,
        "client": top.client,
        "attribute": top.attribute,
    }
    for rung in RUNGS[1:]:
        run = partial(_climbed, recording, threat, top, rung, demographics)
        try:
            made.append(attempt(run, **about, doing=f"as {rung.name}", budget=budget))
        except NOT_RUN as error:
            made.append(Skipped(**about, reason=f"as {rung.name}: {error}"))
    return made


def _colleague(found: Finding) -> Climbed:
    """The first rung: what the audit found."""
    same = ("attack", "client", "n", "value", "low", "high", "majority", "seconds", "flag")
    return Climbed(
        rung=RUNGS[0].name,
        words=RUNGS[0].words,
        attribute=str(found.attribute),
        stranger=found.imputation,
        certain=found.sure.certain if found.sure else 0,
        certain_right=found.sure.certain_right if found.sure else 0,
        **{name: getattr(found, name) for name in same},
    )


def _climbed(
    recording: Recording, threat: Threat, top: Finding, rung: Rung, demographics: tuple[str, ...]
) -> Climbed:
    """What is learned on a lower rung, about the attribute and client of a finding."""
    view = with_strangers(
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
        stranger=float((beforehand(view).argmax(axis=1) == truth).mean()),
        confidence=float(sure.mean()),
        certain=int((sure > BEYOND).sum()),
        certain_right=int(right[sure > BEYOND].sum()),
        seconds=seconds,
        flag=str(guess.diagnostics.get("flag", "")),
    )
    return found, sure, right
