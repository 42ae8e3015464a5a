"""Which model would a client have trained alone, if it trains on mini-batches?

xu2021 section 3.2 learns the map from model to update with a neural network and looks for
its zero far outside the models it has seen. Here the map keeps the form that the loss
dictates, and only what the records decide is fitted:

* least squares: D = W (theta - theta*), W symmetric positive. The prior for W is the
  covariance of the mini-batch noise (`overheard.decoding.batch_noise`), because both are
  nearly proportional to X'X, or to powers of it; its strength is found by maximum marginal
  likelihood, and the answer is shrunk towards the last returned model by its own error.
* logistic regression (one logit): by definition of the optimum, E[sigma(x'theta*) x] = E[y x],
  so the gradient is E[(sigma(x'theta) - sigma(x'theta*)) x] whatever the labels are. The
  unknowns are theta* and the distribution of x, represented by a few surrogate records whose
  moments come from the noise. Gauss-Newton makes the replayed surrogate give all the updates.

A softmax with two outputs is the logistic case for the difference of its two rows, at twice
the learning rate.

Both return a covariance and the number of directions of theta* that the messages decide.
Nothing here is fitted to, or chosen by, the truth; one seed, one result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from overheard.decoding.affine_map import _carried, _checked, _svd, fit_affine_map, rounding_scale
from overheard.decoding.batch_noise import (
    LocalRecipe,
    noise_factor,
    residual_covariance,
    residual_freedom,
    trend,
)
from overheard.errors import ChooseAnotherAttack, ListenLonger

Array = NDArray[np.float64]

SPREADS = (0.05, 0.1, 0.2, 0.35, 0.5)  # of curvatures about the prior's; at 1/2 they reach zero
LEAST_SPREAD = 0.7  # times sqrt(P / freedom): the sampling error of the prior itself
CLEAR = 3.0  # the mean curvature counts as seen when it is this many standard errors from zero
LEAST_ROUNDS = 8  # with fewer noise is not told from the signal


@dataclass(frozen=True)
class LocalOptimum:
    """A client's local optimum as the messages show it.

    Attributes:
        estimate: (P,) of theta*.
        covariance: (P, P) of ``estimate``, posterior under the stated prior.
        identified: directions in which the messages say more than the prior.
        misfit: chi-square per equation; far above 1, the model of the client is wrong
            (other loss, other recipe, other records in each round).
        noise_sd: root mean square noise of one coordinate of an update.
        prior_spread: relative spread of curvatures about the prior (least squares), or of the
            surrogate records about their moments (logistic).
        trusted: share of the way from the last returned model to the fitted optimum that
            ``estimate`` goes; 0: it is the last returned model, and nothing more is known.
    """

    estimate: Array
    covariance: Array
    identified: int
    misfit: float
    noise_sd: float
    prior_spread: float
    trusted: float = 1.0

    @property
    def estimate_sd(self) -> Array:
        """(P,) standard deviation per parameter."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))


def decode_least_squares(sent: Array, returned: Array, recipe: LocalRecipe) -> LocalOptimum:
    """theta* of a least-squares client from (T, P) models sent and returned.

    Full batches: `fit_affine_map`. Mini-batches: `_shape` makes of the noise covariance R a matrix
    that W is nearly proportional to. In its metric the prior is "W is about kappa I"; entry (i, j)
    of W is measured twice and shrunk towards that, in closed form. kappa and the spread of the
    prior maximise the marginal likelihood; the spread is never below what R's own sampling error
    makes it. Eigenvalues are floored at kappa / 10: curvature is positive.

    What is returned lies on the way from the last returned model to that optimum, as far as
    James and Stein go: the share of the loss between the two that is not the estimate's own
    expected error (``trusted``). Where nothing is left, or kappa is not clear of its noise, that
    is the last returned model itself, and ``trusted`` is 0. So few rounds, models that do not
    move, or fewer independent residuals than parameters end there and not in an explosion.
    """
    sent, returned = _enough(sent, returned)
    rounds, size = sent.shape
    floor = rounding_scale(sent, returned)
    update = sent - returned
    smooth = trend(rounds, 0)
    noise = residual_covariance(sent, update, smooth) + floor**2 * np.eye(size)
    if recipe.full_batch or np.trace(noise) < 10.0 * size * floor**2:
        fit = fit_affine_map(sent, returned, steps=recipe.steps)
        return LocalOptimum(
            estimate=fit.fixed_point,
            covariance=fit.covariance,
            identified=fit.identified,
            misfit=(fit.residual / fit.noise_sd) ** 2,
            noise_sd=fit.noise_sd,
            prior_spread=0.0,
        )
    freedom = residual_freedom(rounds, size, smooth)
    noise = _shrunk(noise, freedom)
    centre, pull = sent.mean(0), update.mean(0)
    up, down = _roots(_shape(noise, freedom, recipe))
    left, s, basis = _svd((sent - centre) @ up)
    back = down @ basis  # from the metric's coordinates to parameters
    own = np.sum(back * (noise @ back), 0)  # noise variance of each coordinate of an update
    curve, variance = _measured(left.T @ (update - pull) @ back, s, own)
    least = LEAST_SPREAD * np.sqrt(min(1.0, size / freedom))
    kappa, spread = _marginal(curve, variance, max(least, SPREADS[0]))
    prior = (spread * kappa) ** 2 / size * (1.0 + np.eye(size))
    if kappa**2 * np.sum(1.0 / np.diag(variance + prior)) < CLEAR**2:
        return _as_returned(returned[-1], noise, spread)
    posterior = 1.0 / (1.0 / variance + 1.0 / prior)
    curve = posterior * (curve / variance + kappa * np.eye(size) / prior)
    values, vectors = np.linalg.eigh(curve)
    values = np.maximum(values, kappa / 10.0)
    curve, inverse = (vectors * values) @ vectors.T, (vectors / values) @ vectors.T
    offset = -inverse @ (pull @ back)
    error = (
        _carried(inverse, posterior, offset, 0.0, size) + inverse @ np.diag(own) @ inverse / rounds
    )
    optimum = centre + back @ offset
    way = basis.T @ up @ (optimum - returned[-1])
    trusted = 1.0 - float(np.sum(curve * error) / max(way @ curve @ way, np.finfo(float).tiny))
    if trusted <= 0.0:
        return _as_returned(returned[-1], noise, spread)
    matrix = up @ basis @ curve @ basis.T @ up
    misfit = ((update - pull) - (sent - centre) @ matrix) @ _roots(noise)[1]
    return LocalOptimum(
        estimate=returned[-1] + trusted * (optimum - returned[-1]),
        covariance=back @ error @ back.T,
        identified=int(np.sum(np.diag(variance) < np.diag(prior))),
        misfit=float(np.mean(misfit**2)),
        noise_sd=float(np.sqrt(np.trace(noise) / size)),
        prior_spread=spread,
        trusted=trusted,
    )


