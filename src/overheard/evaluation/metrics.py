"""Scores: functions of (guess, truth) that return one number per unit.

One number per record, so that intervals can be made from them and clustered by client.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from overheard.programs.losses import loss_named
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, Value, encode, positions
from overheard.transcript.guess import AttributeValues, LocalModel

Array = NDArray[np.float64]


def attribute_hits(guess: AttributeValues, column: NDArray[Any]) -> Array:
    """1 where the most probable value is the true one, else 0."""
    return np.asarray(guess.choice() == positions(column, guess.values), dtype=np.float64)


def attribute_bits(guess: AttributeValues, column: NDArray[Any]) -> Array:
    """Bits that the guess gains on each record over the client's own shares of the values.

    log2 p(true value) - log2 share(true value), with p floored at 1e-6: an attack that is sure
    and wrong loses bits.
    """
    truth = positions(column, guess.values)
    p = guess.probabilities[np.arange(len(truth)), truth]
    return np.asarray(np.log2(np.maximum(p, 1e-6))) - log2_shares(column, guess.values)


def calibration_error(guess: AttributeValues, column: NDArray[Any], bins: int = 10) -> float:
    """Expected calibration error of the probability given to the chosen value."""
    hits = attribute_hits(guess, column)
    confidence = guess.probabilities.max(axis=1)
    bin_of = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = np.bincount(bin_of, hits - confidence, minlength=bins)
    return float(np.abs(gaps).sum() / len(hits))


def balanced_accuracy(guess: AttributeValues, column: NDArray[Any]) -> float:
    """Mean over the values that occur of the share guessed right."""
    truth, hits = positions(column, guess.values), attribute_hits(guess, column)
    return float(np.mean([hits[truth == k].mean() for k in np.unique(truth)]))


def log2_shares(column: NDArray[Any], values: tuple[Value, ...]) -> Array:
    """log2 of the client's own share of each record's value."""
    truth = positions(column, values)
    share = np.bincount(truth, minlength=len(values)) / len(truth)
    return np.asarray(np.log2(share[truth]))


def rare_value(guess: AttributeValues, column: NDArray[Any]) -> dict[str, float | int | str]:
    """The rarest value that occurs (the first among equals): how many there are, how many of them
    are found (recall), how many of those named do (precision), and both in one, F1.

    Beside accuracy for skewed attributes, of which always guessing the commonest value gets most.
    """
    truth, chosen = positions(column, guess.values), guess.choice()
    counts = np.bincount(truth, minlength=len(guess.values))
    rarest = int(np.where(counts > 0, counts, counts.max() + 1).argmin())
    value, there, named = guess.values[rarest], int(counts[rarest]), int((chosen == rarest).sum())
    hits = int(((truth == rarest) & (chosen == rarest)).sum())
    found: dict[str, float | int | str] = {
        "rare_value": f"{value:g}" if isinstance(value, float) else str(value),
        "rare_records": there,
        "rare_recall": hits / there,
        "rare_f1": 2 * hits / (there + named),
    }
    return found | ({"rare_precision": hits / named} if named else {})


def client_losses(recipe: Recipe, theta: Array, records: Records) -> Array:
    inputs, labels = encode(recipe.encoding, records), recipe.target.encode(records)
    return np.asarray(
        loss_named(recipe.loss).values(network(recipe).predict(theta, inputs), labels)
    )


def local_optimum(
    recipe: Recipe, records: Records, start: Array | None = None, penalty: float = 0.0
) -> Array:
    """The model that minimises the client's own loss, plus penalty / 2 times its squared length.

    Linear least squares: in closed form (of least norm where there are many), without a penalty.
    Otherwise by L-BFGS; for a network that is a local optimum reached from ``start``.
    """
    inputs, labels = encode(recipe.encoding, records), recipe.target.encode(records)
    if recipe.linear_least_squares:
        design = np.column_stack([inputs, np.ones(len(labels))]) if recipe.model.bias else inputs
        return np.asarray(np.linalg.lstsq(design, labels, rcond=None)[0])
    net, loss = network(recipe), loss_named(recipe.loss)
    shares = np.full(len(labels), 1 / len(labels))

    def objective(theta: Array) -> tuple[float, Array]:
        losses = loss.values(net.predict(theta, inputs), labels)
        slope = net.rows(theta, inputs, labels).scaled(shares).total() + penalty * theta
        return float(losses.mean() + penalty / 2 * theta @ theta), slope

    begin = np.zeros(recipe.model.size) if start is None else start
    options = {"maxiter": 5000, "maxfun": 20000, "ftol": 1e-14, "gtol": 1e-9}
    return np.asarray(minimize(objective, begin, jac=True, method="L-BFGS-B", options=options).x)


def comparable_optimum(recipe: Recipe, records: Records) -> tuple[Array, float]:
    """The model that guesses at a local model are compared with, and the penalty it is best under.

    That is the local optimum, without a penalty, unless it tells all classes apart. Then twice as
    long a model is better, and so on: the optimum is at infinity, its loss is zero, and no loss is
    a multiple of that. The penalty is then one over the number of records.
    """
    optimum, loss = local_optimum(recipe, records), loss_named(recipe.loss)
    if not loss.classes:
        return optimum, 0.0
    outputs = network(recipe).predict(optimum, encode(recipe.encoding, records))
    labels = recipe.target.encode(records)
    if not np.array_equal(loss.chances(outputs).argmax(axis=1), labels):
        return optimum, 0.0
    return local_optimum(recipe, records, penalty=1 / len(records)), 1 / len(records)


def excess_losses(
    recipe: Recipe, guess: LocalModel, optimum: Array, records: Records, penalty: float = 0.0
) -> Array:
    """Each record's loss beyond the optimum's, relative to the optimum's mean loss; with a penalty,
    as in `local_optimum`, on both."""

    def losses(theta: Array) -> Array:
        return client_losses(recipe, theta, records) + penalty / 2 * float(theta @ theta)

    best = losses(optimum)
    return (losses(guess.parameters) - best) / max(float(best.mean()), 1e-12)
