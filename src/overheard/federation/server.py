"""What does the server make of a round? Rules for the next global model, as (init, update) pairs.

Every rule starts from the model that averaging the clients would give. `Mean` takes
it as it is. The others take the way from the present model to it for a gradient, and follow it
with a memory of earlier rounds: `Momentum` is FedAvgM (Hsu, Qi and Brown 2019), `Adam` is FedAdam
(Reddi et al. 2021, Algorithm 2). Simulator, dry runs and sweeps make their models here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from overheard.federation.reading import parse_named
from overheard.programs.recipe import Recipe
from overheard.programs.records import Spec
from overheard.programs.training import CACHE

Array = NDArray[np.floating[Any]]
State = tuple[Array, ...]
"""What a rule keeps from round to round; nothing, if the last round is all that it needs."""


class ServerRule(Spec):
    """Settings of a rule in a config's ``[server]``, and the rule."""

    rule: str

    def init(self, parameters: int) -> State:
        """Before the first round."""
        return ()

    def update(self, state: State, model: Array, averaged: Array) -> tuple[Array, State]:
        """The next model, from the present one and the average of what the clients made of it."""
        return averaged, state


class Mean(ServerRule):
    """The mean of the clients (FedAvg)."""

    rule: Literal["mean"] = "mean"


class Momentum(ServerRule):
    """v = momentum * v + (model - averaged); the model moves by -learning_rate * v."""

    rule: Literal["momentum"] = "momentum"
    learning_rate: float = Field(default=1.0, gt=0)
    """The server's step size."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """How much of the last way goes into the next one."""

    def init(self, parameters: int) -> State:
        return (np.zeros(parameters),)

    def update(self, state: State, model: Array, averaged: Array) -> tuple[Array, State]:
        start = model.astype(np.float64)
        (velocity,) = state
        velocity = self.momentum * velocity + (start - averaged)
        return (start - self.learning_rate * velocity).astype(model.dtype), (velocity,)


class Adam(ServerRule):
    """Running means of the way to the average and of its square; the model moves by learning_rate
    times the first over the root of the second, plus tau."""

    rule: Literal["adam"] = "adam"
    learning_rate: float = Field(default=0.1, gt=0)
    """The server's step size."""
    beta1: float = Field(default=0.9, ge=0, lt=1)
    """Of the running mean of the way."""
    beta2: float = Field(default=0.99, ge=0, lt=1)
    """Of the running mean of its square."""
    tau: float = Field(default=1e-3, gt=0)
    """Keeps the steps finite."""

    def init(self, parameters: int) -> State:
        return np.zeros(parameters), np.full(parameters, self.tau**2)

    def update(self, state: State, model: Array, averaged: Array) -> tuple[Array, State]:
        start = model.astype(np.float64)
        way = averaged - start
        first = self.beta1 * state[0] + (1 - self.beta1) * way
        second = self.beta2 * state[1] + (1 - self.beta2) * way**2
        moved = start + self.learning_rate * first / (np.sqrt(second) + self.tau)
        return moved.astype(model.dtype), (first, second)


RULES: dict[str, type[ServerRule]] = {
    kind.model_fields["rule"].default: kind for kind in (Mean, Momentum, Adam)
}


def parse_rule(content: Any) -> Any:
    """The checked settings of a rule, from a config's ``[server]``."""
    return parse_named("server rule", "rule", RULES, content)


@dataclass(frozen=True)
class Server:
    """A server between two rounds: its model (P,), and what its rule keeps."""

    rule: ServerRule
    recipe: Recipe
    model: Array
    state: State

    def averaged(self, returned: Array, weights: NDArray[np.float64]) -> Server:
        """The server after a round, from the models or gradients (n, P) of clients that count so
        much. Where clients return gradients, averaging them is one step along their mean."""
        mean = np.empty(returned.shape[1])
        wide = max(1, CACHE // (16 * len(returned)))
        for begin in range(0, len(mean), wide):  # in float64, without a copy of all models
            part = slice(begin, begin + wide)
            mean[part] = weights @ returned[:, part].astype(np.float64)
        averaged = mean.astype(self.model.dtype)
        if self.recipe.sends_gradient:
            averaged = self.model - self.model.dtype.type(self.recipe.learning_rate) * averaged
        return self._after(averaged)

    def summed(self, total: Array, clients: int) -> Server:
        """The same from the sum (P,) of so many clients' updates."""
        rate = self.recipe.learning_rate if self.recipe.sends_gradient else 1.0
        averaged = np.asarray(self.model.astype(np.float64) - rate * (total / clients))
        return self._after(averaged.astype(self.model.dtype))

    def _after(self, averaged: Array) -> Server:
        model, state = self.rule.update(self.state, self.model, averaged)
        return replace(self, model=model, state=state)
