"""What may an adversary know of the errors in what it knows?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from overheard.errors import FixData
from overheard.transcript.kind import Knowledge, kind


@kind
@dataclass(frozen=True)
class WrongCells(Knowledge):
    """Which share of the cells of the public records, and of the labels, are somebody else's.

    Nobody knows which. Without this knowledge what is known is taken to be right.
    """

    name: ClassVar[str] = "wrong cells"
    cells: float = 0.0
    labels: float = 0.0

    def __post_init__(self) -> None:
        for share in (self.cells, self.labels):
            if not 0 <= share < 1:
                raise FixData(f"a share {share:g} of wrong cells; give 0 or more, and less than 1")
