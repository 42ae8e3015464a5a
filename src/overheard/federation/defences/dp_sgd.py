"""DP-SGD: the clients' local steps are private for each record; see `programs.training`."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from pydantic import Field

from overheard.errors import FixConfig
from overheard.federation.defences.contract import Claim, Defence, Stage
from overheard.programs.recipe import PrivateSteps
from overheard.programs.training import LocalStep


class DpSgd(Defence):
    """The clients' local steps are private for each record."""

    name: Literal["dp_sgd"] = "dp_sgd"
    clip: float = Field(gt=0)
    """The norm to which each record's gradient is clipped. Example: `clip = 1.0`"""
    noise: float = Field(ge=0)
    """The standard deviation of every step's noise, in units of ``clip``. Example: `noise = 1.1`"""
    delta: float | None = Field(default=None, gt=0, lt=1)
    """For which the accountant states epsilon, below one over the records of all clients; left out,
    1e-5, or a tenth of one over the records where these are too many for it. Example: `delta =
    1e-6`"""

    @property
    def claim(self) -> Claim:
        promise = (
            f"each record's gradient is clipped to {self.clip:g} and every local step carries "
            f"noise of {self.noise:g} times that"
        )
        return Claim(
            self.name,
            Stage.TRAINING,
            promise,
            effects=("repeatable",),
            step_noise=self.noise,
            delta=self.delta,
        )

    def step(self, step: LocalStep) -> LocalStep:
        if step.private is not None:
            raise FixConfig("defence 'dp_sgd' is there twice; keep one")
        return replace(step, private=PrivateSteps(clip=self.clip, noise=self.noise))
