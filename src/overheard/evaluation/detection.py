"""Which clients have a property, as a ranked list; and how well does a guess tell them apart?

One attack on the whole federation. It works without ``truth/``: that is what an operator has.
Whether it was right is said only when asked for, and only where the truth is there.

The score is F1: of those accused and those that have the property, how many are both. It is set
against accusing nobody and accusing everybody, which need no listening; where nobody has the
property there is nothing to find, and any accusation is a false alarm.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from overheard.attacks import all_attacks, attack_named, is_slow, listens
from overheard.errors import ChooseAnotherAttack, FixConfig, FixData, FixRecording, ListenLonger
from overheard.evaluation.attempt import NOT_RUN, Progress, silent
from overheard.evaluation.intervals import RESAMPLES, share_interval
from overheard.evaluation.record import Count, Part, Seconds
from overheard.evaluation.scoring import finite
from overheard.programs.records import Records, encode
from overheard.questions.question import by_question
from overheard.transcript.guess import ClientProperty
from overheard.transcript.knowledge import AuxiliaryData, LocalTraining, Sums, TargetRecord
from overheard.transcript.observe import EVERYBODY, POSITIVE_COLUMN, observe
from overheard.transcript.store import Recording
from overheard.transcript.target import Target, client_property
from overheard.transcript.threat import SECURE_SERVER
from overheard.transcript.view import Attack, View, launch

Flags = NDArray[np.bool_]


class Suspect(Part):
    """One client, asked whether it has a property.

    ``rounds``: in how many it took part; ``halfway``: the probability after half of the rounds;
    ``contribution``: how much its updates helped, where the attack can tell; ``remark``: why little
    can be said of it.
    """

    client: str
    probability: float
    accused: bool
    rounds: Count
    halfway: float | None = None
    contribution: float | None = None
    remark: str = ""


class Detection(Part):
    """Which clients have a property: the accused first, then by probability.

    ``curves``: each client's probability after so many rounds (``curve_rounds``). ``score`` only
    where it was asked for: how right this was.
    """

    version: int = 1
    recording: str
    property: str
    attack: str
    paper: str
    threat: str
    rounds: Count
    seconds: Seconds
    seed: int
    suspects: tuple[Suspect, ...]
    curve_rounds: tuple[Count, ...] = ()
    curves: dict[str, tuple[float, ...]] = {}
    diagnostics: dict[str, float | int | str] = {}
    score: dict[str, float | int | str] | None = None
    notes: tuple[str, ...] = ()


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
    ends += [2 * j / (1 + j) for j in share_interval(hit[either].astype(np.float64), level)]
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


PREFERRED = "matched_filter"
"""Tried first where no attack is named."""


def detect(
    recording: Recording,
    property_: str,
    attack: str = "",
    seed: int = 0,
    score: bool = False,
    progress: Progress = silent,
) -> Detection:
    """Rank the clients of a recording by the probability that they have the property."""
    target = _target(recording, property_)
    if not recording.rounds:
        raise FixConfig(f"{recording.path}: no round was recorded; there is nothing to listen to")
    view = observe(recording, SECURE_SERVER, target, EVERYBODY)
    target.asked.check(view)
    sums = view.know(Sums)
    begin = time.perf_counter()
    ran, guess = _first_that_runs(_candidates(attack, target), view, seed, progress)
    seconds = time.perf_counter() - begin
    scores: dict[str, float | int | str] | None = None
    if score:
        answers = answers_of(recording.truth("Property", target.key), sums.clients)
        scores = finite({"f1": f1(guess.choice(), answers), **scores_of(guess, answers)})
    evidence = guess.evidence  # after every round, or after equally many
    rows = 0 if evidence is None else len(evidence)
    lines = () if evidence is None else zip(guess.clients, evidence.T.tolist(), strict=True)
    return Detection(
        recording=recording.path.name,
        property=target.column,
        attack=ran.name,
        paper=ran.paper,
        threat=view.threat,
        rounds=len(sums),
        seconds=seconds,
        seed=seed,
        suspects=_ranked(guess, sums),
        curve_rounds=tuple(round(len(sums) * (row + 1) / rows) for row in range(rows)),
        curves=dict(lines),
        diagnostics=finite(guess.diagnostics),
        score=scores,
        notes=() if recording.closed else ("The recording was not closed: it was stopped.",),
    )


def _target(recording: Recording, property_: str) -> Target:
    target = client_property(property_)
    if target.key not in recording.targets:
        asked = by_question(map(Target.parse, recording.targets)).get(target.question, [])
        there = ", ".join(t.column for t in asked) or "none"
        raise FixConfig(
            f"{recording.path}: side/ holds nothing to look for {property_!r} with; it was "
            f"recorded for: {there}; add [property] to the simulation, or to the file of --with"
        )
    return target


def _candidates(name: str, target: Target) -> list[Attack]:
    known = by_question(attack_named(known) for known in all_attacks())
    names = [attack.name for attack in known.get(target.question, [])]
    if name:
        attack = attack_named(name)
        if name not in names:
            raise FixConfig(
                f"attack {name!r} answers the question {attack.question!r}; attacks on a property: "
                f"{', '.join(names) or 'none'}"
            )
        return [attack]
    order = sorted(names, key=lambda n: (n != PREFERRED, n))
    return [a for a in map(attack_named, order) if not is_slow(a) and listens(a)]


def _first_that_runs(
    candidates: list[Attack], view: View, seed: int, progress: Progress
) -> tuple[Attack, ClientProperty]:
    reasons = []
    for done, attack in enumerate(candidates):
        progress(attack.name, done, len(candidates))
        try:
            guess: ClientProperty = launch(attack, view, seed)
            progress(attack.name, len(candidates), len(candidates))
            return attack, guess
        except NOT_RUN as error:
            if len(candidates) == 1:
                raise
            reasons.append(f"{attack.name}: {error}")
    raise ChooseAnotherAttack(f"no attack could run: {'; '.join(reasons) or 'none is known'}")


def _ranked(guess: ClientProperty, sums: Sums) -> tuple[Suspect, ...]:
    said, chosen = remarks(sums), guess.choice()
    took_part = sums.participation.sum(axis=0).astype(int)
    middle = None
    if guess.evidence is not None and len(guess.evidence) > 1:
        middle = guess.evidence[(len(guess.evidence) - 1) // 2]
    order = np.lexsort((np.arange(len(chosen)), -guess.probabilities, ~chosen))
    return tuple(
        Suspect(
            client=guess.clients[k],
            probability=float(np.clip(guess.probabilities[k], 0, 1)),
            accused=bool(chosen[k]),
            rounds=int(took_part[k]),
            halfway=None if middle is None else float(np.clip(middle[k], 0, 1)),
            contribution=None if guess.contribution is None else float(guess.contribution[k]),
            remark=said.get(guess.clients[k], ""),
        )
        for k in order
    )
