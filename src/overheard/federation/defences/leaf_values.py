"""Fewer fields of boosted trees: values of leaves alone, rounded if asked. Nothing is promised."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from overheard.federation.defences.contract import Claim, Defence, Stage
from overheard.programs.program import Settings


class LeafValues(Defence):
    """Trees leave with the values of their leaves and without every other sum, which no prediction
    needs."""

    name: Literal["leaf_values"] = "leaf_values"
    rounded_to: float = Field(default=0.0, ge=0, le=100)
    """The values are rounded to multiples of it (0: as they are)."""

    @property
    def claim(self) -> Claim:
        rounded = f", rounded to multiples of {self.rounded_to:g}" if self.rounded_to else ""
        promise = f"of every tree only the values of its leaves are sent{rounded}"
        return Claim(self.name, Stage.COMPRESSION, promise)

    def program(self, settings: Settings) -> Settings:
        return self.changed(settings, releases="values", leaf_step=self.rounded_to)
