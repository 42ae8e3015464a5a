"""Which clients have a property? One attack on the whole federation, as a ranked list.

Works without ``truth/``: that is what an operator has. Whether it was right is said only when asked
for, and only where the truth is there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from overheard.attacks import all_attacks, attack_named, is_slow, listens
from overheard.errors import ChooseAnotherAttack, FixConfig
from overheard.evaluation.attempt import NOT_RUN
from overheard.evaluation.properties import answers_of, f1, remarks, scores_of
from overheard.evaluation.record import Detection, Suspect
from overheard.evaluation.scoring import finite
from overheard.questions.question import by_question
from overheard.transcript.guess import ClientProperty
from overheard.transcript.knowledge import Sums
from overheard.transcript.observe import EVERYBODY, observe
from overheard.transcript.store import Recording
from overheard.transcript.tape import Array, Tape
from overheard.transcript.target import Target, client_property
from overheard.transcript.threat import SECURE_SERVER
from overheard.transcript.view import Attack, View, launch

Progress = Callable[[str, int, int], None]
PREFERRED = ("matched_filter",)
"""Tried first where no attack is named."""


def detect(
    recording: Recording,
    property_: str,
    attack: str = "",
    seed: int = 0,
    score: bool = False,
    progress: Progress = lambda what, done, total: None,
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
    evidence = guess.evidence
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
        curve_rounds=() if evidence is None else _rounds_of(len(evidence), len(sums)),
        curves={}
        if evidence is None
        else {c: tuple(evidence[:, k].tolist()) for k, c in enumerate(guess.clients)},
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
    order = sorted(names, key=lambda n: (n not in PREFERRED, n))
    return [a for a in map(attack_named, order) if not is_slow(a) and listens(a)]


def _first_that_runs(
    candidates: list[Attack], view: View, seed: int, progress: Progress
) -> tuple[Attack, ClientProperty]:
    reasons = []
    for attack in candidates:
        try:
            guess: ClientProperty = launch(attack, watched(view, attack.name, progress), seed)
            return attack, guess
        except NOT_RUN as error:
            if len(candidates) == 1:
                raise
            reasons.append(f"{attack.name}: {error}")
    raise ChooseAnotherAttack(f"no attack could run: {'; '.join(reasons) or 'none is known'}")


@dataclass(frozen=True)
class _Watched:
    """A tape that says how far it has been read."""

    tape: Tape
    told: Callable[[int], None]

    def read(self, row: int) -> tuple[Array, Array]:
        self.told(row + 1)
        return self.tape.read(row)


def watched(view: View, what: str, progress: Progress) -> View:
    """The same view, whose rounds say when they are read."""
    sums = view.know(Sums)
    tape = sums._tape
    assert isinstance(tape, Tape)
    watching = _Watched(tape, lambda done: progress(what, done, len(sums)))
    return view.knowing(replace(sums, _tape=watching))


def _rounds_of(rows: int, heard: int) -> tuple[int, ...]:
    """After how many rounds each row of the evidence was: every one, or equally many apart."""
    return tuple(round(heard * (row + 1) / rows) for row in range(rows))


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
