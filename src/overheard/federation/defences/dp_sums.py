"""Differentially private sums: what programs release that train no network, with noise."""

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
