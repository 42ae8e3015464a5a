"""One of lyu2021's settings in one repetition: what every method gets right, with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.papers.lyu2021 import phase
from overheard.data.dealing import VICTIM
from overheard.decoding.ties import same_rows
from overheard.errors import ChooseAnotherAttack, GrantKnowledge
from overheard.evaluation import metrics
from overheard.evaluation.baselines import majority_share
from overheard.evaluation.intervals import share_interval
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, encode, positions
from overheard.questions.property import f1
from overheard.randomness import stream
from overheard.transcript.guess import AttributeValues, Membership
from overheard.transcript.knowledge import AttributePrior, Labels, Link
from overheard.transcript.side import MEMBER_COLUMN
from overheard.transcript.store import Recording
from overheard.transcript.target import attribute, membership
from overheard.transcript.threat import ISOLATING_SERVER, SERVER
from overheard.transcript.view import View, launch, observe
from papers.common.harness import messages, recorded, truth_and_recipe
from papers.lyu2021.settings import LABELS_OURS, MEMBERS_OURS, OURS, Setting

NO_TWIN = "accuracy, records without a twin"
LABELS_RIGHT = "accuracy of labels"
MEMBERS_RIGHT = "accuracy of members' attribute"
DECODERS = (OURS, LABELS_OURS, MEMBERS_OURS)
RESAMPLES = 300
MOMENT, TIMES = 1.0, 3
"""What takes less than `MOMENT` processor seconds is timed `TIMES` times."""

Hits = NDArray[np.float64]
Choices = NDArray[np.intp]
Seconds = tuple[float, ...]


@dataclass(frozen=True)
class Measured:
    """A number and its 95% interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Outcome:
    """One method in one setting and repetition: ``hits`` per record, other measures as numbers.

    ``seconds``: processor seconds of each of the times that it was run.
    """

    method: str
    hits: Hits
    majority: float
    seconds: tuple[float, ...]
    measures: Mapping[str, Measured] = field(default_factory=dict)


# ---------------------------------------------------------------------- one setting, one repetition


def score(setting: Setting, seed: int) -> tuple[list[Outcome], list[str]]:
    """What every attack of a setting gets right, and which did not run, and why."""
    outcomes: list[Outcome] = []
    notes: list[str] = []
    attacks = setting.in_repetition(seed)
    if not attacks:
        return outcomes, notes
    with recorded(setting.config(seed)) as recording:
        column = setting.column
        asked = membership(column) if setting.pooled else attribute(column)
        threat = SERVER if setting.others else ISOLATING_SERVER
        threat = threat if setting.labels_known else threat.without(Labels)
        threat = threat if setting.prior_known else threat.without(AttributePrior)
        view = observe(recording, threat, asked, VICTIM)
        if setting.phase:
            view = heard_in(view, phase(len(view.know(Link)), setting.phase))
        first = heard_in(view, np.arange(setting.heard)) if setting.heard else view
        judge = _members if setting.pooled else _attribute
        for method, attack in attacks.items():
            try:
                guess, seconds = timed(attack, first if method in DECODERS else view, seed)
            except (ChooseAnotherAttack, GrantKnowledge) as error:
                notes.append(f"{method} was not run: {error}.")
                continue
            outcomes.append(judge(recording, setting, method, guess, seconds))
    return outcomes, notes


def timed(attack: Any, view: View, seed: int) -> tuple[Any, tuple[float, ...]]:
    """The guess, and the processor seconds that it took; several times if it took a moment."""
    seconds: list[float] = []
    guess = None
    while not seconds or (len(seconds) < TIMES and seconds[0] < MOMENT):
        begin = process_time()
        guess = launch(attack, view, seed)
        seconds.append(process_time() - begin)
    return guess, tuple(seconds)


def heard_in(view: View, rounds: NDArray[np.int64]) -> View:
    """The view of somebody who heard these rounds only."""
    link = view.know(Link)
    return view.knowing(messages(link, rounds[rounds < len(link)]))