def _as_returned(last: Array, noise: Array, spread: float) -> LocalOptimum:
    """Nothing is known beyond the last returned model."""
    unknown = np.full(noise.shape, np.nan)
    noise_sd = float(np.sqrt(np.trace(noise) / len(noise)))
    return LocalOptimum(last, unknown, 0, np.nan, noise_sd, spread, trusted=0.0)


def _shrunk(noise: Array, freedom: int) -> Array:
    """A sample covariance drawn towards its diagonal by the share P / (P + freedom)."""
    doubt = len(noise) / (len(noise) + freedom)
    return np.asarray((1.0 - doubt) * noise + doubt * np.diag(np.diag(noise)))


def _shape(noise: Array, freedom: int, recipe: LocalRecipe) -> Array:
    """What the curvature is nearly proportional to: a power of the noise covariance.

    Batches drawn afresh make noise in proportion to X'X: the power is 1. Over whole passes in
    equal batches that noise cancels. What is left is of second order in the rate, between X'X and
    its cube (an early batch's gradient passes through the later batches' curvature): 1/2. Sampling
    error spreads eigenvalues apart, which a power below 1 undoes: times freedom / (freedom + P).
    """
    afresh = recipe.learning_rate**2 * recipe.steps / recipe.batch
    passes = recipe.steps * recipe.batch >= recipe.records
    power = 0.5 if passes and noise_factor(recipe) < 0.25 * afresh else 1.0
    values, vectors = np.linalg.eigh(noise)
    values = np.maximum(values, 1e-14 * values[-1])
    return np.asarray((vectors * values ** (power * freedom / (freedom + len(noise)))) @ vectors.T)


def _measured(seen: Array, s: Array, own: Array) -> tuple[Array, Array]:
    """Symmetric W and its variances (P, P) from seen[i, j] = s_i W_ij + noise of variance own_j.

    Directions that were never visited (s_i = s_j = 0) have infinite variance.
    """
    weight = s[:, None] ** 2 / own
    total, sums = weight + weight.T, s[:, None] * seen / own
    diagonal = np.diag_indices_from(total)
    total[diagonal], sums = np.diag(weight), sums + sums.T
    sums[diagonal] /= 2.0
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(total > 0, sums / total, 0.0), np.where(total > 0, 1.0 / total, np.inf)


def _marginal(curve: Array, variance: Array, least: float) -> tuple[float, float]:
    """kappa and relative spread, at least ``least``, of greatest marginal likelihood for curve
    about kappa I."""
    i, j = np.triu_indices(len(curve))
    there = np.isfinite(variance[i, j])
    i, j = i[there], j[there]
    value, noise, diagonal = curve[i, j], variance[i, j], i == j
    if not diagonal.any():
        return 0.0, least
    start = max(float(np.average(value[diagonal], weights=1 / noise[diagonal])), 0.0)
    best = (-np.inf, 0.0, least)
    for spread in sorted({max(least, s) for s in SPREADS}):
        kappa = start
        for _ in range(20):
            total = noise + (spread * kappa) ** 2 / len(curve) * np.where(diagonal, 2.0, 1.0)
            kappa = max(float(np.average(value[diagonal], weights=1 / total[diagonal])), 0.0)
        total = noise + (spread * kappa) ** 2 / len(curve) * np.where(diagonal, 2.0, 1.0)
        score = -0.5 * float(np.sum(np.log(total) + (value - kappa * diagonal) ** 2 / total))
        if score > best[0]:
            best = (score, kappa, spread)
    return best[1], best[2]


def _roots(covariance: Array) -> tuple[Array, Array]:
    """Symmetric square root and its inverse."""
    values, vectors = np.linalg.eigh(covariance)
    values = np.sqrt(np.maximum(values, 1e-14 * values[-1]))
    return (vectors * values) @ vectors.T, (vectors / values) @ vectors.T


def _enough(sent: Array, returned: Array) -> tuple[Array, Array]:
    sent, returned = _checked(sent, returned)
    if len(sent) < LEAST_ROUNDS:
        raise ListenLonger(
            f"{len(sent)} messages heard; the noise cannot be told from the signal with fewer "
            f"than {LEAST_ROUNDS}: listen to more rounds"
        )
    if not np.any(sent != returned):
        raise ChooseAnotherAttack("every model came back unchanged; the client does not train")
    return sent, returned
