"""Small cells of released tables are not shown. It promises no privacy."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from overheard.federation.defences.contract import Claim, Defence, Stage
from overheard.programs.program import Settings


class SuppressCells(Defence):
    """Small cells of released tables are not shown."""

    name: Literal["suppress_cells"] = "suppress_cells"
    below: int = Field(ge=2, le=1000)
    """Counts from 1 to below it are not released, nor sums and means of so few. Example: `below =
    5`"""
    zeros: bool = False
    """Counts of 0 are released all the same."""

    @property
    def claim(self) -> Claim:
        shown = "0 is shown" if self.zeros else "0 is not shown either"
        promise = f"no count below {self.below} is released; {shown}"
        return Claim(self.name, Stage.COMPRESSION, promise)

    def program(self, settings: Settings) -> Settings:
        return self.changed(settings, suppress=self.below, zeros=self.zeros)
