"""What an adversary holds: messages and granted knowledge, nothing else.

A `View` is made of arrays and plain descriptions only. It has no reference to the recording
it came from, to a path, or to the truth, so that no attack uses by accident or carelessness what
its adversary would not have. It guards against accident, not against malice: an attack runs in
this process and can walk its frames, its objects and the disk. An attack that you install is code
that you trust.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from overheard.errors import AttackFailed, DeclareKnowledge, FixConfig, FixData, GrantKnowledge
from overheard.programs.records import Value
from overheard.questions.question import question_named
from overheard.randomness import stream
from overheard.transcript.guess import AttributeValues
from overheard.transcript.kind import EVERYBODY, Held, Knowledge, kind, kinds, read
from overheard.transcript.knowledge import PublicRecords
from overheard.transcript.store import Recording
from overheard.transcript.target import LOCAL_MODEL, Target
from overheard.transcript.threat import Threat, who_grants

K = TypeVar("K")
Kinds = frozenset[type[Any]]
"""Kinds of knowledge: what an attack needs or uses."""


@dataclass(frozen=True)
class View:
    """One client as the adversary sees it: the kinds of knowledge it was granted."""

    client: str
    target: Target
    threat: str
    _knowledge: Mapping[type[Any], Any] = field(repr=False)

    def know(self, kind: type[K]) -> K:
        """The granted piece of knowledge of this type; an error if it was not declared."""
        if kind in self._knowledge:
            return self._knowledge[kind]  # type: ignore[no-any-return]
        held = ", ".join(sorted(k.__name__ for k in self._knowledge)) or "none"
        raise DeclareKnowledge(
            f"{kind.__name__} is not in this view (it holds: {held}); "
            f"an attack must list {kind.__name__} in its `needs`"
        )

    @property
    def kinds(self) -> Kinds:
        """Which kinds of knowledge the view holds."""
        return frozenset(self._knowledge)

    def narrowed(self, kinds: Kinds) -> View:
        """The same messages with these kinds of knowledge only."""
        kept = {k: v for k, v in self._knowledge.items() if k in kinds}
        return replace(self, _knowledge=kept)

    def lacks(self, kinds: Iterable[type[Any]]) -> list[type[Any]]:
        """Those of the kinds that the view does not hold."""
        return [kind for kind in kinds if kind not in self._knowledge]

    def knowing(self, *pieces: Any) -> View:
        """The same view with these pieces of knowledge in place of those of their kinds."""
        return replace(self, _knowledge={**self._knowledge, **{type(p): p for p in pieces}})


class Attack(Protocol):
    """A frozen dataclass whose fields are hyperparameters; data comes in the call.

    An attack that can do without a kind of knowledge, but better with it, lists it in a class
    attribute ``uses``: it gets it where the threat model grants it.
    """

    @property
    def name(self) -> str: ...
    @property
    def paper(self) -> str: ...
    @property
    def question(self) -> str: ...
    @property
    def needs(self) -> Kinds: ...

    def __call__(self, view: View, rng: np.random.Generator) -> Any: ...


def launch(attack: Attack, view: View, seed: int) -> Any:
    """Run an attack on exactly the knowledge it declares.

    Missing knowledge fails before any work, and the error says what is missing, what is there
    and which threat model would grant it. `AttackFailed`: what it returns is no answer to its
    question.
    """
    missing = view.lacks(attack.needs)
    if missing:
        wanted = ", ".join(sorted(k.__name__ for k in missing))
        held = ", ".join(sorted(k.__name__ for k in view.kinds)) or "nothing"
        grants = sorted(set.intersection(*(set(who_grants(k)) for k in missing)))
        granted = f"granted by: {', '.join(grants)}, if the recording holds it"
        raise GrantKnowledge(
            f"attack {attack.name!r} needs {wanted}; the threat model {view.threat!r} gives "
            f"{held}; {granted if grants else 'no shipped threat model grants it'}"
        )
    uses: Kinds = getattr(attack, "uses", frozenset())
    known = view.narrowed(attack.needs | uses)
    rng = stream(seed, "attack", attack.name, view.target.key, view.client)
    return _answer(attack, attack(known, rng), known)


def _answer(attack: Attack, guess: Any, view: View) -> Any:
    """The guess, if it answers the attack's question, with a row for each record."""
    answers = question_named(attack.question).answers
    if not isinstance(guess, answers):
        raise AttackFailed(
            f"attack {attack.name!r} answers {attack.question!r} with {type(guess).__name__}, not "
            f"with {' or '.join(kind.__name__ for kind in answers)}"
        )
    if isinstance(guess, AttributeValues) and PublicRecords in view.kinds:
        records, answered = len(view.know(PublicRecords).records), len(guess.probabilities)
        if records and records != answered:  # of no public column nobody knows how many
            raise AttackFailed(
                f"attack {attack.name!r} answers for {answered} records, not for {records}"
            )
    return guess


