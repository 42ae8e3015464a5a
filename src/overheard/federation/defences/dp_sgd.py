"""DP-SGD: the clients' local steps are private for each record; see `learning.private`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from overheard.federation.defences.contract import (
    Claim,
    Defence,
    DefenceConfig,
    Stage,
    on_upload,
)


class DpSgdConfig(DefenceConfig):
    """``clip``: norm of a record's gradient; ``noise``: standard deviation of the noise in units of
    it; ``delta``: for which the accountant states epsilon, below one over the records of all
    clients; by default 1e-5, or a tenth of one over the records where these are too many for it."""

    name: Literal["dp_sgd"] = "dp_sgd"
    clip: float = Field(gt=0)
    noise: float = Field(ge=0)
    delta: float | None = Field(default=None, gt=0, lt=1)

    def build(self, before: tuple[Claim, ...]) -> Defence:
        promise = (
            f"each record's gradient is clipped to {self.clip:g} and every local step carries "
            f"noise of {self.noise:g} times that"
        )
        return on_upload(lambda updates, rng: updates, Claim("dp_sgd", Stage.TRAINING, promise))
