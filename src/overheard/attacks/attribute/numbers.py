"""A secret that is a number, decoded to its bin: where it lies within is noise, and rehearsed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from overheard.attacks.attribute.linear_moments import scale_of
from overheard.attacks.rehearsal import retrained
from overheard.programs.recipe import Recipe
from overheard.programs.simulated import placed
from overheard.transcript.knowledge import AttributeDomain, Labels, Link, LocalTraining
from overheard.transcript.view import View

Array = NDArray[np.float64]


def within_bins(features: Array, recipe: Recipe, domain: AttributeDomain, shares: Array) -> Array:
    """Noise of a binned number: where a value lies within its bin is not decoded.

    To first order a record's features (m, K, r) move along the chord from the first bin to the
    last. shares: (K,) of the bins.
    """
    scale = scale_of(recipe, domain.column)
    reach = (float(domain.values[-1]) - float(domain.values[0])) / scale
    slope = (features[:, -1] - features[:, 0]) / reach
    variance = float(shares @ np.square(domain.spread)) / scale**2
    return np.asarray(variance * slope.T @ slope)


def number_play(
    view: View, link: Link, base: Array, rng: np.random.Generator
) -> Callable[[Array], tuple[Link, NDArray[np.int64]]]:
    """What draws numbers anywhere within their bins and trains on them (see `rehearse`).

    base: (m, d), the records' inputs with the first bin's middle.
    """
    recipe, domain = view.know(LocalTraining).recipe, view.know(AttributeDomain)
    labels = recipe.target.encode_values(view.know(Labels).values)
    inside = recipe.encoding.inputs_of(domain.column)
    middles, spread = np.asarray(domain.values, dtype=np.float64), np.asarray(domain.spread)

    def play(probabilities: Array) -> tuple[Link, NDArray[np.int64]]:
        secret, place = placed(probabilities, np.column_stack([base, labels]), rng)
        moved = middles[secret] + spread[secret] * norm.ppf(place) - middles[0]
        inputs = base.copy()
        inputs[:, inside] += (moved / scale_of(recipe, domain.column))[:, None]
        return retrained(link, recipe, inputs, labels, link.noise_sd, rng), secret

    return play
