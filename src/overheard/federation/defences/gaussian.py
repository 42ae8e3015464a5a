"""Gaussian noise: by each client on its own update, or by the server on the model it sends."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from overheard.errors import FixConfig
from overheard.federation.defences.contract import (
    Array,
    Claim,
    Defence,
    DefenceConfig,
    Rng,
    Stage,
    on_broadcast,
    on_upload,
)

At = Literal["client", "server"]


class GaussianConfig(DefenceConfig):
    """``sd``: standard deviation on each coordinate; or ``times_clip``: that, in units of the clip
    norm of an earlier ``clip``. ``at``: who adds it."""

    name: Literal["gaussian"] = "gaussian"
    sd: float | None = Field(default=None, gt=0)
    times_clip: float | None = Field(default=None, gt=0)
    at: At = "client"

    @model_validator(mode="after")
    def _one_of_two(self) -> GaussianConfig:
        if (self.sd is None) == (self.times_clip is None):
            raise ValueError("give either sd or times_clip")
        return self

    def build(self, before: tuple[Claim, ...]) -> Defence:
        if self.sd is not None:
            return gaussian(self.sd, self.at)
        norms = [c.clip_norm for c in before if c.clip_norm is not None]
        if not norms or self.times_clip is None:
            raise FixConfig(
                f"defence 'gaussian': times_clip = {self.times_clip} is in units of a clip norm, "
                "and there is no 'clip' before it; add one, or give sd"
            )
        return gaussian(self.times_clip * min(norms), self.at)


def gaussian(sd: float, at: At = "client") -> Defence:
    """Independent N(0, sd^2) on every coordinate."""

    def change(values: Array, rng: Rng) -> Array:
        return values + rng.normal(0.0, sd, values.shape)

    if at == "server":
        promise = f"every coordinate of the model that is sent carries noise of sd {sd:g}"
        claim = Claim("gaussian", Stage.NOISE, promise, server_noise_sd=sd)
        return on_broadcast(change, claim)
    promise = f"every coordinate of an update carries noise of sd {sd:g}"
    return on_upload(change, Claim("gaussian", Stage.NOISE, promise, noise_sd=sd))
