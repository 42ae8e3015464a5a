"""From a guess and the truth to a finding: what the scorers of all questions share.

What does not depend on the attack (the optimum, the baselines) is computed once per client and
target, when its scorer is made. Each question's own scorer stands in its file in `questions`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixData
from overheard.evaluation.baselines import Imputer
from overheard.evaluation.calibration import Posterior, Scores, calibration, overconfident
from overheard.evaluation.decision import share_p_value
from overheard.evaluation.intervals import mean_interval, share_interval
from overheard.evaluation.record import Finding
from overheard.programs.program import Told
from overheard.programs.records import Records
from overheard.questions.question import Question, question_named
from overheard.randomness import stream
from overheard.transcript.knowledge import CandidatePool, Messages, SummedReleases, listens
from overheard.transcript.store import Recording
from overheard.transcript.target import Target, joined
from overheard.transcript.view import Attack, View

Array = NDArray[np.float64]
ALL_CLIENTS = "all clients"
"""The client of a finding about all of them together."""


@dataclass(frozen=True)
class Scored:
    """A finding and the scores behind it, one per unit (kept to pool over clients).

    ``records``: a digest of the records that are the units, in their order, where they are.
    """

    finding: Finding
    units: Scores
    imputed: Scores | None
    posterior: Posterior | None = None
    records: str = ""


Scorer = Callable[[Attack, Any, float], Scored]


@dataclass(frozen=True)
class Scoring:
    """What all scores of an audit share. ``rows``: name the rows of the records known for certain.
    ``imputer``: the imputation baselines, each fitted once for the whole audit."""

    rows: bool = False
    imputer: Imputer | None = None


@dataclass(frozen=True)
class Case:
    """One client (or all of them) under one target: what every finding about it shares.

    ``truth``: the clients' records. ``answers``: what ``truth/`` says beside them, by client, where
    the question needs it.
    """

    recipe: Told
    truth: Mapping[str, Records]
    target: Target
    view: View
    seed: int
    answers: Mapping[str, Records] | None = None
    how: Scoring = Scoring()

    @property
    def imputer(self) -> Imputer:
        return self.how.imputer or Imputer(self.seed)

    @property
    def question(self) -> Question:
        return question_named(self.target.question)

    @property
    def records(self) -> Records:
        return self.truth[self.view.client]

    @cached_property
    def identity(self) -> str:
        """A digest of the records that are asked about, in their order, with their secrets."""
        view, total = self.view, hashlib.sha256()
        tables = [self.records]
        if self.answers is not None:
            pool = view.know(CandidatePool)
            tables = [self.answers[view.client], pool.records, Records({"": pool.labels})]
        for table in tables:
            for name, values in table.columns.items():
                text = [name, str(values.dtype), str(values.shape)]
                total.update("\x1f".join(text).encode())
                total.update(np.ascontiguousarray(values).tobytes())
        return total.hexdigest()

    def finding(self, attack: Attack, seconds: float, **scores: Any) -> Finding:
        shared = {
            "attack": attack.name,
            "paper": attack.paper,
            "question": self.target.question,
            "threat": self.view.threat,
            "client": self.view.client or ALL_CLIENTS,
            "attribute": self.target.column or None,
            "metric": self.question.metric.name,
            "seconds": seconds,
            "seed": self.seed,
        }
        if "n" not in scores:
            shared["n"] = len(self.records)
        heard_by: tuple[type[Any], ...] = (Messages, SummedReleases)
        for kind in heard_by if listens(attack.needs) else ():
            if self.view.lacks([kind]):
                continue
            heard = {"rounds_heard": len(self.view.know(kind))}
            scores["details"] = {**scores.get("details", {}), **heard}
        return Finding(**(shared | scores))

    def scored_hits(
        self,
        attack: Attack,
        seconds: float,
        hits: Array,
        details: Mapping[str, float | int | str],
        claimed: Posterior | None,
        free: tuple[float, Array | None],
        **more: Any,
    ) -> Scored:
        """The share guessed right, with what the attack claims to know, where that holds.

        ``free``: what needs no listening, which is the share of the commonest value and which
        records a stranger gets right.

        What an answer that flags itself says of single records is not worth repeating, nor is what
        the truth contradicts.
        """
        told = finite(details)
        if claimed is not None and "flag" not in told and (gap := overconfident(claimed)):
            told["overconfident"] = gap
        if "flag" in told or "overconfident" in told:
            claimed = None
        evidence = None if claimed is None else claimed.evidence
        if claimed is not None:
            told["bits_gained"] = float(claimed.bits.mean())
        majority, imputed = free
        stranger = None if imputed is None else float(imputed.mean())
        reference = max(majority, stranger or 0.0)
        # who claims something pays for two tests, also where the truth contradicts the claim
        tested = 0.0 if "overconfident" in told else evidence
        p = share_p_value(int(hits.sum()), len(hits), reference, tested)
        scores = self.mean_of(hits, attack)
        found = self.finding(
            attack,
            seconds,
            **scores,
            majority=majority,
            imputation=stranger,
            lift=scores["value"] - reference,
            n=len(hits),
            details=told,
            calibration=None if claimed is None else calibration(claimed, rows=self.how.rows),
            evidence=evidence,
            p_value=None if "flag" in told else p,
            **more,
        )
        return Scored(found, hits, imputed, claimed, self.identity)

    def scored_units(
        self,
        attack: Attack,
        seconds: float,
        units: Array,
        details: Mapping[str, float | int | str],
        imputed: Array | None = None,
        **more: Any,
    ) -> Scored:
        """The mean of losses or errors, beside a stranger's where there is one."""
        scores, metric = self.mean_of(units, attack), self.question.metric
        stranger = None if imputed is None else float(imputed.mean())
        found = self.finding(
            attack,
            seconds,
            **scores,
            imputation=stranger,
            lift=None if stranger is None else metric.gain(scores["value"], stranger),
            details=finite(details),
            **more,
        )
        return Scored(found, units, imputed)

    def mean_of(self, units: Array, attack: Attack) -> dict[str, float]:
        rng = stream(self.seed, "interval", attack.name, self.view.client)
        hits, value = self.question.metric.hits, float(units.mean())
        low, high = share_interval(units) if hits else mean_interval(units, rng)
        low = max(low, 0.0)  # neither an error nor an excess over an optimum is negative
        return {"value": value, "low": min(low, value), "high": max(high, value)}


