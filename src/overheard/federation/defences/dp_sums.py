"""Differentially private sums: what programs release that train no network, with noise."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from overheard.federation.defences.contract import Claim, Defence, Stage
from overheard.programs.program import Settings


class DpSums(Defence):
    """Releases of a program that trains no network are private for each record. A release sees
    every record, so that epsilon counts the rounds."""

    name: Literal["dp_sums"] = "dp_sums"
    clip: float = Field(gt=0)
    """The norm to which what a record adds to a release is scaled down. Example: `clip = 1.0`"""
    noise: float = Field(gt=0)
    """The standard deviation of each number's noise in units of ``clip``. Example: `noise = 2.0`"""
    delta: float | None = Field(default=None, gt=0, lt=1)
    """As that of ``dp_sgd``. Example: `delta = 1e-6`"""

    @property
    def claim(self) -> Claim:
        promise = (
            f"what each record adds to a release is clipped to {self.clip:g} and every number "
            f"carries noise of {self.noise:g} times that"
        )
        return Claim(self.name, Stage.TRAINING, promise, step_noise=self.noise, delta=self.delta)

    def program(self, settings: Settings) -> Settings:
        return self.changed(settings, clip=self.clip, noise=self.noise)
