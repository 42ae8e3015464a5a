"""What do Newton steps tell? Each client sends the gradient and the Hessian of its own records.

Generalised linear models are federated this way (DataSHIELD, vantage6, FLARE's logistic
regression): the server sends the coefficients ``b``, a client with inputs ``X`` and labels ``y``
answers

    gradient  X'(y - mu(Xb)) weighted by the family,      Hessian  X' W(Xb) X,

and the server adds them up and moves ``b`` by the solution of the sums. With the candidate ``v``
of a record, its own terms x(v) (y - mu) and w x(v) x(v)' are known numbers: ``d (d + 3) / 2``
equations a message, exactly linear in which candidate each record is.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator
from scipy import linalg, special

from overheard.decoding.measurement import Measurement
from overheard.errors import FixConfig
from overheard.programs.program import (
    Candidates,
    Exchange,
    Message,
    Program,
    SummedSettings,
    expected,
    measured,
    room,
)
from overheard.programs.records import Records, encode

Array = NDArray[np.float64]
MOST_INPUTS = 2000
"""Whose Hessian a message can hold."""


class Family(NamedTuple):
    """Of a linear predictor and labels: what multiplies a record's inputs in the gradient of its
    log likelihood, and their products in the Hessian of its negative; the labels that it allows."""

    residual: Callable[[Array, Array], Array]
    weight: Callable[[Array, Array], Array]
    classes: int = 0
    positive: float | None = None


def _exp(eta: Array) -> Array:
    return np.asarray(np.exp(np.minimum(eta, 700.0)))


FAMILIES: dict[str, Family] = {
    "linear": Family(lambda e, y: y - e, lambda e, y: np.ones_like(e)),
    "logistic": Family(
        lambda e, y: y - special.expit(e),
        lambda e, y: special.expit(e) * special.expit(-e),
        classes=2,
    ),
    "poisson": Family(lambda e, y: y - _exp(e), lambda e, y: _exp(e), positive=0.0),
    # log link: its Hessian is the observed one, y exp(-eta)
    "gamma": Family(
        lambda e, y: y * _exp(-e) - 1, lambda e, y: y * _exp(-e), positive=np.spacing(0.0)
    ),
}
"""Log likelihoods by their names: gamma and Poisson with the logarithm as their link."""


class NewtonSettings(SummedSettings):
    """Newton's method for a generalised linear model.

    The arrays are coefficients, gradient and hessian. In recorded messages a Hessian may be its
    upper triangle or the whole matrix, a vector a matrix of one column. Under ``noise`` the server
    raises what is small of the Hessian to what is noise alone.
    """

    name: Literal["newton"] = "newton"
    likelihood: Literal["linear", "logistic", "poisson", "gamma"] = "logistic"
    """Of the labels."""
    ridge: float = Field(default=0.0, ge=0)
    """Half of it times the squared coefficients is added to the loss."""
    intercept: bool | Literal["first"] = True
    """An intercept after the inputs, before them ("first"), or none."""
    step: float = Field(default=1.0, gt=0, le=1)
    """What the server multiplies Newton's step with."""

    @property
    def labels_as_they_are(self) -> bool:  # type: ignore[override]
        """Counts and positive numbers are."""
        return FAMILIES[self.likelihood].positive is not None