def scorer_of(
    recipe: Told,
    truth: Mapping[str, Records],
    target: Target,
    view: View,
    seed: int,
    answers: Mapping[str, Records] | None = None,
    how: Scoring = Scoring(),  # noqa: B008  # nobody can change it
) -> Scorer:
    asked = question_named(target.question)
    if not asked.together and view.client not in truth:
        raise FixData(f"truth/ has no records of client {view.client!r}, so nothing is scored")
    truth = {name: joined(records, target) for name, records in truth.items()}
    scorer: Scorer = asked.score(Case(recipe, truth, target, view, seed, answers, how))
    return scorer


def answers_in(recording: Recording, target: Target) -> Mapping[str, Records] | None:
    """What ``truth/`` says of a target beside the clients' records; None if nothing."""
    kind = question_named(target.question).truth
    held = bool(kind) and recording.holds_truth(kind, target.key)
    return recording.truth(kind, target.key) if held else None


def finite(details: Mapping[str, float | int | str]) -> dict[str, float | int | str]:
    """Details as plain JSON values; NaN and infinity are left out."""
    plain: dict[str, float | int | str] = {}
    for key, value in details.items():
        if isinstance(value, str):
            plain[key] = value
        elif np.isfinite(value):
            plain[key] = int(value) if isinstance(value, int | np.integer) else float(value)
    return plain
