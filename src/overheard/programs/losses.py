"""Losses as values: what one record's prediction costs, and its derivative by the outputs.

A loss is of one record and divided by nothing; a client's step averages it over a batch. The numpy
side serves the fast kernels (`Loss.values`, `Loss.errors`), the torch side everything that autograd
differentiates (`Loss.of_tensors`); tests hold the one against the other's derivative. This module
does not import torch until a torch loss is asked for.

Another loss is one value in `LOSSES`, or in a file of your own: `new_loss.py`, whose package
announces ``half = "new_loss:HALF"`` in the group of entry points ``overheard.losses``::

    import numpy as np

    from overheard.programs.losses import Loss

    HALF = Loss(
        "half",
        values=lambda outputs, labels: 0.5 * (outputs[..., 0] - labels) ** 2,
        errors=lambda outputs, labels: np.asarray(outputs - labels[..., None]),
        of_tensors=lambda outputs, labels: 0.5 * (outputs[..., 0] - labels) ** 2,
    )

A config then has it as ``[training] loss = "half"``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_softmax, softmax

from overheard.errors import FixConfig

Array = NDArray[np.floating[Any]]
_LEAST_LOG = -100.0  # torch's own bound on the logarithm in the cross-entropy of probabilities


@dataclass(frozen=True)
class Loss:
    """``values(outputs, labels)`` (..., n) and ``errors(outputs, labels)`` (..., n, outputs) for
    outputs (..., n, outputs) and labels (..., n); ``of_tensors`` is `values` in torch.

    classes: labels are class numbers, of which one output may stand for two; single: the model has
    one output; least_squares: errors are twice the residuals; odds: outputs of classes are log-odds
    and not yet probabilities.
    """

    name: str
    values: Callable[[Array, Array], Array]
    errors: Callable[[Array, Array], Array]
    of_tensors: Callable[[Any, Any], Any]
    classes: bool = False
    single: bool = True
    least_squares: bool = False
    odds: bool = True

    def chances(self, outputs: Array) -> Array:
        """The probability of every class (..., n, classes), for a loss of classes."""
        if outputs.shape[-1] > 1:
            return np.asarray(softmax(outputs, axis=-1))
        yes = expit(outputs[..., 0]) if self.odds else outputs[..., 0]
        return np.stack([1 - yes, yes], axis=-1)


def _cross_entropy(outputs: Array, labels: Array) -> Array:
    if outputs.shape[-1] == 1:
        return np.logaddexp(0, outputs[..., 0]) - labels * outputs[..., 0]
    chosen = labels.astype(int)[..., None]
    return -np.take_along_axis(log_softmax(outputs, axis=-1), chosen, axis=-1)[..., 0]


def _cross_entropy_error(outputs: Array, labels: Array) -> Array:
    if outputs.shape[-1] == 1:
        return np.asarray(expit(outputs) - labels[..., None])
    chosen = (labels[..., None] == np.arange(outputs.shape[-1])).astype(outputs.dtype)
    shares: Array = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True) - chosen)


def _cross_entropy_torch(outputs: Any, labels: Any) -> Any:
    from torch.nn import functional as F

    shares = labels.ndim == outputs.ndim  # of classes, for who searches
    if outputs.shape[-1] == 1:
        flat, yes = outputs[..., 0], labels[..., 1] if shares else labels
        return F.binary_cross_entropy_with_logits(flat, yes.to(flat.dtype), reduction="none")
    return F.cross_entropy(outputs, labels if shares else labels.long(), reduction="none")


def _probability(outputs: Array, labels: Array) -> Array:
    """Binary cross-entropy of an output that is a probability already (a sigmoid in the model)."""
    p = outputs[..., 0]
    with np.errstate(divide="ignore"):
        yes, no = np.maximum(np.log(p), _LEAST_LOG), np.maximum(np.log1p(-p), _LEAST_LOG)
    return np.asarray(-(labels * yes + (1 - labels) * no))


def _probability_error(outputs: Array, labels: Array) -> Array:
    scale = np.maximum(outputs * (1 - outputs), 1e-12)
    return np.asarray((outputs - labels[..., None]) / scale)


def _probability_torch(outputs: Any, labels: Any) -> Any:
    from torch.nn import functional as F

    # outputs of another model are no probabilities, at which torch stops
    args = outputs[..., 0].clamp(0, 1), labels.to(outputs.dtype)
    return F.binary_cross_entropy(*args, reduction="none")


def _huber(outputs: Array, labels: Array) -> Array:
    apart = np.abs(outputs[..., 0] - labels)
    return np.where(apart <= 1, 0.5 * apart**2, apart - 0.5)


def _huber_torch(outputs: Any, labels: Any) -> Any:
    from torch.nn import functional as F

    return F.huber_loss(outputs[..., 0], labels.to(outputs.dtype), reduction="none")


LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss(
            "squared_error",
            lambda outputs, labels: (outputs[..., 0] - labels) ** 2,
            lambda outputs, labels: np.asarray(2 * (outputs - labels[..., None])),
            lambda outputs, labels: (outputs[..., 0] - labels) ** 2,
            least_squares=True,
        ),
        Loss(
            "cross_entropy",
            _cross_entropy,
            _cross_entropy_error,
            _cross_entropy_torch,
            classes=True,
            single=False,
        ),
        Loss(
            "binary_cross_entropy",
            _probability,
            _probability_error,
            _probability_torch,
            classes=True,
            odds=False,
        ),
        Loss(
            "huber",
            _huber,
            lambda outputs, labels: np.clip(outputs - labels[..., None], -1, 1),
            _huber_torch,
        ),
        Loss(
            "poisson",
            lambda outputs, labels: np.exp(outputs[..., 0]) - labels * outputs[..., 0],
            lambda outputs, labels: np.exp(outputs) - labels[..., None],
            lambda outputs, labels: outputs[..., 0].exp() - labels * outputs[..., 0],
        ),
    )
}


def loss_named(name: str) -> Loss:
    """The loss of this name."""
    if name in LOSSES:
        return LOSSES[name]
    installed = {point.name: point for point in entry_points(group="overheard.losses")}
    if name not in installed:
        raise FixConfig(f"unknown loss {name!r}; known: {', '.join([*LOSSES, *installed])}")
    LOSSES[name] = installed[name].load()
    return LOSSES[name]
