"""Which model would a client have trained alone, if it trains on mini-batches?

xu2021 section 3.2 learns the map from model to update with a neural network and looks for
its zero far outside the models it has seen. Here the map keeps the form that the loss
dictates, and only what the records decide is fitted:

* least squares: D = W (theta - theta*), W symmetric positive. The prior for W is the
  covariance of the mini-batch noise (`overheard.decoding.batch_noise`), because both are
  nearly proportional to X'X; its strength is found by maximum marginal likelihood.
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

from overheard.decoding.affine_map import _carried, _checked, fit_affine_map, rounding_scale
from overheard.decoding.batch_noise import (
    LocalRecipe,
    residual_covariance,
    trend,
)
from overheard.errors import ChooseAnotherAttack, ListenLonger

Array = NDArray[np.float64]

SPREADS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5, 2.0)  # of curvatures about the prior's
LEAST_ROUNDS = 8


@dataclass(frozen=True)
class LocalOptimum:
    """A client's local optimum as the messages show it.

    Attributes:
        estimate: (P,) of theta*.
        trained: (P,) where the client's own budget (rounds times steps) of full-batch steps
            from its last answer would have led; safer than ``estimate`` when that lies far off.
        covariance: (P, P) of ``estimate``, posterior under the stated prior.
        identified: directions in which the messages say more than the prior.
        misfit: chi-square per equation; far above 1, the model of the client is wrong
            (other loss, other recipe, other records in each round).
        noise_sd: root mean square noise of one coordinate of an update.
        prior_spread: relative spread of curvatures about the prior (least squares), or of the
            surrogate records about their moments (logistic).
    """

    estimate: Array
    trained: Array
    covariance: Array
    identified: int
    misfit: float
    noise_sd: float
    prior_spread: float

    @property
    def estimate_sd(self) -> Array:
        """(P,) standard deviation per parameter."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))


def decode_least_squares(sent: Array, returned: Array, recipe: LocalRecipe) -> LocalOptimum:
    """theta* of a least-squares client from (T, P) models sent and returned.

    Full batches: `fit_affine_map`. Mini-batches: with R the noise covariance, whitening turns
    the prior "W is about kappa R" into "about kappa I", and noise into white noise; entry
    (i, j) of W is then measured twice and shrunk towards kappa I, in closed form. kappa and
    the spread of the prior maximise the marginal likelihood. Eigenvalues are floored at
    kappa / 20: curvature is positive.

    Good where residuals have about the same variance everywhere (then R is proportional to
    X'X); heteroscedastic records widen the spread and cost accuracy, which covariance shows.
    """
    sent, returned = _enough(sent, returned)
    rounds, size = sent.shape
    floor = rounding_scale(sent, returned)
    update = sent - returned
    smooth = trend(rounds, 0)
    noise = residual_covariance(sent, update, smooth) + floor**2 * np.eye(size)
    if recipe.full_batch or np.trace(noise) < 10.0 * size * floor**2:
        fit = fit_affine_map(sent, returned, steps=recipe.steps)
        still = np.linalg.matrix_power(np.eye(size) - fit.W, rounds)
        return LocalOptimum(
            estimate=fit.fixed_point,
            trained=fit.fixed_point + still @ (returned[-1] - fit.fixed_point),
            covariance=fit.covariance,
            identified=fit.identified,
            misfit=(fit.residual / fit.noise_sd) ** 2,
            noise_sd=fit.noise_sd,
            prior_spread=0.0,
        )
    centre, pull = sent.mean(0), update.mean(0)
    up, down = _roots(noise)
    left, s, right = np.linalg.svd((sent - centre) @ up, full_matrices=False)
    left, s, right = left[:, : len(s)], np.maximum(s, 1e-300), right
    seen = left.T @ ((update - pull) @ down) @ right.T
    weight = s[:, None] ** 2 + s**2
    curve = (s[:, None] * seen + s * seen.T) / weight
    variance = 1.0 / weight
    np.fill_diagonal(variance, 1.0 / s**2)
    kappa, spread = _marginal(curve, variance)
    prior = (spread * kappa) ** 2 / size * (1.0 + np.eye(size))
    posterior = 1.0 / (1.0 / variance + 1.0 / prior)
    curve = posterior * (curve / variance + kappa * np.eye(size) / prior)
    values, vectors = np.linalg.eigh(curve)
    values = np.maximum(values, kappa / 20.0)
    inverse = (vectors / values) @ vectors.T
    offset = -inverse @ (right @ (down @ pull))
    back = down @ right.T
    matrix = up @ right.T @ ((vectors * values) @ vectors.T) @ right @ up
    estimate = centre + back @ offset
    misfit = ((update - pull) - (sent - centre) @ matrix) @ down
    still = np.linalg.matrix_power(np.eye(size) - matrix, rounds)
    return LocalOptimum(
        estimate=estimate,
        trained=estimate + still @ (returned[-1] - estimate),
        covariance=back @ _carried(inverse, posterior, offset, 1.0 / rounds, size) @ back.T,
        identified=int(np.sum(np.diag(variance) < np.diag(prior))),
        misfit=float(np.mean(misfit**2)),
        noise_sd=float(np.sqrt(np.trace(noise) / size)),
        prior_spread=spread,
    )


def _marginal(curve: Array, variance: Array) -> tuple[float, float]:
    """kappa and relative spread of greatest marginal likelihood for curve about kappa I."""
    size = len(curve)
    i, j = np.triu_indices(size)
    value, noise, diagonal = curve[i, j], variance[i, j], i == j
    start = max(float(np.sum(value[diagonal] / noise[diagonal]) / np.sum(1 / noise[diagonal])), 0.0)
    best = (-np.inf, max(start, np.finfo(float).tiny), SPREADS[0])
    for spread in SPREADS:
        kappa = best[1] if start == 0.0 else start
        for _ in range(20):
            total = noise + (spread * kappa) ** 2 / size * np.where(diagonal, 2.0, 1.0)
            mean = np.sum(value[diagonal] / total[diagonal]) / np.sum(1 / total[diagonal])
            kappa = max(float(mean), 0.01 * kappa)
        total = noise + (spread * kappa) ** 2 / size * np.where(diagonal, 2.0, 1.0)
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
