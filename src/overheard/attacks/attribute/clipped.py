"""Updates that were scaled down, or made noisy, before they were sent: decoded all the same.

Clipping multiplies a whole update by one unknown number a round. Who listens may be told the norm
to which updates are clipped, never which were; or nothing, and sees that the update as it is fits
no values at all. In both cases the number is found from the update (`overheard.decoding.
update_scale`) and taken out; so is the size of noise that nobody announced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.attribute.dense_measurement import dense_measurement, scaled_sum
from overheard.attacks.wire import one_step, only, rounding, spread
from overheard.decoding.limits import UNKNOWNS
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.measurement import Measurement
from overheard.decoding.update_scale import by_length, refit, regressed
from overheard.programs.recipe import Recipe
from overheard.transcript.knowledge import AppliedDefence, Link

Array = NDArray[np.float64]
Decode = Callable[[Measurement], Posterior]

MOST_ROUNDS = 8
"""In which scales are looked for (spread evenly; fewer if the records are many)."""

_FAR = 4.5  # standard errors below one from which an update that may be clipped counts as scaled
_HALVED = 0.5  # without being told of clipping: the noise must fall at least so far
_NOTICED = 100.0  # noise variance, in units of rounding, that no understated rounding explains
_OPERATIONS = 1e10  # that looking for scales may cost
_PASSES, _SETTLED = 3, 2e-3  # of scale and secret in turn; relative change at rest
_NEARLY = 1e-3  # an update shorter than the norm by this share was not clipped


@dataclass(frozen=True)
class Undone:
    """What was done to the updates before they were sent, and what they say without it.

    scales: of the rounds used; noise_sd: of the noise on a coordinate, told or found. measurement
    and posterior are None where no round was scaled: then ordinary decoding serves.
    """

    scales: Array
    noise_sd: float
    measurement: Measurement | None = None
    posterior: Posterior | None = None


def may_be_clipped(link: Link, told: AppliedDefence | None) -> bool:
    """Was the listener told of a norm that some update heard reaches?"""
    if told is None or told.clip_norm is None:
        return False
    if link.noise_sd:
        return True
    lengths = np.linalg.norm(link.updates(), axis=1)
    return bool((lengths >= (1 - _NEARLY) * told.clip_norm).any())


def misfits(measurement: Measurement) -> bool:
    """Is there more than the stated noise where nothing but noise should be?"""
    return bool(measurement.spare_rows and measurement.misfit > _NOTICED)


def undo(
    link: Link,
    recipe: Recipe,
    candidates: Array,
    labels: Array,
    prior: Array,
    told: bool,
    decode: Decode,
) -> Undone | None:
    """Find every round's own scale and the noise, and decode if a round was scaled.

    candidates: (K, m, d) inputs of the records under each value; labels: (m,); prior: (m, K); told:
    clipping was announced, so that scales are at most one and a small one is believed. None where
    it cannot be found out: several local steps, or too many records.
    """
    values, people, _ = candidates.shape
    unknowns = people * (values - 1)
    if unknowns > UNKNOWNS or not one_step(link, recipe):
        return None
    link = only(link, spread(len(link), int(np.clip(_OPERATIONS / unknowns**3, 1, MOST_ROUNDS))))
    rows = range(len(link))
    sums = [scaled_sum(link, recipe, candidates, labels, row) for row in rows]
    scales, noise = np.ones(len(link)), 1.0
    for row, one in enumerate(sums):
        found = regressed(one)
        if found is None:
            scales[row] = min(by_length(one, prior), 1.0) if told else 1.0
            continue
        away = (1 - found.value) / found.sd
        believed = away > _FAR if told else found.noise < _HALVED * found.noise_unscaled
        if believed and found.value > 0:
            scales[row] = found.value
        noise = max(noise, found.noise)
    if noise > _NOTICED:
        stated = float(np.sqrt(np.mean(rounding(link) ** 2)))
        link = replace(link, noise_sd=float(np.sqrt(noise)) * stated)
    if (scales == 1.0).all():
        return Undone(scales, link.noise_sd)
    for _ in range(_PASSES):
        measurement = dense_measurement(link, recipe, candidates, labels, len(link), scales=scales)
        posterior = decode(measurement)
        again = np.array([refit(one, posterior.probabilities) for one in sums])
        again = np.where(scales == 1.0, 1.0, np.minimum(again, 1.0) if told else again)
        proven = posterior.method in ("linear_solve", "counts")
        if proven or np.abs(again / scales - 1).max() <= _SETTLED:
            break
        scales = again
    return Undone(scales, link.noise_sd, measurement, posterior)