class Newton(Program):
    """Gradient and Hessian of a generalised linear model, for the server to add up and step."""

    settings: NewtonSettings

    @property
    def random(self) -> bool:  # type: ignore[override]
        return self.settings.noise > 0

    @model_validator(mode="after")
    def _fits(self) -> Self:
        family = FAMILIES[self.settings.likelihood]
        if len(self.target.classes) != family.classes:
            needs = f"{family.classes} classes" if family.classes else "a number"
            raise ValueError(
                f"likelihood {self.settings.likelihood!r} needs {needs}, and the target "
                f"{self.target.column!r} has {len(self.target.classes) or 'no'} classes"
            )
        if not 1 <= self.size <= MOST_INPUTS:
            raise ValueError(f"{self.size} coefficients; 1 to {MOST_INPUTS} are allowed")
        return self

    @property
    def size(self) -> int:
        """Number of coefficients, d."""
        return self.encoding.width + bool(self.settings.intercept)

    def first(self) -> Message:
        return {"coefficients": np.zeros(self.size)}

    def respond(self, received: Message, records: Records, rng: np.random.Generator) -> Message:
        coefficients = expected(received, "coefficients", (self.size,), 0)
        inputs, labels = self._design(records)
        slope, weight = self._factors(inputs, labels, coefficients)
        hessian = inputs.T @ (inputs * weight[:, None])
        answer = {"gradient": inputs.T @ slope, "hessian": hessian[np.triu_indices(self.size)]}
        if self.settings.noise:
            sd = self.settings.noise_sd
            return {name: array + rng.normal(0.0, sd, len(array)) for name, array in answer.items()}
        return answer

    def summed(self, clients: int) -> Program:
        return self.model_copy(update={"settings": self.settings.of_sum(clients)})

    def following(self, sent: Message, returned: Mapping[str, Message]) -> Message:
        start = expected(sent, "coefficients", (self.size,), 0)
        gradient, hessian = np.zeros(self.size), np.zeros((self.size, self.size))
        for one in returned.values():
            slope, curvature = self._both(one, 0)
            gradient += slope
            hessian[np.triu_indices(self.size)] += curvature
        hessian += np.triu(hessian, 1).T
        if self.settings.noise:
            # nearly what the eigenvalues of a symmetric matrix of independent noise reach
            noisy = 2 * self.settings.noise_sd * np.sqrt(self.size * len(returned))
            values, vectors = linalg.eigh(hessian)
            hessian = (vectors * np.maximum(values, noisy)) @ vectors.T
        ridge = self.settings.ridge * np.eye(self.size)
        if self.settings.intercept:
            free = 0 if self.settings.intercept == "first" else -1
            ridge[free, free] = 0.0
        try:
            with warnings.catch_warnings():  # of singular but for rounding
                warnings.simplefilter("error", linalg.LinAlgWarning)
                move = linalg.solve(hessian + ridge, gradient - ridge @ start, assume_a="pos")
        except (linalg.LinAlgError, linalg.LinAlgWarning, ValueError):
            raise FixConfig(
                "model 'newton': the clients' Hessians add up to a singular matrix (columns that "
                "are functions of each other?); give ridge a positive number"
            ) from None
        return {"coefficients": start + self.settings.step * move}

    def predict(self, sent: Message, records: Records) -> Array | None:
        eta = self._design(records)[0] @ expected(sent, "coefficients", (self.size,), 0)
        exponential = FAMILIES[self.settings.likelihood].positive is not None
        return (_exp(eta) if exponential else eta)[:, None]

    def measure(self, observed: Sequence[Exchange], candidates: Candidates) -> Measurement:
        d, full, present = self.size, candidates.filled, candidates.present[:, None, None]
        room(d * (d + 3) // 2 * len(observed), candidates.records, len(full))
        designs = [self._design(table) for table in full]
        rounds: list[tuple[Array, Array, Array]] = []
        for one in observed:
            sent = expected(one.sent, "coefficients", (d,), one.number)
            features = np.stack([self._terms(*design, sent) for design in designs]) * present
            total = np.concatenate(self._both(one.returned, one.number))
            # who scales a column that never varies is left with rounding errors in place of zeros
            rounding = np.finfo(np.float64).eps * np.abs(features).max(axis=0).sum(axis=0).max()
            noise = np.full(len(total), max(self.settings.blur, rounding))
            rounds.append((features, total, noise))
        return measured(*(np.concatenate(part, axis=-1) for part in zip(*rounds, strict=True)))

    def assembled(self, observed: Sequence[Exchange]) -> tuple[Exchange, ...]:
        """With vectors for matrices of one column, and the upper triangle of a whole Hessian."""
        d = self.size

        def flat(message: Message) -> Message:
            made = {n: a[:, 0] if a.shape == (d, 1) else a for n, a in message.items()}
            return {n: a[np.triu_indices(d)] if a.shape == (d, d) else a for n, a in made.items()}

        whole = super().assembled(observed)
        return tuple(replace(x, sent=flat(x.sent), returned=flat(x.returned)) for x in whole)

    def _both(self, message: Message, number: int) -> tuple[Array, Array]:
        """Gradient and the Hessian's upper triangle, row by row."""
        d = self.size
        return (
            expected(message, "gradient", (d,), number),
            expected(message, "hessian", (d * (d + 1) // 2,), number),
        )

    def _design(self, records: Records) -> tuple[Array, Array]:
        inputs, labels = encode(self.encoding, records), self.target.encode(records)
        if self.settings.intercept:
            ones = np.ones(len(inputs))
            ends = (ones, inputs) if self.settings.intercept == "first" else (inputs, ones)
            inputs = np.column_stack(ends)
        least = FAMILIES[self.settings.likelihood].positive
        if least is not None and (labels < least).any():
            raise FixConfig(
                f"likelihood {self.settings.likelihood!r} needs labels that are "
                f"{'positive' if least else 'not negative'}; {self.target.column!r} has "
                f"{labels.min():g}: choose another likelihood"
            )
        return inputs, labels

    def _factors(self, inputs: Array, labels: Array, coefficients: Array) -> tuple[Array, Array]:
        family, eta = FAMILIES[self.settings.likelihood], inputs @ coefficients
        slope, weight = family.residual(eta, labels), family.weight(eta, labels)
        squares = inputs**2
        length, own = squares.sum(axis=1), (squares**2).sum(axis=1)
        # of inputs times the slope and the upper triangle of their products times the weight
        share = self.settings.share(np.sqrt(length * slope**2 + (length**2 + own) / 2 * weight**2))
        return slope * share, weight * share

    def _terms(self, inputs: Array, labels: Array, coefficients: Array) -> Array:
        """What each record adds to gradient and Hessian (m, d + d (d + 1) / 2)."""
        slope, weight = self._factors(inputs, labels, coefficients)
        first, second = np.triu_indices(self.size)
        return np.concatenate(
            [inputs * slope[:, None], inputs[:, first] * inputs[:, second] * weight[:, None]],
            axis=1,
        )


PROGRAM = Newton
