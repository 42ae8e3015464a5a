"""What everybody is told or can read along: defences that are announced, remarks in the clear."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from overheard.errors import FixData
from overheard.programs.records import Value
from overheard.transcript.kind import Knowledge, kind

EFFECTS: dict[str, tuple[str, ...]] = {
    "clip": ("repeatable",),
    "gaussian": ("additive", "repeatable"),
    "drop_column": ("additive", "repeatable"),
    "dp_sgd": ("repeatable",),
    "top_k": ("sparse", "repeatable"),
    "quantise": (),
    "secure_sum": ("repeatable",),
    # of programs, whose settings say what was done
    **dict.fromkeys(("leaf_values", "suppress_cells", "round_counts", "dp_sums"), ()),
}
"""What recordings that name these defences mean by it. Any other defence says it itself."""


@kind
@dataclass(frozen=True)
class AppliedDefence(Knowledge):
    """What clients and server do against listeners, as every participant is told.

    ``clip_norm``: updates longer than this were scaled down to it (None: none were). ``noise_sd``:
    standard deviation of the Gaussian noise on each coordinate of an update (0: none), in the
    update's own units; ``server_noise_sd``: of the model that is sent. ``promises``: the same in
    words. Which updates were clipped, and by how much, is not told.

    ``effects``, of each name (by default, see `EFFECTS`): ``additive``, an update is still a sum
    over records, and the noise; ``sparse``, a coordinate of 0 was not sent; ``repeatable``, who
    trains again can do the same to the update, knowing what is told here.
    """

    name: ClassVar[str] = "applied defence"
    names: tuple[str, ...]
    clip_norm: float | None = None
    noise_sd: float = 0.0
    promises: tuple[str, ...] = ()
    server_noise_sd: float = 0.0
    effects: tuple[tuple[str, ...], ...] = ()

    def having(self, effect: str) -> tuple[str, ...]:
        """The names of those that have this effect."""
        each = self.effects or [EFFECTS.get(name, ()) for name in self.names]
        return tuple(name for name, has in zip(self.names, each, strict=True) if effect in has)

    def __post_init__(self) -> None:
        if self.effects and len(self.effects) != len(self.names):
            raise FixData(
                f"the applied defence has effects of {len(self.effects)} defences and names "
                f"{len(self.names)}; give those of each, or none"
            )
        if not 0 <= self.noise_sd < np.inf or not (self.clip_norm is None or self.clip_norm > 0):
            raise FixData(
                f"the applied defence has noise_sd {self.noise_sd} and clip_norm {self.clip_norm}; "
                "give a noise that is not negative and a norm that is positive, or leave them out"
            )


@kind
@dataclass(frozen=True)
class InTheClear(Knowledge):
    """What the messages said besides the models, as the recorder noticed it: no attack is needed.

    ``notes`` are sentences; ``values``, by name and client, what each message said (a metric, a
    record count).
    """

    name: ClassVar[str] = "what was sent in the clear"
    notes: tuple[str, ...]
    values: Mapping[str, Mapping[str, tuple[int | Value, ...]]]

    def sentences(self) -> tuple[str, ...]:
        """The findings in words, for an audit's notes."""
        said = list(self.notes)
        for what, clients in self.values.items():
            spans = [f"{client}: {_span(values)}" for client, values in clients.items()]
            more = f" and {len(spans) - _SHOWN} more" if len(spans) > _SHOWN else ""
            said.append(
                f"Sent in the clear besides the models: {what!r} of {len(spans)} client(s) "
                f"({'; '.join(spans[:_SHOWN])}{more})."
            )
        return tuple(said)


_SHOWN = 5  # clients in a sentence


def _span(said: tuple[int | Value, ...]) -> str:
    """One value as it is; several numbers as their range."""
    different = list(dict.fromkeys(said))
    if len(different) == 1:
        return str(different[0])
    numbers = [value for value in different if not isinstance(value, str)]
    if len(numbers) == len(different):
        return f"{min(numbers):.6g} to {max(numbers):.6g}"
    return ", ".join(map(str, different[:3]))
