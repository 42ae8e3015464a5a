"""The contract of a defence: what it does in six places, and what it promises.

A defence is one class in one file. Its fields are its settings in a config, ``claim`` is what it
promises, as data, and it overrides the hooks that it needs, of these:

    records     what becomes of a client's records before it trains on them
    step        what is done inside every step of local training
    upload      what becomes of the updates of a round's clients before they leave
    total       what the server learns of a round's updates, in place of every single one
    broadcast   what becomes of the global model before it is sent
    program     what becomes of the settings of a program that trains no network

Programs know ``records``, ``program`` and ``total``: what they release follows from their settings,
which everybody knows, so that whoever decodes it knows what was done to it.

`chain` joins several in the order in which they act, and refuses an order in which a later one
would void what an earlier one promised. ``examples/label_smoothing.py`` is one to start from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from enum import IntEnum
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from overheard.errors import FixConfig
from overheard.federation.reading import checked
from overheard.programs.program import Settings
from overheard.programs.records import Records, Spec
from overheard.programs.training import LocalStep
from overheard.transcript.knowledge import AppliedDefence

Array = NDArray[np.float64]
Who = NDArray[np.int64]
Rng = np.random.Generator
LARGEST = 1e100  # of a setting: its square is a number, too
HOOKS = ("records", "step", "upload", "total", "broadcast", "program")
OF_PROGRAMS = frozenset({"records", "total", "program"})


class Stage(IntEnum):
    """Where in a chain a defence belongs. A later stage keeps what an earlier one promised; an
    earlier stage after a later one would void it."""

    TRAINING = 0
    """Changes what the client computes (fewer columns, noisy steps)."""
    BOUND = 1
    """Bounds how large an update can be."""
    NOISE = 2
    """Adds noise, whose worth is counted in units of the bound before it."""
    COMPRESSION = 3
    """Sends fewer numbers, or fewer bits of each."""
    SUM = 4
    """Hides single updates in their sum."""


@dataclass(frozen=True)
class Claim:
    """What one defence promises, as data.

    Every participant knows ``promises`` in words; ``clip_norm``: no update leaves with a larger
    Euclidean norm; ``noise_sd``: the standard deviation of Gaussian noise on each coordinate of an
    update, 0 for none; ``server_noise_sd``: the same on each coordinate of the model that the
    server sends.

    ``effects``: what else who listens may count on, in the words of `AppliedDefence`.

    For the accountant alone: ``step_noise``, the noise of each local step, or of each release of a
    program, in units of the norm to which what a record adds is clipped (None: it is not), and the
    ``delta`` that was chosen.
    """

    name: str
    stage: Stage
    promises: str
    clip_norm: float | None = None
    noise_sd: float = 0.0
    server_noise_sd: float = 0.0
    effects: tuple[str, ...] = ()
    step_noise: float | None = None
    delta: float | None = None


@dataclass(frozen=True)
class RoundContext:
    """A round, for who defends it: its number, the positions ``who`` (n,) of its clients, a random
    stream, and what a defence keeps from round to round (empty at first, and its own)."""

    number: int
    who: Who
    rng: Rng
    memory: dict[Any, Any] = field(default_factory=dict)


class Defence(Spec, ABC):
    """A defence: settings, promise and hooks. What is not overridden changes nothing, and no hook
    changes its input in place. Updates (n, P) and models (P,) are float64."""

    name: str

    @property
    @abstractmethod
    def claim(self) -> Claim: ...

    def settled(self, before: tuple[Claim, ...]) -> Self:
        """The same in units of its own, where settings are in units of what others claim."""
        return self

    def records(self, records: Records, rng: Rng) -> Records:
        """The records that the client trains on; a column that is gone is not seen by the model."""
        return records

    def step(self, step: LocalStep) -> LocalStep:
        """What is done inside local training, added to what others do there."""
        return step

    def upload(self, updates: Array, context: RoundContext) -> Array:
        """The updates as they leave; an update is ``sent - returned``, or the gradient sent."""
        return updates

    def total(self, updates: Array, context: RoundContext) -> tuple[Array, Who]:
        """The sum (P,) that the server learns, and which of the n clients are in it."""
        return updates.sum(axis=0), np.arange(len(updates))

    def broadcast(self, model: Array, context: RoundContext) -> Array:
        """The global model as it is sent."""
        return model

    def program(self, settings: Settings) -> Settings:
        """The settings of a program that trains no network, as every client knows them."""
        return settings

    def changed(self, settings: Settings, **changes: Any) -> Settings:
        """The settings of a program with some changed; refused where it has none of that name."""
        words = f"defence {self.name!r} does not fit model {settings.name!r}"
        return checked(type(settings), {**settings.model_dump(), **changes}, words)

    @classmethod
    def hooks(cls) -> tuple[str, ...]:
        """The hooks that this defence has."""
        return tuple(h for h in HOOKS if getattr(cls, h) is not getattr(Defence, h))

    @model_validator(mode="after")
    def _ordinary(self) -> Self:
        """Numbers whose squares are numbers."""
        for name, value in self:
            if isinstance(value, float) and abs(value) > LARGEST:
                raise ValueError(f"{name} is beyond {LARGEST:g}")
        return self


@dataclass(frozen=True)
class Chain:
    """Several defences as one, in the order in which they act; see `chain`."""

    parts: tuple[Defence, ...]

    @property
    def claims(self) -> tuple[Claim, ...]:
        return tuple(part.claim for part in self.parts)

    @property
    def summing(self) -> Defence | None:
        """The defence that hides single updates in their sum, if there is one."""
        return next((part for part in self.parts if "total" in part.hooks()), None)

    def records(self, records: Records, rng: Rng) -> Records:
        for part in self.parts:
            records = part.records(records, rng)
        return records

    def step(self, classes: int) -> LocalStep:
        """What all of them do inside local training; ``classes``: of the label, 0 for a number."""
        step = LocalStep(classes)
        for part in self.parts:
            step = part.step(step)
        if step.private and step.batches:
            raise FixConfig(
                "private steps count every record of a batch once, and a defence changes the "
                f"batches ({', '.join(part.name for part in self.parts)}); leave one of them out"
            )
        return step

    def program(self, settings: Settings) -> Settings:
        for part in self.parts:
            if OF_PROGRAMS.isdisjoint(part.hooks()):
                raise FixConfig(
                    f"defence {part.name!r} is about networks, and model {settings.name!r} trains "
                    "none: leave it out"
                )
            settings = part.program(settings)
        return settings

    def upload(self, updates: Array, context: RoundContext) -> Array:
        for part, its in self._with(context):
            updates = part.upload(updates, its)
        return updates

    def total(self, updates: Array, context: RoundContext) -> tuple[Array, Who]:
        for part, its in self._with(context):
            if part is self.summing:
                return part.total(updates, its)
        return updates.sum(axis=0), np.arange(len(updates))

    def broadcast(self, model: Array, context: RoundContext) -> Array:
        for part, its in self._with(context):
            model = part.broadcast(model, its)
        return model

    def _with(self, context: RoundContext) -> list[tuple[Defence, RoundContext]]:
        """Each defence with the round and a memory of its own."""
        return [
            (part, replace(context, memory=context.memory.setdefault(place, {})))
            for place, part in enumerate(self.parts)
        ]


def chain(*parts: Defence | Chain) -> Chain:
    """Several defences as one, acting in this order; refuses an order that voids a claim.

    ``chain()`` changes nothing, and ``chain(a, chain(b, c))`` is ``chain(a, b, c)``.
    """
    flat: tuple[Defence, ...] = ()
    for part in parts:
        for one in part.parts if isinstance(part, Chain) else (part,):
            flat = (*flat, one.settled(tuple(earlier.claim for earlier in flat)))
    for earlier, later in pairwise(part.claim for part in flat):
        if later.stage < earlier.stage:
            raise FixConfig(
                f"defence {later.name!r} after {earlier.name!r} voids what {earlier.name!r} "
                f"promises ({earlier.promises}); put {later.name!r} before it"
            )
    return Chain(flat)


def applied(claims: tuple[Claim, ...]) -> AppliedDefence:
    """What every participant knows."""
    norms = [c.clip_norm for c in claims if c.clip_norm is not None]
    return AppliedDefence(
        names=tuple(c.name for c in claims),
        clip_norm=min(norms) if norms else None,
        noise_sd=float(np.sqrt(sum(c.noise_sd**2 for c in claims))),
        promises=tuple(c.promises for c in claims),
        server_noise_sd=float(np.sqrt(sum(c.server_noise_sd**2 for c in claims))),
        effects=tuple(c.effects for c in claims),
    )
