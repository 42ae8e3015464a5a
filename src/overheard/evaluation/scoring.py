"""From a guess and the truth to a finding: one scorer per question.

What does not depend on the attack (the optimum, the baselines) is computed once per client and
target, when its scorer is made.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixData, FixRecording
from overheard.evaluation import metrics
from overheard.evaluation.baselines import (
    imputation,
    imputed_label_errors,
    majority_share,
    strange_group_means,
)
from overheard.evaluation.bounds import algorithm3_bound
from overheard.evaluation.evidence import share_p_value
from overheard.evaluation.intervals import mean_interval, share_interval
from overheard.evaluation.record import Finding
from overheard.evaluation.sureness import Posterior, oversure, sureness
from overheard.learning.recipe import Recipe
from overheard.learning.records import Records
from overheard.randomness import stream
from overheard.transcript.guess import (
    AttributeValues,
    GroupMeans,
    LabelValues,
    LocalModel,
    Membership,
)
from overheard.transcript.knowledge import (
    AttributeDomain,
    CandidatePool,
    Groups,
    Link,
    PublicRecords,
)
from overheard.transcript.observe import MEMBER_COLUMN
from overheard.transcript.target import Target
from overheard.transcript.view import Attack, View

Array = NDArray[np.float64]

AT_INFINITY = "at infinity (separable records): all are compared under a penalty of 1 / records"
"""What is said of an optimum that does not exist."""


@dataclass(frozen=True)
class Scored:
    """A finding and the scores behind it, one per unit (kept to pool over clients).

    ``records``: a digest of the records that are the units, in their order, where they are.
    """

    finding: Finding
    units: Array
    imputed: Array | None
    posterior: Posterior | None = None
    records: str = ""


Scorer = Callable[[Attack, Any, float], Scored]


@dataclass(frozen=True)
class _About:
    """One client under one target: what every finding about it shares."""

    recipe: Recipe
    truth: Mapping[str, Records]
    target: Target
    view: View
    seed: int
    pools: Mapping[str, Records] | None = None
    rows: bool = False

    @property
    def records(self) -> Records:
        return self.truth[self.view.client]

    @cached_property
    def identity(self) -> str:
        """A digest of the records that are asked about, in their order, with their secrets."""
        view, total = self.view, hashlib.sha256()
        tables = [self.records]
        if self.pools is not None:
            pool = view.know(CandidatePool)
            tables = [self.pools[view.client], pool.records, Records({"": pool.labels})]
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
            "client": self.view.client,
            "attribute": self.target.column or None,
            "n": len(self.records),
            "seconds": seconds,
            "seed": self.seed,
        }
        if Link in attack.needs and Link in self.view.kinds:
            heard = {"rounds_heard": len(self.view.know(Link))}
            scores["details"] = {**scores.get("details", {}), **heard}
        return Finding(**(shared | scores))

    def share_of(
        self, hits: Array, majority: float, imputation: float | None = None
    ) -> dict[str, Any]:
        """The share guessed right with its interval, beside what needs no listening."""
        low, high = share_interval(hits)
        accuracy = float(hits.mean())
        return {
            "metric": "accuracy",
            "value": accuracy,
            "low": low,
            "high": high,
            "majority": majority,
            "imputation": imputation,
            "lift": accuracy - max(majority, imputation or 0.0),
        }

    def scored(
        self,
        attack: Attack,
        seconds: float,
        share: dict[str, Any],
        details: Mapping[str, float | int | str],
        hits: Array,
        claimed: Posterior | None,
        imputed: Array | None,
    ) -> Scored:
        """A share with what the attack claims to know, where it claims anything that holds.

        What an answer that flags itself says of single records is not worth repeating, nor is what
        the truth contradicts.
        """
        told = finite(details)
        if claimed is not None and "flag" not in told and (gap := oversure(claimed)):
            told["oversure"] = gap
        if "flag" in told or "oversure" in told:
            claimed = None
        evidence = None if claimed is None else claimed.evidence
        if claimed is not None:
            told["bits_gained"] = float(claimed.bits.mean())
        reference = max(share["majority"], share["imputation"] or 0.0)
        # who claims something pays for two tests, also where the truth contradicts the claim
        tested = 0.0 if "oversure" in told else evidence
        p = share_p_value(int(hits.sum()), len(hits), reference, tested)
        return Scored(
            self.finding(
                attack,
                seconds,
                **share,
                details=told,
                sure=None if claimed is None else sureness(claimed, rows=self.rows),
                evidence=evidence,
                p_value=None if "flag" in told else p,
            ),
            hits,
            imputed,
            claimed,
            self.identity,
        )

    def mean_of(self, units: Array, attack: Attack) -> dict[str, float]:
        """The mean of per-unit scores with its interval."""
        rng = stream(self.seed, "interval", attack.name, self.view.client)
        low, high = mean_interval(units, rng)
        value = float(units.mean())
        return {"value": value, "low": min(low, value), "high": max(high, value)}


def scorer_of(
    recipe: Recipe,
    truth: Mapping[str, Records],
    target: Target,
    view: View,
    seed: int,
    pools: Mapping[str, Records] | None = None,
    rows: bool = False,
) -> Scorer:
    """What scores guesses about this client and target; ``pools``: who is a member, by client.
    ``rows``: name the rows of the records known for certain.

    An attribute is asked of the records that the adversary knows: the first ones of the truth.
    """
    if view.client not in truth:
        raise FixData(f"truth/ has no records of client {view.client!r}, so nothing is scored")
    if target.question == "attribute" and PublicRecords in view.kinds:
        known, records = len(view.know(PublicRecords).records), truth[view.client]
        truth = {**truth, view.client: records.take(np.arange(min(known, len(records))))}
    about = _About(recipe, truth, target, view, seed, pools, rows)
    scorers = {
        "local_model": _models,
        "attribute": _attributes,
        "label": _labels,
        "membership": _members,
    }
    return scorers[target.question](about)


def _models(about: _About) -> Scorer:
    recipe, records = about.recipe, about.records
    if not recipe.model.linear:
        raise FixData("a network's own optimum is not unique, so a guess at it cannot be scored")
    if len(records) <= recipe.model.size:
        raise FixData(
            f"client {about.view.client!r} has {len(records)} records for {recipe.model.size} "
            "parameters: its own optimum is not unique, so a guess at it cannot be scored"
        )
    optimum, penalty = metrics.comparable_optimum(recipe, records)
    infinite = {"optimum": AT_INFINITY} if penalty else {}

    def score(attack: Attack, guess: LocalModel, seconds: float) -> Scored:
        units = metrics.excess_losses(recipe, guess, optimum, records, penalty)
        distance = np.linalg.norm(guess.parameters - optimum) / np.linalg.norm(optimum)
        details = finite({**guess.diagnostics, **infinite, "relative_distance": float(distance)})
        scores = about.mean_of(units, attack)
        return Scored(
            about.finding(attack, seconds, metric="excess_loss", details=details, **scores),
            units,
            None,
        )

    return score


def _attributes(about: _About) -> Scorer:
    recipe, truth, name = about.recipe, about.truth, about.target.column
    column = about.records[name]
    cut: dict[str, str] = {}
    if AttributeDomain in about.view.kinds:
        domain = about.view.know(AttributeDomain)
        values = domain.values
        if domain.spread:
            cut["right_is"] = f"the right one of {len(values)} ranges: {'; '.join(domain.words)}"
    else:
        values = tuple(sorted({v for r in truth.values() for v in r[name].tolist()}))
    majority = majority_share(column, values)
    stranger = imputation(recipe, truth, about.view.client, name, values, about.seed)
    share_imputed = None if stranger is None else float(stranger.hits.mean())
    bound = algorithm3_bound(recipe, about.records, name, values)
    own = metrics.log2_shares(column, values)

    def score(attack: Attack, guess: AttributeValues, seconds: float) -> Scored:
        hits = metrics.attribute_hits(guess, column)
        details: dict[str, float | int | str] = {
            "balanced_accuracy": metrics.balanced_accuracy(guess, column),
            **metrics.rare_value(guess, column),
            **guess.diagnostics,
            **cut,
        }
        claimed = None
        if guess.claims:
            bits = metrics.attribute_bits(guess, column)
            beyond = None if stranger is None else bits + own - stranger.log2
            claimed = Posterior(guess.probabilities.max(axis=1), hits, bits, beyond)
            details["calibration_error"] = metrics.calibration_error(guess, column)
        if guess.labels is not None:
            classes = about.records[recipe.target.column]
            details["label_accuracy"] = float(metrics.attribute_hits(guess.labels, classes).mean())
        about_it = about.share_of(hits, majority, share_imputed)
        about_it["bound"] = bound if attack.name == "model_based_linear" else None
        imputed = None if stranger is None else stranger.hits
        return about.scored(attack, seconds, about_it, details, hits, claimed, imputed)

    return score


def _members(about: _About) -> Scorer:
    """Share of the pool sorted right into members and strangers, and the members' attribute."""
    client, name = about.view.client, about.target.column
    if about.pools is None or client not in about.pools:
        raise FixRecording(f"truth/ does not say who of {client!r}'s pool is a member")
    answers = about.pools[client]
    member = answers[MEMBER_COLUMN] > 0.5
    if member.all() or not member.any():
        raise FixData(
            f"{client!r}: the pool of {len(member)} records has {int(member.sum())} members; "
            "give members and strangers, else there is nothing to tell apart"
        )
    majority = float(max(member.mean(), 1 - member.mean()))

    def score(attack: Attack, guess: Membership, seconds: float) -> Scored:
        if len(guess.probabilities) != len(member):
            raise FixData(f"{len(guess.probabilities)} guesses for a pool of {len(member)}")
        hits = np.asarray(guess.choice() == member, dtype=np.float64)
        posterior = _of_members(guess, member, hits)
        details: dict[str, float | int | str] = {
            **guess.diagnostics,
            "members_found": float(hits[member].mean()),
            "strangers_accused": float(1 - hits[~member].mean()),
        }
        if guess.attribute is not None and name:
            column = answers[name][member]
            values = guess.attribute.values
            inside = replace(guess.attribute, probabilities=guess.attribute.probabilities[member])
            details["attribute_accuracy"] = float(metrics.attribute_hits(inside, column).mean())
            details["attribute_majority"] = majority_share(column, values)
        about_it = about.share_of(hits, majority) | {"n": len(member)}
        return about.scored(attack, seconds, about_it, details, hits, posterior, None)

    return score


