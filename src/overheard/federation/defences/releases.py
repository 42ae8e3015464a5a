"""Defences of what programs release that train no network: they change the program's settings,
which are told to everybody. Only noise promises privacy."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from overheard.federation.defences.contract import Claim, Defence, Stage, changed
from overheard.programs.program import Settings


class DpSums(Defence):
    """``clip``: what one record adds to the numbers of a release is scaled down to this norm;
    ``noise``: standard deviation of the noise on each number in units of it; ``delta``: as that of
    `dp_sgd`. A release sees every record, so that epsilon counts the rounds."""

    name: Literal["dp_sums"] = "dp_sums"
    clip: float = Field(gt=0)
    noise: float = Field(gt=0)
    delta: float | None = Field(default=None, gt=0, lt=1)

    @property
    def claim(self) -> Claim:
        promise = (
            f"what each record adds to a release is clipped to {self.clip:g} and every number "
            f"carries noise of {self.noise:g} times that"
        )
        return Claim(self.name, Stage.TRAINING, promise, step_noise=self.noise, delta=self.delta)

    def program(self, settings: Settings) -> Settings:
        return changed(self, settings, clip=self.clip, noise=self.noise)


class LeafValues(Defence):
    """Trees leave with the values of their leaves and without every other sum, which no prediction
    needs; ``rounded_to``: the values are rounded to multiples of it (0: as they are)."""

    name: Literal["leaf_values"] = "leaf_values"
    rounded_to: float = Field(default=0.0, ge=0, le=100)

    @property
    def claim(self) -> Claim:
        rounded = f", rounded to multiples of {self.rounded_to:g}" if self.rounded_to else ""
        promise = f"of every tree only the values of its leaves are sent{rounded}"
        return Claim(self.name, Stage.COMPRESSION, promise)

    def program(self, settings: Settings) -> Settings:
        return changed(self, settings, wire="values", leaf_step=self.rounded_to)


class RoundCounts(Defence):
    """``to``: counts are rounded to the nearest multiple of it, halves up."""

    name: Literal["round_counts"] = "round_counts"
    to: int = Field(ge=2, le=1000)

    @property
    def claim(self) -> Claim:
        promise = f"every count is rounded to a multiple of {self.to}"
        return Claim(self.name, Stage.COMPRESSION, promise)

    def program(self, settings: Settings) -> Settings:
        return changed(self, settings, round_to=self.to)


class SuppressCells(Defence):
    """``below``: counts from 1 to below it are not released, nor sums and means of so few;
    ``zeros``: counts of 0 are, all the same."""

    name: Literal["suppress_cells"] = "suppress_cells"
    below: int = Field(ge=2, le=1000)
    zeros: bool = False

    @property
    def claim(self) -> Claim:
        shown = "0 is shown" if self.zeros else "0 is not shown either"
        promise = f"no count below {self.below} is released; {shown}"
        return Claim(self.name, Stage.COMPRESSION, promise)

    def program(self, settings: Settings) -> Settings:
        return changed(self, settings, suppress=self.below, zeros=self.zeros)
