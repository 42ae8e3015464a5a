"""How well does a guess tell the clients that have a property from those that have not?

The score is F1: of those accused and those that have it, how many are both. It is set against
accusing nobody and accusing everybody, which need no listening; where nobody has the property there
is nothing to find, and any accusation is a false alarm.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from overheard.errors import FixData, FixRecording, ListenLonger
from overheard.evaluation.intervals import RESAMPLES
from overheard.programs.records import Records, encode
from overheard.transcript.guess import ClientProperty
from overheard.transcript.knowledge import AuxiliaryData, LocalTraining, Sums, TargetRecord
from overheard.transcript.observe import POSITIVE_COLUMN
from overheard.transcript.view import View

Flags = NDArray[np.bool_]


def f1(chosen: Flags, positive: Flags) -> float:
    """2 hits / (accused + positives); 1 where nobody is accused and nobody has the property."""
    together = int(chosen.sum() + positive.sum())
    return 2 * int((chosen & positive).sum()) / together if together else 1.0


def f1_interval(
    chosen: Flags, positive: Flags, rng: np.random.Generator, level: float = 0.95
) -> tuple[float, float]:
    """Bootstrap over clients, widened where it collapses.

    A guess without a mistake has no spread to resample. But F1 = 2J / (1 + J) for the share J of
    clients that are both among those that are either, and Wilson's interval of that share does not
    collapse; the interval covers both. Where nobody is accused and nobody has the property there
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
    ends = np.quantile(scores, [(1 - level) / 2, (1 + level) / 2]).tolist()
    share = binomtest(int(hit.sum()), int(either.sum())).proportion_ci(level, method="wilson")
    ends += [2 * j / (1 + j) for j in (float(share.low), float(share.high))]
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


def scores_of(guess: ClientProperty, answers: Flags) -> dict[str, float | int]:
    """What stands beside F1: precision and recall (left out where undefined), Brier's score."""
    chosen = guess.choice()
    hits, accused, positives = (int(s.sum()) for s in (chosen & answers, chosen, answers))
    made: dict[str, float | int] = {
        "positives": positives,
        "accused": accused,
        "found": hits,
        "false_alarms": accused - hits,
        "brier": float(np.mean((guess.probabilities - answers) ** 2)),
    }
    if accused:
        made["precision"] = hits / accused
    if positives:
        made["recall"] = hits / positives
    return made


def check_heard(view: View) -> None:
    """Refuse what no attack on a property can work with, and say what is missing."""
    sums = view.know(Sums)
    sums.require(2, "telling clients apart")
    if (sums.participation == sums.participation[:, :1]).all():
        raise ListenLonger(
            f"all {len(sums.clients)} clients took part in the same {len(sums)} rounds, so their "
            "updates are only ever heard together and cannot be told apart; record a federation "
            "with participation below 1"
        )
    if LocalTraining not in view.kinds:
        return
    encoding = view.know(LocalTraining).recipe.encoding
    for kind in (AuxiliaryData, TargetRecord):
        if kind in view.kinds:
            records = view.know(kind).records
            try:
                encode(encoding, records.take(np.arange(min(1, len(records)))))
            except FixData as error:
                raise FixData(
                    f"the {kind.name} does not fit the model of this federation: {error}"
                ) from error


def remarks(sums: Sums) -> dict[str, str]:
    """Clients about whom the participation says little, each with the reason."""
    columns = sums.participation.T
    seen: dict[bytes, str] = {}
    said: dict[str, str] = {}
    for name, column in zip(sums.clients, columns, strict=True):
        if not column.any():
            said[name] = "never took part: nothing was heard of it"
        elif column.all():
            said[name] = "took part in every round: never heard apart from the rest"
        elif column.tobytes() in seen:
            said[name] = f"took part in the same rounds as {seen[column.tobytes()]}"
        else:
            seen[column.tobytes()] = name
    return said
