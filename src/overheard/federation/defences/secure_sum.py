"""Secure aggregation: the server learns the sum of a round's updates and who took part.

Recorded is what a protocol such as that of Bonawitz et al. (CCS 2017) leaves the server to see: the
sum, in fixed point, of the updates of those who did not drop out. How a real protocol hides the
single uploads (masks that cancel, shares that open them when clients are lost) changes nothing in
that sum and is not simulated; docs/secure-aggregation.md says what it adds, and what a server that
has clients on its side could do.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from pydantic import Field

from overheard.errors import FixConfig
from overheard.federation.defences.contract import Array, Claim, Defence, RoundContext, Stage, Who
from overheard.programs.program import Settings

STEP = 2.0**-32
"""Updates are rounded to multiples of this: a protocol adds whole numbers."""


class SecureSum(Defence):
    """The server learns the sum of a round's updates and who took part."""

    name: Literal["secure_sum"] = "secure_sum"
    dropout_rate: float = Field(default=0.0, ge=0, lt=1)
    """The probability that a client of a round is lost before its update counts."""

    @property
    def claim(self) -> Claim:
        promise = "the server learns the sum of a round's updates and who took part, no single one"
        return Claim(self.name, Stage.SUM, promise, effects=("repeatable",))

    def upload(self, updates: Array, context: RoundContext) -> Array:
        return np.asarray(np.round(updates / STEP) * STEP)

    def program(self, settings: Settings) -> Settings:
        return self.changed(settings, rounded_to=STEP)

    def total(self, updates: Array, context: RoundContext) -> tuple[Array, Who]:
        """The sum of the updates of the clients that did not drop out, and who these were."""
        clients = len(updates)
        answered = np.flatnonzero(context.rng.random(clients) >= self.dropout_rate)
        if len(answered) < min(2, clients):
            raise FixConfig(
                f"round {context.number}: {clients - len(answered)} of {clients} clients dropped "
                "out, and a sum of fewer than two hides nothing; lower dropout_rate (it is "
                f"{self.dropout_rate:g}); the rounds before are kept"
            )
        return updates[answered].sum(axis=0) + 0.0, answered  # no negative zeros