def _of_members(guess: Membership, member: NDArray[np.bool_], hits: Array) -> Posterior:
    """Bits as of an attribute: log2 of what was given to the truth over its share in the pool."""
    p = np.clip(guess.probabilities, 0.0, 1.0)
    given = np.maximum(np.where(member, p, 1 - p), 1e-6)
    share = np.where(member, member.mean(), 1 - member.mean())
    return Posterior(np.maximum(p, 1 - p), hits, np.log2(given) - np.log2(share))


def _labels(about: _About) -> Scorer:
    """Errors of labels, or of groups' mean labels; a stranger's are the baseline of each."""
    recipe, records, client = about.recipe, about.records, about.view.client
    labels = records[recipe.target.column]
    imputed = imputed_label_errors(recipe, about.truth, client, about.seed)
    sorting = about.view.know(Groups) if Groups in about.view.kinds else None
    strange: Array | None = None
    if sorting is not None:
        means = strange_group_means(recipe, about.truth, client, sorting.column, sorting.values)
        if means is not None:
            strange = metrics.group_mean_errors(
                means, sorting.values, records[sorting.column], labels
            )

    def score(attack: Attack, guess: GroupMeans | LabelValues, seconds: float) -> Scored:
        details = dict(guess.diagnostics)
        if isinstance(guess, GroupMeans):
            assert sorting is not None
            column = records[sorting.column]
            units = metrics.group_mean_errors(guess.means, guess.groups, column, labels)
            claims = metrics.in_groups_present(guess.sd, guess.groups, column)
            asked, stranger = sorting.column, strange
        else:
            units, claims = metrics.label_errors(guess, labels), guess.sd
            asked, stranger = None, imputed
        if np.isfinite(claims).all():
            details["covered"] = float(np.mean(units <= 1.96 * claims))
        scores = about.mean_of(units, attack)
        scores["low"] = max(scores["low"], 0.0)
        baseline = None if stranger is None else float(stranger.mean())
        return Scored(
            about.finding(
                attack,
                seconds,
                metric="mean_absolute_error",
                attribute=asked,
                imputation=baseline,
                lift=None if baseline is None else baseline - scores["value"],
                details=finite(details),
                **scores,
            ),
            units,
            stranger,
        )

    return score


def finite(details: Mapping[str, float | int | str]) -> dict[str, float | int | str]:
    """Details as plain JSON values; NaN and infinity are left out."""
    plain: dict[str, float | int | str] = {}
    for key, value in details.items():
        if isinstance(value, str):
            plain[key] = value
        elif np.isfinite(value):
            plain[key] = int(value) if isinstance(value, int | np.integer) else float(value)
    return plain
