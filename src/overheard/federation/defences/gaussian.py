"""Gaussian noise: by each client on its own update, or by the server on the model it sends."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from overheard.errors import FixConfig
from overheard.federation.defences.contract import Array, Claim, Defence, RoundContext, Stage


class Gaussian(Defence):
    """Independent N(0, sd^2) on every coordinate."""

    name: Literal["gaussian"] = "gaussian"
    sd: float | None = Field(default=None, gt=0)
    """The standard deviation. Example: `sd = 0.01`"""
    times_clip: float | None = Field(default=None, gt=0)
    """The same in units of the norm of an earlier ``clip``. Example: `times_clip = 0.5`"""
    at: Literal["client", "server"] = "client"
    """Who adds it: each client to its update, or the server to the model that it sends."""

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if (self.sd is None) == (self.times_clip is None):
            raise ValueError("give either sd or times_clip")
        return self

    def settled(self, before: tuple[Claim, ...]) -> Self:
        if self.times_clip is None:
            return self
        norms = [c.clip_norm for c in before if c.clip_norm is not None]
        if not norms:
            raise FixConfig(
                f"defence 'gaussian': times_clip = {self.times_clip} is in units of a clip norm, "
                "and there is no 'clip' before it; add one, or give sd"
            )
        return self.model_copy(update={"sd": self.times_clip * min(norms), "times_clip": None})

    @property
    def claim(self) -> Claim:
        sd, effects = self.sd or 0.0, ("additive", "repeatable")
        if self.at == "server":
            promise = f"every coordinate of the model that is sent carries noise of sd {sd:g}"
            return Claim(self.name, Stage.NOISE, promise, effects=effects, server_noise_sd=sd)
        promise = f"every coordinate of an update carries noise of sd {sd:g}"
        return Claim(self.name, Stage.NOISE, promise, effects=effects, noise_sd=sd)

    def upload(self, updates: Array, context: RoundContext) -> Array:
        return self._noisy(updates, context) if self.at == "client" else updates

    def broadcast(self, model: Array, context: RoundContext) -> Array:
        return self._noisy(model, context) if self.at == "server" else model

    def _noisy(self, values: Array, context: RoundContext) -> Array:
        return values + context.rng.normal(0.0, self.sd or 0.0, values.shape)