def _attribute(
    recording: Recording, setting: Setting, method: str, guess: AttributeValues, seconds: Seconds
) -> Outcome:
    truth, recipe = truth_and_recipe(recording)
    records = truth[VICTIM]
    secret = records[setting.column]
    hits = metrics.attribute_hits(guess, secret)
    measures: dict[str, Measured] = {}
    twins = has_twin(recipe, records, setting.column, guess.values[0])
    if twins.any() and not twins.all():
        measures[NO_TWIN] = share(hits[~twins])
    if method in DECODERS:
        measures |= skewed(guess, secret)
        told = {"rank": "rank", "unknowns": "unknowns", "undecidable": "records undecided"}
        numbers = {word: guess.diagnostics.get(key) for key, word in told.items()}
        measures |= {word: exactly(float(n)) for word, n in numbers.items() if n is not None}
        measures["records with a twin"] = exactly(float(twins.sum()))
    if guess.labels is not None:
        right = metrics.attribute_hits(guess.labels, records[recipe.target.column])
        measures[LABELS_RIGHT] = share(right)
    return Outcome(method, hits, majority_share(secret, guess.values), seconds, measures)


def _members(
    recording: Recording, setting: Setting, method: str, guess: Membership, seconds: Seconds
) -> Outcome:
    answer = recording.truth("Membership", membership(setting.column).key)[VICTIM]
    member = answer[MEMBER_COLUMN] > 0.5
    measures: dict[str, Measured] = {}
    if guess.attribute is not None:
        right = metrics.attribute_hits(guess.attribute, answer[setting.column])[member]
        measures[MEMBERS_RIGHT] = share(right)
    hits = np.asarray(guess.choice() == member, dtype=np.float64)
    return Outcome(method, hits, float(max(member.mean(), 1 - member.mean())), seconds, measures)


def has_twin(recipe: Recipe, records: Records, column: str, any_value: Any) -> NDArray[np.bool_]:
    """Which records agree with another in everything but the secret: nobody can tell them apart."""
    public = encode(recipe.encoding, records, {column: any_value})
    labels = recipe.target.encode(records)
    groups = same_rows(np.column_stack([public, labels]))
    return np.asarray(np.bincount(groups)[groups] > 1)


# ----------------------------------------------------------------------------- numbers, intervals


def share(hits: Hits) -> Measured:
    """A share of records, with Wilson's interval."""
    return Measured(float(hits.mean()), *share_interval(hits))


def exactly(number: float) -> Measured:
    """A number that is counted, not estimated."""
    return Measured(number, number, number)


def skewed(guess: AttributeValues, secret: NDArray[Any]) -> dict[str, Measured]:
    """Balanced accuracy and F1 of the rarest value; the intervals resample the records."""
    truth, chosen = positions(secret, guess.values), guess.choice()
    rare = rarest(truth)
    rng = stream(0, "lyu2021", "resampled records")
    draws = [rng.integers(0, len(truth), len(truth)) for _ in range(RESAMPLES)]
    measures: dict[str, Callable[[Choices, Choices], float]] = {
        "balanced accuracy": balanced_accuracy,
        "F1 of the rarest value": lambda a, b: f1(b == rare, a == rare),
    }
    found = {}
    for name, measure in measures.items():
        value = measure(truth, chosen)
        again = [measure(truth[rows], chosen[rows]) for rows in draws]
        low, high = np.quantile(again, [0.025, 0.975])
        found[name] = Measured(value, float(low), float(high))
    return found


def balanced_accuracy(truth: Choices, chosen: Choices) -> float:
    """Mean over the values that are there of the share found."""
    counts = np.bincount(truth)
    right = np.bincount(truth[truth == chosen], minlength=len(counts))
    return float(np.mean(right[counts > 0] / counts[counts > 0]))


def rarest(truth: Choices) -> int:
    """The value that fewest records have, of those that are there."""
    there, counts = np.unique(truth, return_counts=True)
    return int(there[counts.argmin()])
