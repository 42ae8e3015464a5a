"""Which of very many candidates is each record: combinations of several columns, say?

Expectation propagation carries K - 1 dimensions a record (:mod:`expectation_propagation`), too many
where there are a hundred combinations. Main effects of the columns alone will not do: what they
leave out drowns them. Here a record's candidates are points in the few directions in which, *by the
present belief*, they differ most; what they do in all others is noise, whose variance the belief
says. A pass of annealed sweeps makes the belief narrower, the next pass's directions hold more of
it, and its noise is less, down to a few candidates that are told apart exactly. Every pass begins
with the prior: what the last one believed sets directions and noise, and is never counted twice.

Where equations are few it ends in answers that are too sure. So it is tried on the same features
with candidates drawn between prior and answer, which are known, and believed as far as that goes;
where it is far surer than right then, the answer is flagged.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.special import softmax

from overheard.decoding.expectation_propagation import DAMPING, FIRST_CAP, RAISE, SITE_FLOOR
from overheard.decoding.max_entropy import Posterior, count_unknowns
from overheard.decoding.ridge import cavities, fits
from overheard.decoding.tempering import temperature_of, tempered

Array = NDArray[np.float64]
Single = NDArray[np.float32]

_DIRECTIONS = 20  # of a record: 99% of what its candidates do by the prior
_PASSES, _SWEEPS = 6, 10  # passes, of which the last ones change little, and sweeps of each
_SURER = 0.1  # confidence beyond accuracy, with known candidates, that is flagged
OVERSURE = "oversure: with combinations that are known the decoder was far surer than right"


def narrowed(features: Single, total: Array, prior: Array) -> Posterior:
    """Probabilities (m, K) given total (r,) = sum of one of each record's features (m, K, r), up
    to unit noise that is small against what any direction leaves out.

    ``chi2_per_equation`` is in units of the noise of the last pass. Deterministic.
    """
    people, _, rank = features.shape
    p, chi2 = _passes(features, total, prior)
    rng, between = np.random.default_rng(0), ((p + prior) / 2).cumsum(axis=1)
    drawn = np.argmax(between > rng.random((people, 1)) * between[:, -1:], axis=1)
    played = features[np.arange(people), drawn].sum(axis=0, dtype=np.float64)
    tried, _ = _passes(features, played + rng.normal(size=rank), prior)
    p = tempered(p, prior, temperature_of([tried], [drawn], prior))
    beyond = tried.max(axis=1).mean() - np.mean(tried.argmax(axis=1) == drawn)
    flag = OVERSURE if beyond > _SURER else ""
    sweeps = _PASSES * _SWEEPS
    return Posterior(p, chi2, rank, count_unknowns(prior), sweeps, not flag, "narrowing", flag)


def _passes(features: Single, total: Array, prior: Array) -> tuple[Array, float]:
    p, chi2 = prior, np.inf
    for _ in range(_PASSES):
        # some of the prior in it: who is sure of what is wrong must stay visible
        p, chi2 = _pass(features, total, 0.9 * p + 0.1 * prior, prior)
    return p, chi2


def _pass(features: Single, total: Array, belief: Array, prior: Array) -> tuple[Array, float]:
    """Probabilities, and the mean square of what they leave in units of the pass's noise."""
    people, values, rank = features.shape
    few = min(_DIRECTIONS, values - 1, rank)
    points, rows = np.empty((people, values, few)), np.empty((people, few, rank))
    noise = np.ones(rank)
    for n, own in enumerate(features):
        middle, points[n], rows[n], missed = _directions(own, belief[n], few)
        total, noise = total - middle, noise + missed
    rows /= np.sqrt(noise)
    total = total / np.sqrt(noise)
    size = np.sqrt(np.einsum("nc,ncr->r", np.einsum("nk,nkc->nc", prior, points**2), rows**2))
    precision, mean = _moments(prior, points)
    shift, cap, p, chi2 = (precision @ mean[:, :, None])[:, :, 0], FIRST_CAP, prior, np.inf
    for _ in range(_SWEEPS):
        weight = np.minimum(1.0, cap / np.maximum(size, cap))
        seen, cap = rows * weight, cap * RAISE**2
        try:
            inner, pull = cavities(seen, total * weight, precision, shift)
        except linalg.LinAlgError:  # a site lost positive definiteness
            break
        logits = np.log(np.maximum(prior, 1e-300)) + (points @ pull[:, :, None])[:, :, 0]
        new = softmax(logits - 0.5 * np.einsum("nkc,nkc->nk", points @ inner, points), axis=1)
        moments, mean = _moments(new, points)
        miss = total * weight - np.tensordot(mean, seen, 2)
        if not fits(float(miss @ miss), rank):  # sweeps run away: as far as they came
            break
        p, chi2 = new, float(miss @ miss) / rank
        values, vectors = np.linalg.eigh(moments - inner)
        site = (vectors * np.maximum(values, SITE_FLOOR)[:, None]) @ np.swapaxes(vectors, 1, 2)
        told = ((inner + site) @ mean[:, :, None])[:, :, 0] - pull
        precision = (1 - DAMPING) * precision + DAMPING * site
        shift = (1 - DAMPING) * shift + DAMPING * told
    return np.asarray(p), chi2


def _directions(features: Single, belief: Array, few: int) -> tuple[Array, Array, Array, Array]:
    """Of one record: the mean of its features (K, r), its candidates (K, c) in the directions
    (c, r) in which they differ most, and the variance (r,) of what those leave out."""
    p = belief.astype(np.float32)
    root = np.sqrt(np.maximum(p, 1e-6))[:, None]
    mean = p @ features
    apart = features - mean
    weighted = root * apart
    power, turned = np.linalg.eigh((weighted @ weighted.T).astype(np.float64))
    size = np.sqrt(np.maximum(power[: -few - 1 : -1], 1e-9 * power[-1] + 1e-300))
    rows = (turned[:, : -few - 1 : -1] / size).T.astype(np.float32) @ weighted
    at = apart @ rows.T
    weighted -= root * (at @ rows)
    missed = np.einsum("kr,kr->r", weighted, weighted, dtype=np.float64)
    return mean.astype(np.float64), at / size, rows * size[:, None], missed


def _moments(probabilities: Array, points: Array) -> tuple[Array, Array]:
    """Precision (n, c, c) and mean (n, c) of points (n, K, c)."""
    p = np.maximum(probabilities, 1e-6)
    p = p / p.sum(axis=1, keepdims=True)
    mean = np.einsum("nk,nkc->nc", p, points)
    apart = points - mean[:, None]
    spread = np.swapaxes(apart * p[:, :, None], 1, 2) @ apart
    loose = 1e-9 * np.einsum("ncc->n", spread) + 1e-12
    return np.linalg.inv(spread + loose[:, None, None] * np.eye(points.shape[2])), mean
