"""The contract of a defence: what it does on either side of the wire, and what it promises.

A defence is four things in a NamedTuple. ``init`` makes its state, ``upload`` changes the updates
of the clients of a round before they are sent, ``broadcast`` the model before the server sends it,
and ``claim`` says what was promised, as data. `chain` joins several in the order in which they act,
and refuses an order in which a later one would void what an earlier one promised. A toy::

    def halve() -> Defence:
        return on_upload(lambda updates, rng: updates / 2, Claim("halve", Stage.BOUND, "halves"))
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from overheard.errors import FixConfig
from overheard.learning.records import Spec
from overheard.transcript.knowledge import AppliedDefence

Array = NDArray[np.float64]
Who = NDArray[np.int64]
Rng = np.random.Generator
State = Any
LARGEST = 1e100  # of a setting: its square is a number, too


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
    """What one defence promises, as data that every participant is told.

    ``clip_norm``: no update leaves with a larger Euclidean norm. ``noise_sd``: the standard
    deviation of Gaussian noise on each coordinate of an update, 0 for none. ``server_noise_sd``:
    the same on each coordinate of the model that the server sends. ``promises`` in words.
    """

    name: str
    stage: Stage
    promises: str
    clip_norm: float | None = None
    noise_sd: float = 0.0
    server_noise_sd: float = 0.0


class Defence(NamedTuple):
    """``init(clients, parameters) -> state``;
    ``upload(state, updates (n, P), who (n,), rng) -> (updates, state)``, where ``who`` are the
    positions of the round's clients and nothing is changed in place;
    ``broadcast(state, model (P,), rng) -> (model, state)``; all in float64. ``claim``: of each
    link of the chain, in order.
    """

    init: Callable[[int, int], State]
    upload: Callable[[State, Array, Who, Rng], tuple[Array, State]]
    broadcast: Callable[[State, Array, Rng], tuple[Array, State]]
    claim: tuple[Claim, ...]


def on_upload(change: Callable[[Array, Rng], Array], claim: Claim) -> Defence:
    """A defence without a memory that acts on the clients' side only."""
    return Defence(
        lambda clients, parameters: (),
        lambda state, updates, who, rng: (change(updates, rng), state),
        lambda state, model, rng: (model, state),
        (claim,),
    )


def on_broadcast(change: Callable[[Array, Rng], Array], claim: Claim) -> Defence:
    """A defence without a memory that acts on the server's side only."""
    return Defence(
        lambda clients, parameters: (),
        lambda state, updates, who, rng: (updates, state),
        lambda state, model, rng: (change(model, rng), state),
        (claim,),
    )


def chain(*parts: Defence) -> Defence:
    """Several defences as one, acting in this order; refuses an order that voids a claim.

    ``chain()`` is the identity, and ``chain(a, chain(b, c))`` is ``chain(a, b, c)``.
    """
    claims = tuple(claim for part in parts for claim in part.claim)
    for earlier, later in pairwise(claims):
        if later.stage < earlier.stage:
            raise FixConfig(
                f"defence {later.name!r} after {earlier.name!r} voids what {earlier.name!r} "
                f"promises ({earlier.promises}); put {later.name!r} before it"
            )

    def init(clients: int, parameters: int) -> State:
        return tuple(part.init(clients, parameters) for part in parts)

    def upload(state: State, updates: Array, who: Who, rng: Rng) -> tuple[Array, State]:
        after = []
        for part, its in zip(parts, state, strict=True):
            updates, new = part.upload(its, updates, who, rng)
            after.append(new)
        return updates, tuple(after)

    def broadcast(state: State, model: Array, rng: Rng) -> tuple[Array, State]:
        after = []
        for part, its in zip(parts, state, strict=True):
            model, new = part.broadcast(its, model, rng)
            after.append(new)
        return model, tuple(after)

    return Defence(init, upload, broadcast, claims)


def told(claims: tuple[Claim, ...]) -> AppliedDefence:
    """What every participant is told."""
    norms = [c.clip_norm for c in claims if c.clip_norm is not None]
    return AppliedDefence(
        names=tuple(c.name for c in claims),
        clip_norm=min(norms) if norms else None,
        noise_sd=float(np.sqrt(sum(c.noise_sd**2 for c in claims))),
        promises=tuple(c.promises for c in claims),
        server_noise_sd=float(np.sqrt(sum(c.server_noise_sd**2 for c in claims))),
    )


class DefenceConfig(Spec, ABC):
    """The settings of one defence in a config; ``build`` is told what those before it claim."""

    name: str

    @model_validator(mode="after")
    def _ordinary(self) -> Self:
        """Numbers whose squares are numbers."""
        for name, value in self:
            if isinstance(value, float) and abs(value) > LARGEST:
                raise ValueError(f"{name} is beyond {LARGEST:g}")
        return self

    @abstractmethod
    def build(self, before: tuple[Claim, ...]) -> Defence: ...
