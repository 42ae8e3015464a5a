"""Counts of released tables are rounded. It promises no privacy."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from overheard.federation.defences.contract import Claim, Defence, Stage
from overheard.programs.program import Settings


class RoundCounts(Defence):
    """Counts of released tables are rounded."""

    name: Literal["round_counts"] = "round_counts"
    to: int = Field(ge=2, le=1000)
    """Counts are rounded to the nearest multiple of it, halves up. Example: `to = 5`"""

    @property
    def claim(self) -> Claim:
        promise = f"every count is rounded to a multiple of {self.to}"
        return Claim(self.name, Stage.COMPRESSION, promise)

    def program(self, settings: Settings) -> Settings:
        return self.changed(settings, round_to=self.to)
