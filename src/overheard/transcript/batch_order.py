"""What may an adversary know of the order in which a client visits its records?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixData
from overheard.programs.orders import CONVENTIONS, Convention, Place, Restart, Source, orders
from overheard.transcript.kind import Knowledge, kind


@kind
@dataclass(frozen=True)
class BatchOrder(Knowledge):
    """The order of a client's batches: known, or that of one of these seeds.

    ``orders``: of a round (its number as text), for every epoch the positions of the client's
    records in the order in which they are visited. Else the client's generator was seeded with one
    of ``seeds`` by one of ``conventions`` (none named: any of `overheard.programs.orders`); one of
    each is a known order too. Without this knowledge an adversary still tries common seeds.
    """

    name: ClassVar[str] = "batch order"
    per_client: ClassVar[bool] = True
    by_place: ClassVar[bool] = True
    seeds: tuple[int, ...] = ()
    conventions: tuple[tuple[Source, Restart], ...] = ()
    orders: Mapping[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.seeds and not self.orders:
            raise FixData("a batch order without seeds and without orders; give one of them")
        if wrong := [seed for seed in self.seeds if not 0 <= seed < 2**32]:
            raise FixData(f"seed {wrong[0]} of a batch order; seeds are 0 to 2^32 - 1")
        for number, epochs in self.orders.items():
            for one in epochs:
                if sorted(one) != list(range(len(one))):
                    raise FixData(
                        f"the batch order of round {number} is no order of the positions 0 to "
                        f"{len(one) - 1}; name each record once"
                    )

    def content(self) -> Any:
        """Without what is empty."""
        return {name: value for name, value in super().content().items() if value}

    def tried(self) -> tuple[Convention, ...]:
        """The conventions that may be."""
        return tuple(Convention(*c) for c in self.conventions) or CONVENTIONS

    def known(self, place: Place) -> NDArray[np.int64] | None:
        """The orders (epochs, records) of a round, where they are known."""
        given = self.orders.get(str(place.number))
        if given is not None:
            made = np.array(given, dtype=np.int64)
            if made.shape != (place.epochs, place.records):
                raise FixData(
                    f"the batch order of round {place.number} has shape {made.shape}; the client "
                    f"takes {place.epochs} epochs over {place.records} records"
                )
            return made
        if len(self.seeds) == len(self.conventions) == 1:
            return orders(self.tried()[0], self.seeds[0], place)
        return None
