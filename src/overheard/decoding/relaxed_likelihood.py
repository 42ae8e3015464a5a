"""kerkouche2023 section 5.2.4: the most likely property assignment, relaxed and searched.

Unknown are each client's share tau in [0, 1] and its feature X in each round that it took part in.
Three losses are weighed against each other: the likelihood of the features under the two normal
distributions of each round; that a client's mean feature is the one that ridge regression found
(Constraint 2); that the features of a round add up to what was heard (Constraint 1). The paper
balances them by MTAdam (Malkiel and Wolf, its reference [40]): Adam with moments for each loss, the
gradients of the later ones scaled to the first one's length, and the greatest of the denominators
for all. tau is projected to [0, 1] after each step.

In the paper's formula of the relaxed problem the sums over rounds (L_reg) and over clients
(L_lstsq) stand outside of the norms, which would ask each single feature to be the whole sum; the
constraints that they relax are taken here.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

Array = NDArray[np.float64]
BETAS = (0.9, 0.999, 0.9)  # of MTAdam: gradients, their squares, and their lengths
TINY = 1e-8  # as Adam has it


class Features(NamedTuple):
    """Per round: the sum's feature G, weight v, mean and variance of the two distributions.

    All (T,); ``participation`` (T, N).
    """

    sums: Array
    weights: Array
    mean_with: Array
    variance_with: Array
    mean_without: Array
    variance_without: Array
    participation: Array


def ridge(features: Features, penalty: float, weighted: bool = True) -> Array:
    """Expected features (N,) by ridge regression (equation 9); penalty 0: least squares."""
    a = features.participation
    root = np.sqrt(features.weights) if weighted else np.ones(len(a))
    if penalty == 0:
        found = np.linalg.lstsq(root[:, None] * a, root * features.sums, rcond=None)[0]
        return np.asarray(found)
    system = (a * root[:, None] ** 2).T @ a + penalty * np.eye(a.shape[1])
    return np.asarray(np.linalg.solve(system, a.T @ (root**2 * features.sums)))


def relaxed_likelihood(
    features: Features, expected: Array, steps: int = 3000, rate: float = 0.01
) -> Array:
    """tau (N,) after so many steps of projected MTAdam from 1/2 and the expected features."""
    problem = _problem(features, expected)
    tau, x = np.full(len(expected), 0.5), np.where(problem.there, problem.goal, 0.0)
    taus, xs = _Moments(1, tau.shape), _Moments(3, x.shape)
    for _ in range(steps):
        by_tau, by_x = problem.gradients(tau, x)
        tau = np.clip(tau + taus.step([by_tau], rate), 0.0, 1.0)
        x = x + xs.step(by_x, rate)
    return np.asarray(tau)


class _Problem(NamedTuple):
    """The three losses, in units in which a feature's standard deviation is about one.

    ``there`` (T, N); per round, (T, 1) or (T,): means ``plus`` and ``minus`` with variances
    ``wide`` and ``narrow``, ``sums``, ``weights``; per client (N,): ``goal``.
    """

    there: NDArray[np.bool_]
    plus: Array
    wide: Array
    minus: Array
    narrow: Array
    sums: Array
    weights: Array
    goal: Array

    def gradients(self, tau: Array, x: Array) -> tuple[Array, list[Array]]:
        """By tau (N,), of the first loss alone; by X (T, N), of each loss.

        - sum_i log(tau_i p_plus(X_i) + (1 - tau_i) p_minus(X_i)), negative;
        - sum_i (mean of X_i - goal_i)^2;
        - sum_r weight_r (sum of X_r - heard_r)^2.
        """
        a = self.there
        log_plus = -((x - self.plus) ** 2) / (2 * self.wide) - np.log(self.wide) / 2
        log_minus = -((x - self.minus) ** 2) / (2 * self.narrow) - np.log(self.narrow) / 2
        ratio = np.clip(np.where(a, log_plus - log_minus, 0.0).sum(axis=0), -500, 500)
        inside = np.clip(tau, 1e-12, 1 - 1e-12)
        share = expit(ratio + np.log(inside) - np.log1p(-inside))
        by_tau = (1 - share) / (1 - inside) - share / inside
        likelihood = share * (x - self.plus) / self.wide
        likelihood += (1 - share) * (x - self.minus) / self.narrow
        took = np.maximum(a.sum(axis=0), 1)
        level = 2 * (x.sum(axis=0) / took - self.goal) / took
        whole = 2 * self.weights * (x.sum(axis=1) - self.sums)
        by_x = (likelihood, level, whole[:, None])
        return by_tau, [np.where(a, gradient, 0.0) for gradient in by_x]


def _problem(features: Features, expected: Array) -> _Problem:
    unit = np.sqrt((features.variance_with + features.variance_without) / 2).mean() + 1e-300
    wide, narrow = (
        np.maximum(variance[:, None], 1e-300) / unit**2
        for variance in (features.variance_with, features.variance_without)
    )
    return _Problem(
        features.participation > 0,
        features.mean_with[:, None] / unit,
        wide,
        features.mean_without[:, None] / unit,
        narrow,
        features.sums / unit,
        features.weights,
        expected / unit,
    )


class _Moments:
    """MTAdam's memory for one variable and several losses."""

    def __init__(self, losses: int, shape: tuple[int, ...]) -> None:
        self.first, self.second = np.zeros((losses, *shape)), np.zeros((losses, *shape))
        self.norms = np.zeros(losses)
        self.turn = 0

    def step(self, gradients: list[Array], rate: float) -> Array:
        """What to add to the variable."""
        mean, square, norm = BETAS
        self.turn += 1
        for k, gradient in enumerate(gradients):
            length = float(np.linalg.norm(gradient))
            self.norms[k] = length if self.turn == 1 else norm * self.norms[k] + (1 - norm) * length
            known = np.flatnonzero(self.norms > 1e-10)
            if self.norms[k] > 1e-10:
                gradient = gradient * (self.norms[known[0]] / self.norms[k])
            self.first[k] = mean * self.first[k] + (1 - mean) * gradient
            self.second[k] = square * self.second[k] + (1 - square) * gradient**2
        below = np.sqrt(self.second.max(axis=0) / (1 - square**self.turn)) + TINY
        return np.asarray(-rate / (1 - mean**self.turn) * self.first.sum(axis=0) / below)
