"""What an attack answers, by question. Metrics are functions of (guess, truth)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixData
from overheard.programs.records import Value

Diagnostics = Mapping[str, float | int | str]


@dataclass(frozen=True)
class LocalModel:
    """A guess of the model the client would have trained alone.

    ``sd`` is the standard deviation the attack claims for each parameter (NaN: no claim);
    ``identified`` counts the directions of parameter space that the messages determine.
    """

    parameters: NDArray[np.float64]
    sd: NDArray[np.float64]
    identified: int
    diagnostics: Diagnostics = field(default_factory=dict)


@dataclass(frozen=True)
class OwnModel:
    """The same of a client whose program trains no network: what its server would send next."""

    message: Mapping[str, NDArray[np.generic]]
    diagnostics: Diagnostics = field(default_factory=dict)


@dataclass(frozen=True)
class AttributeValues:
    """A probability (m, K) for each record and each value of the domain.

    ``labels``: the same for the records' classes, from attacks that did not know them. ``claims``:
    whether the attack stands by these probabilities; one that only decides puts 1 on its choice
    and claims nothing.
    """

    probabilities: NDArray[np.float64]
    values: tuple[Value, ...]
    diagnostics: Diagnostics = field(default_factory=dict)
    labels: AttributeValues | None = None
    claims: bool = True

    def __post_init__(self) -> None:
        p = self.probabilities
        if p.ndim != 2 or p.shape[1] != len(self.values):
            raise FixData(f"probabilities {p.shape} do not match {len(self.values)} values")
        if not np.isfinite(p).all() or (p < -1e-9).any() or not np.allclose(p.sum(1), 1, atol=1e-6):
            raise FixData("probabilities must be finite, non-negative and sum to one per record")

    def choice(self) -> NDArray[np.int64]:
        """Index of the most probable value of each record (the first among equals)."""
        return np.asarray(np.argmax(self.probabilities, axis=1))


@dataclass(frozen=True)
class Membership:
    """The probability (n,) that each record of the pool is the client's.

    ``attribute``: probabilities of each record's value *if* it is a member, where one was asked.
    """

    probabilities: NDArray[np.float64]
    attribute: AttributeValues | None = None
    diagnostics: Diagnostics = field(default_factory=dict)

    def __post_init__(self) -> None:
        p = self.probabilities
        if p.ndim != 1 or not _shares(p):
            raise FixData("membership: give one probability between 0 and 1 per record of the pool")
        if self.attribute is not None and len(self.attribute.probabilities) != len(p):
            raise FixData(f"{len(self.attribute.probabilities)} attributes for {len(p)} records")

    def choice(self) -> NDArray[np.bool_]:
        """Who is called a member: those more likely than not."""
        return np.asarray(self.probabilities > 0.5)


@dataclass(frozen=True)
class GroupMeans:
    """The mean label of the client's records in each group, in the target's own units.

    ``sd`` is the standard deviation that the attack claims (NaN: no claim); ``groups`` are the
    values of the grouping column.
    """

    groups: tuple[Value, ...]
    means: NDArray[np.float64]
    sd: NDArray[np.float64]
    diagnostics: Diagnostics = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = (len(self.groups),)
        if self.means.shape != shape or self.sd.shape != shape or not np.isfinite(self.means).all():
            raise FixData(f"give each of {shape[0]} groups a finite mean, and its sd")


@dataclass(frozen=True)
class LabelValues:
    """Every record's label, in the target's own units; ``sd`` as in `GroupMeans`."""

    values: NDArray[np.float64]
    sd: NDArray[np.float64]
    diagnostics: Diagnostics = field(default_factory=dict)

    def __post_init__(self) -> None:
        shape = self.values.shape
        if len(shape) != 1 or self.sd.shape != shape or not np.isfinite(self.values).all():
            raise FixData(f"labels {shape} and sd {self.sd.shape}: give finite labels, an sd each")


@dataclass(frozen=True)
class ClientProperty:
    """The probability (N,) that each client has the property, and who most likely has it.

    ``chosen`` (N,) may be nobody; they are accused, unless the answer flags itself. ``evidence``
    (T, N): the probabilities after so many rounds.
    ``contribution`` (N,): how much each client's updates helped, where the attack can tell.
    """

    probabilities: NDArray[np.float64]
    chosen: NDArray[np.bool_] | tuple[bool, ...]
    clients: tuple[str, ...]
    diagnostics: Diagnostics = field(default_factory=dict)
    evidence: NDArray[np.float64] | None = None
    contribution: NDArray[np.float64] | None = None

    def __post_init__(self) -> None:
        p, count = self.probabilities, len(self.clients)
        e = np.zeros((1, count)) if self.evidence is None else self.evidence
        c = np.zeros(count) if self.contribution is None else self.contribution
        shapes = [p.shape, np.shape(self.chosen), e.shape[1:], c.shape]
        if any(shape != (count,) for shape in shapes) or not np.isfinite(c).all():
            raise FixData(
                f"a property of {count} clients: probabilities, decisions, evidence and "
                f"contributions have shapes {shapes}; give each client one finite number of each"
            )
        if not _shares(p) or not _shares(e):
            raise FixData("a property: give each client one probability between 0 and 1")

    def choice(self) -> NDArray[np.bool_]:
        """Who is said to have the property."""
        return np.asarray(self.chosen, dtype=bool)


def _shares(p: NDArray[np.float64]) -> bool:
    return bool(np.isfinite(p).all() and not ((p < -1e-9) | (p > 1 + 1e-9)).any())


def certain(choice: NDArray[np.int64], values: tuple[Value, ...]) -> NDArray[np.float64]:
    """Probabilities of an attack that only decides: one for the chosen value."""
    return np.eye(len(values))[choice]
