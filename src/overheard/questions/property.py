"""Which clients hold a given record, poison or ride for free? Asked of all of them at once.

The score is F1: of those named and those that have the property, how many are both. It is set
against naming nobody and naming everybody, which need no listening. An answer that flags itself
accuses nobody; else those named are accused, and who of them lacks the property is a false alarm.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixData, FixRecording
from overheard.evaluation.decision import RESAMPLES, found_p_value, share_interval
from overheard.evaluation.detection import check_observed, suspects
from overheard.evaluation.scoring import Case, Scored, Scorer
from overheard.programs.records import Records
from overheard.questions.question import Metric, Question
from overheard.randomness import stream
from overheard.transcript.guess import ClientProperty
from overheard.transcript.knowledge import Sums
from overheard.transcript.store import POSITIVE_COLUMN
from overheard.transcript.view import Attack

Flags = NDArray[np.bool_]
UNKNOWN = "truth/ does not say which clients have it, so how right this is cannot be said"


def f1(chosen: Flags, positive: Flags) -> float:
    """2 hits / (named + positives); 1 where nobody is named and nobody has the property."""
    together = int(chosen.sum() + positive.sum())
    return 2 * int((chosen & positive).sum()) / together if together else 1.0


def f1_interval(chosen: Flags, positive: Flags, rng: np.random.Generator) -> tuple[float, float]:
    """95% bootstrap over clients, widened where it collapses.

    A guess without a mistake has no spread to resample. But F1 = 2J / (1 + J) for the share J of
    clients that are both among those that are either, and Wilson's interval of that share does not
    collapse; the interval covers both. Where nobody is named and nobody has the property there
    is nothing to tell a good guess by, and the interval is all of [0, 1].
    """
    hit, either = chosen & positive, chosen | positive
    if not either.any():
        return 0.0, 1.0
    picks = rng.integers(0, len(chosen), (RESAMPLES, len(chosen)))
    both = hit[picks].sum(axis=1)
    total = chosen[picks].sum(axis=1) + positive[picks].sum(axis=1)
    usable = total > 0  # one of the resamples is, as good as surely
    scores = 2 * both[usable] / total[usable]
    ends = np.quantile(scores, [0.025, 0.975]).tolist()
    ends += [2 * j / (1 + j) for j in share_interval(hit[either].astype(np.float64))]
    value = f1(chosen, positive)
    return float(min([*ends, value])), float(max([*ends, value]))


def answers_of(truth: Mapping[str, Records], clients: tuple[str, ...]) -> Flags:
    """Who has the property (N,), from ``truth/``."""
    missing = [c for c in clients if c not in truth]
    if missing:
        raise FixRecording(
            f"truth/ does not say whether {missing[0]!r} has the property; record again"
        )
    return np.array([truth[c][POSITIVE_COLUMN][0] > 0.5 for c in clients])


def scores(guess: ClientProperty, answers: Flags, rng: np.random.Generator) -> dict[str, Any]:
    """F1 with its interval and its test. Beside it: precision and recall (left out where
    undefined), and Brier's score."""
    chosen = guess.choice()
    hits, named, positives = (int(s.sum()) for s in (chosen & answers, chosen, answers))
    value = f1(chosen, answers)
    low, high = f1_interval(chosen, answers, rng)
    free = max(f1(np.full(len(answers), one), answers) for one in (False, True))
    p = found_p_value(hits, named, positives, len(answers)) if value > free else 1.0
    brier = float(np.mean((guess.probabilities - answers) ** 2))
    details = {"positives": positives, "named": named, "found": hits, "brier": brier}
    details |= {} if "flag" in guess.diagnostics else {"false_alarms": named - hits}
    details |= {"precision": hits / named} if named else {}
    details |= {"recall": hits / positives} if positives else {}
    result = {"value": value, "low": low, "high": high, "majority": free, "lift": value - free}
    return result | {"p_value": p, "details": details}


def score(case: Case) -> Scorer:
    """Without the truth all clients are listed, and the score may be anything."""
    check_observed(case.view)
    sums = case.view.know(Sums)
    answers = None if case.answers is None else answers_of(case.answers, sums.clients)

    def scored(attack: Attack, guess: ClientProperty, seconds: float) -> Scored:
        if guess.clients != sums.clients:
            raise FixData(f"{len(guess.clients)} guesses for {len(sums.clients)} clients")
        made: dict[str, Any] = {"value": 0.0, "low": 0.0, "high": 1.0, "details": {"flag": UNKNOWN}}
        if answers is not None:
            rng = stream(case.seed, "interval", attack.name, case.target.key)
            made = scores(guess, answers, rng)
        made["details"] |= guess.diagnostics
        if "flag" in made["details"]:
            made["p_value"] = None
        # what an answer that flags itself says of single clients is not worth repeating
        listed = () if "flag" in guess.diagnostics else suspects(guess, sums)
        finding = case.finding(attack, seconds, **made, n=len(sums.clients), suspects=listed)
        return Scored(finding, np.array([finding.value]), None)

    return scored


QUESTION = Question(
    name="property",
    asks="which clients hold a given record, poison or ride for free?",
    metric=Metric("f1", "share"),
    answers=(ClientProperty,),
    score=score,
    together=True,
    truth="Property",
    column="membership(-[1-9][0-9]{0,3})?|poisoning|free-rider",
    hidden=lambda target, recipe: (),
    sums=True,
)
