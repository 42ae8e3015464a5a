"""Who of a pool of people is in the client's data?"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixData, FixRecording
from overheard.evaluation import metrics
from overheard.evaluation.baselines import majority_share
from overheard.evaluation.scoring import Case, Posterior, Scored, Scorer
from overheard.questions.question import ACCURACY, Question
from overheard.transcript.guess import Membership
from overheard.transcript.store import MEMBER_COLUMN
from overheard.transcript.target import joined
from overheard.transcript.view import Attack

Array = NDArray[np.float64]


def score(case: Case) -> Scorer:
    """The share of the pool sorted right into members and others, and the members' attribute."""
    client, name = case.view.client, case.target.column
    if case.answers is None or client not in case.answers:
        raise FixRecording(f"truth/ does not say who of {client!r}'s pool is a member")
    answers = joined(case.answers[client], case.target)
    member = answers[MEMBER_COLUMN] > 0.5
    if member.all() or not member.any():
        raise FixData(
            f"{client!r}: the pool of {len(member)} records has {int(member.sum())} members; "
            "give members and others, else there is nothing to tell apart"
        )
    free = {"majority": float(max(member.mean(), 1 - member.mean())), "n": len(member)}

    def scored(attack: Attack, guess: Membership, seconds: float) -> Scored:
        if len(guess.probabilities) != len(member):
            raise FixData(f"{len(guess.probabilities)} guesses for a pool of {len(member)}")
        hits = np.asarray(guess.choice() == member, dtype=np.float64)
        details: dict[str, float | int | str] = {
            **guess.diagnostics,
            "members_found": float(hits[member].mean()),
            "others_accused": float(1 - hits[~member].mean()),
        }
        if guess.attribute is not None and name:
            column = answers[name][member]
            inside = replace(guess.attribute, probabilities=guess.attribute.probabilities[member])
            details["attribute_accuracy"] = float(metrics.attribute_hits(inside, column).mean())
            details["attribute_majority"] = majority_share(column, guess.attribute.values)
        claimed = _posterior(guess, member, hits)
        return case.scored(attack, seconds, hits, details, None, claimed, **free)

    return scored


def _posterior(guess: Membership, member: NDArray[np.bool_], hits: Array) -> Posterior:
    """Bits as of an attribute: log2 of what was given to the truth over its share in the pool."""
    p = np.clip(guess.probabilities, 0.0, 1.0)
    given = np.maximum(np.where(member, p, 1 - p), 1e-6)
    share = np.where(member, member.mean(), 1 - member.mean())
    return Posterior(np.maximum(p, 1 - p), hits, np.log2(given) - np.log2(share))


QUESTION = Question(
    name="membership",
    asks="who of a pool of people is in the client's data?",
    metric=ACCURACY,
    answers=(Membership,),
    score=score,
    truth="Membership",
    column=".*",
)
