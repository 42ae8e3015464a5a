"""Which clients have a property, as a ranked list?

One attack on the whole federation, of the question ``property``. It works without ``truth/``: that
is what an operator has. Whether it was right is said only when asked for, and only where the truth
is there, by the question's own score.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from overheard.attacks import attack_named, is_slow, listens
from overheard.errors import ChooseAnotherAttack, FixConfig, FixData, ListenLonger
from overheard.evaluation.attempt import NOT_RUN, Progress, silent
from overheard.evaluation.audit import chosen_attacks
from overheard.evaluation.record import Count, Part, Seconds
from overheard.evaluation.scoring import finite, scorer_of
from overheard.programs.records import encode
from overheard.transcript.guess import ClientProperty
from overheard.transcript.kind import EVERYBODY, told_of
from overheard.transcript.knowledge import AuxiliaryData, LocalTraining, Sums, TargetRecord
from overheard.transcript.store import Recording
from overheard.transcript.target import client_property
from overheard.transcript.threat import SECURE_SERVER
from overheard.transcript.view import Attack, View, launch, observe


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


def check_heard(view: View) -> None:
    """Refuse what no attack on a property can work with, and say what is missing."""
    if Sums not in view.kinds:
        raise ListenLonger(
            f"{view.target.key!r} is asked of the sums of updates, which the threat model "
            f"{view.threat!r} does not hear; audit as 'secure-server'"
        )
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
SCORES = ("positives", "accused", "found", "false_alarms", "brier", "precision", "recall")
"""What is said of a score beside F1."""


def detect(
    recording: Recording,
    property_: str,
    attack: str = "",
    seed: int = 0,
    score: bool = False,
    progress: Progress = silent,
) -> Detection:
    """Rank the clients of a recording by the probability that they have the property."""
    target = client_property(property_)
    if target.key not in recording.targets:
        raise FixConfig(
            f"{recording.path}: side/ holds nothing to look for {property_!r} with; it was "
            f"recorded for: {', '.join(recording.targets) or 'nothing'}; add [property] to the "
            "simulation, or to the file of --with"
        )
    if not recording.rounds:
        raise FixConfig(f"{recording.path}: no round was recorded; there is nothing to listen to")
    view = observe(recording, SECURE_SERVER, target, EVERYBODY)
    check_heard(view)
    begin = time.perf_counter()
    ran, guess = _first_that_runs(attack, view, seed, progress)
    seconds = time.perf_counter() - begin
    scores: dict[str, float | int | str] | None = None
    if score:
        answers = recording.truth("Property", target.key)
        recipe: Any = told_of(recording)  # which this question does not ask for
        found = scorer_of(recipe, {}, target, view, seed, answers)(ran, guess, seconds).finding
        scores = {"f1": found.value, **{k: v for k, v in found.details.items() if k in SCORES}}
    sums, evidence = view.know(Sums), guess.evidence  # after every round, or after equally many
    rows = 0 if evidence is None else len(evidence)
    lines = () if evidence is None else zip(guess.clients, evidence.T.tolist(), strict=True)
    details = finite(guess.diagnostics)
    notes = [] if recording.closed else ["The recording was not closed: it was stopped."]
    if flag := details.get("flag"):
        notes.append(f"{ran.name} flags its own answer, which must not be relied on: {flag}")
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
        diagnostics=details,
        score=scores,
        notes=tuple(notes),
    )


def _first_that_runs(
    name: str, view: View, seed: int, progress: Progress
) -> tuple[Attack, ClientProperty]:
    """The attack that is named, or the first that runs of those that are quick, and its answer."""
    there = {a.name: a for a in chosen_attacks(()) if a.question == view.target.question}
    if name and name not in there:
        raise FixConfig(
            f"attack {name!r} answers the question {attack_named(name).question!r}; attacks on a "
            f"property: {', '.join(there) or 'none'}"
        )
    apply = [there[name]] if name else [a for a in there.values() if listens(a) and not is_slow(a)]
    reasons = []
    for done, attack in enumerate(sorted(apply, key=lambda a: (a.name != PREFERRED, a.name))):
        progress(attack.name, done, len(apply))
        try:
            guess: ClientProperty = launch(attack, view, seed)
        except NOT_RUN as error:
            if len(apply) == 1:
                raise
            reasons.append(f"{attack.name}: {error}")
        else:
            progress(attack.name, len(apply), len(apply))
            return attack, guess
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