def observe(recording: Recording, threat: Threat, target: Target, client: str) -> View:
    """What the adversary of ``threat`` holds when it asks ``target`` about ``client``.

    Kinds that are granted but absent from the recording are simply not in the view. What is asked
    of all clients at once, as a property is, has "" as its ``client``.
    """
    asked = target.asked
    if asked.together != (client == EVERYBODY):
        raise FixConfig(
            f"{target.key!r} is asked of {client!r}; a property is asked of the whole federation "
            "(client ''), anything else of one client"
        )
    if client != EVERYBODY and client not in recording.clients:
        raise FixConfig(f"no client {client!r}; the clients are {', '.join(recording.clients)}")
    if threat.isolates and client != (isolated := isolated_in(recording, threat)):
        raise FixData(
            f"client {client!r} was not isolated, only {isolated!r} was; audit it as 'server'"
        )
    # a question may ask what side knowledge for another one is enough to answer
    held = Held(recording, Target.parse(asked.source(target.key)), client)
    pieces = {kind: read(kind, held) for kind in kinds().values() if kind in threat.grants}
    knowledge: dict[type[Any], Any] = {k: p for k, p in pieces.items() if p is not None}
    return View(client, target, threat.name, knowledge)


def isolated_in(recording: Recording, threat: Threat) -> str:
    """The client that a server of this threat model isolated; an error where none was."""
    isolated = str(recording.about.get("isolated", ""))
    if isolated not in recording.clients:
        raise FixConfig(
            f"{recording.path}: no client was isolated here, so {threat.name!r} was not at work; "
            "take 'server', or record with training.isolate"
        )
    return isolated


@kind
@dataclass(frozen=True)
class InTheClear(Knowledge):
    """What the messages hold besides the models, as the recorder noticed it: no attack is needed.

    ``notes`` are sentences; ``values``, by name and client, what each message held (a metric, a
    record count).
    """

    name: ClassVar[str] = "what was sent in the clear"
    notes: tuple[str, ...]
    values: Mapping[str, Mapping[str, tuple[int | Value, ...]]]

    def sentences(self, shown: int = 5) -> tuple[str, ...]:
        """The findings in words, for an audit's notes; of each so many clients are shown."""
        sentences = list(self.notes)
        for what, clients in self.values.items():
            spans = [f"{client}: {_span(values)}" for client, values in clients.items()]
            more = f" and {len(spans) - shown} more" if len(spans) > shown else ""
            sentences.append(
                f"Sent in the clear besides the models: {what!r} of {len(spans)} client(s) "
                f"({'; '.join(spans[:shown])}{more})."
            )
        return tuple(sentences)


def _span(values: tuple[int | Value, ...]) -> str:
    """One value as it is; several numbers as their range."""
    different = list(dict.fromkeys(values))
    if len(different) == 1:
        return str(different[0])
    numbers = [value for value in different if not isinstance(value, str)]
    if len(numbers) == len(different):
        return f"{min(numbers):.6g} to {max(numbers):.6g}"
    return ", ".join(map(str, different[:3]))


def in_the_clear(recording: Recording) -> InTheClear:
    """What the messages hold besides the models; nothing if the recorder noticed nothing."""
    return read(InTheClear, Held(recording, LOCAL_MODEL, EVERYBODY)) or InTheClear((), {})
