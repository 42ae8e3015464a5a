"""Which clients have a property, as a ranked list? The audit's question ``property``, by name.

An audit scores one attack on the whole federation against the truth; here its guess is shown client
by client, which works without ``truth/``: that is what an operator has. Whether it was right is
said only when asked for, and only where the truth is there, by the question's own score.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from overheard.attacks import attack_named
from overheard.errors import FixConfig, FixData, ListenLonger
from overheard.evaluation.audit import chosen_attacks
from overheard.evaluation.checkpoint import Progress, silent
from overheard.evaluation.record import Count, Part, Seconds
from overheard.evaluation.scoring import Case, finite
from overheard.programs.records import encode
from overheard.transcript.guess import ClientProperty
from overheard.transcript.kind import EVERYBODY, told_of
from overheard.transcript.knowledge import AuxiliaryData, LocalTraining, Sums, TargetRecord
from overheard.transcript.store import Recording
from overheard.transcript.target import client_property
from overheard.transcript.threat import SECURE_SERVER
from overheard.transcript.view import View, launch, observe

PREFERRED = "matched_filter"
"""The attack that is meant where none is named."""
SCORES = ("positives", "accused", "found", "false_alarms", "brier", "precision", "recall")
"""What is said of a score beside F1."""


class Suspect(Part):
    """One client, asked whether it has a property.

    ``rounds``: in how many it took part; ``curve``: the probability after every round, or after
    equally many; ``contribution``: how much its updates helped, where the attack can tell;
    ``remark``: why little can be said of it.
    """

    client: str
    probability: float
    accused: bool
    rounds: Count
    curve: tuple[float, ...] = ()
    contribution: float | None = None
    remark: str = ""

    @property
    def halfway(self) -> float | None:
        """The probability after half of the rounds."""
        return self.curve[(len(self.curve) - 1) // 2] if len(self.curve) > 1 else None


class Detection(Part):
    """Which clients have a property: the accused first, then by probability.

    ``score`` only where it was asked for: how right this was.
    """

    version: int = 2
    recording: str
    property: str
    attack: str
    rounds: Count
    seconds: Seconds
    seed: int
    suspects: tuple[Suspect, ...]
    diagnostics: dict[str, float | int | str] = {}
    score: dict[str, float | int | str] | None = None
    notes: tuple[str, ...] = ()


def check_observed(view: View) -> None:
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
    kinds = (AuxiliaryData, TargetRecord) if LocalTraining in view.kinds else ()
    for kind in (kind for kind in kinds if kind in view.kinds):
        records = view.know(kind).records
        try:
            encode(
                view.know(LocalTraining).recipe.encoding, records.take(np.arange(len(records))[:1])
            )
        except FixData as error:
            raise FixData(
                f"the {kind.name} does not fit the model of this federation: {error}"
            ) from error


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
    ran = attack_named(attack or PREFERRED)
    if ran.question != target.question:
        there = ", ".join(a.name for a in chosen_attacks(()) if a.question == target.question)
        raise FixConfig(
            f"attack {attack!r} answers the question {ran.question!r}; attacks on a property: "
            f"{there}"
        )
    view = observe(recording, SECURE_SERVER, target, EVERYBODY)
    check_observed(view)
    progress(ran.name, 0, 1)
    begin = time.perf_counter()
    guess: ClientProperty = launch(ran, view, seed)
    progress(ran.name, 1, 1)
    seconds = time.perf_counter() - begin
    scores: dict[str, float | int | str] | None = None
    if score:
        answers = recording.truth("Property", target.key)
        recipe: Any = told_of(recording)  # which this question does not ask for
        found = Case(recipe, {}, target, view, seed, answers).scorer()(ran, guess, seconds).finding
        scores = {"f1": found.value, **{k: v for k, v in found.details.items() if k in SCORES}}
    details = finite(guess.diagnostics)
    notes = [] if recording.closed else ["The recording was not closed: it was stopped."]
    if flag := details.get("flag"):
        notes.append(f"{ran.name} flags its own answer, which must not be relied on: {flag}")
    return Detection(
        recording=recording.path.name,
        property=target.column,
        attack=ran.name,
        rounds=len(view.know(Sums)),
        seconds=seconds,
        seed=seed,
        suspects=_ranked(guess, view.know(Sums)),
        diagnostics=details,
        score=scores,
        notes=tuple(notes),
    )


def _ranked(guess: ClientProperty, sums: Sums) -> tuple[Suspect, ...]:
    chosen, said = guess.choice(), remarks(sums)
    curves = np.zeros((0, len(chosen))) if guess.evidence is None else guess.evidence
    suspects = [
        Suspect(
            client=client,
            probability=float(np.clip(guess.probabilities[k], 0, 1)),
            accused=bool(chosen[k]),
            rounds=int(sums.participation[:, k].sum()),
            curve=tuple(np.clip(curves[:, k], 0, 1).tolist()),
            contribution=None if guess.contribution is None else float(guess.contribution[k]),
            remark=said.get(client, ""),
        )
        for k, client in enumerate(guess.clients)
    ]
    return tuple(sorted(suspects, key=lambda s: (not s.accused, -s.probability)))


def remarks(sums: Sums) -> dict[str, str]:
    """Clients about whom the participation says little, each with the reason."""
    seen: dict[bytes, str] = {}
    said: dict[str, str] = {}
    for name, column in zip(sums.clients, sums.participation.T, strict=True):
        if not column.any():
            said[name] = "never took part: nothing was heard of it"
        elif column.all():
            said[name] = "took part in every round: never heard apart from the rest"
        elif (first := seen.setdefault(column.tobytes(), name)) != name:
            said[name] = f"took part in the same rounds as {first}"
    return said
