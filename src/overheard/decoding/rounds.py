"""Many rounds of a model whose gradients factorise, as one small measurement.

For linear, logistic and softmax regression, and for the units of a dense layer, the gradient of
record ``i`` at round ``t`` is an outer product: coordinate ``j`` is ``residual[i, t] input[i, j]``
(residual = prediction minus label, or the back-propagated delta). A thousand rounds of a hundred
coordinates are 100,000 equations, but models move smoothly from round to round, so the residuals
of all records span only a few dozen curves in time. Projecting every coordinate's series on those
curves keeps the information of **all** rounds, averages the rounding noise down, and leaves a few
thousand rows (decoders.md sections 1 and 4).

Why all rounds and not a sample: noise of float32 rounding is fresh in every round, so 1,000 rounds
measure as precisely as 60 rounds with a quarter of the noise, for hardly more work.

What is left over in time, outside the curves, is noise and nothing else. It calibrates the stated
noise **per coordinate**: a coordinate that is noisier than stated is trusted less. No truth is
needed.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.decoding.limits import SPARE
from overheard.decoding.measurement import FLOOR, Measurement, from_differences, stack

Array = NDArray[np.float64]

UNIT_ROUNDOFF_32 = 2.0**-24
"""Relative error of one float32 operation."""

_SKETCH = 300  # random combinations of the records' curves from which their span is found
_LEAK = 0.1  # curves below this (whitened, all records together) are dropped


def from_factors(residuals: Array, inputs: Array, totals: Array, noise: Any) -> Measurement:
    """Measurement from factored gradients over many rounds.

    residuals: (m, K, T), record i's residual at round t were its value candidate k;
    inputs: (m, K, d), its input vector under candidate k (bias = a constant coordinate);
    totals: (T, d), observed sums of gradients: (sent - returned) * m / learning rate for one
    full-batch step; noise: their standard deviations, (T, d) or a number (:func:`float32_noise`).

    Noise is taken as independent between rounds and coordinates. It is raised per coordinate to
    what the left-over series shows when at least 20 values are left over. Leave out rounds in
    which all residuals are alike (a model of zeros): float32 sums of equal terms err in one
    direction, and such rounds say nothing that others do not. Raises FixData on NaN or infinity.
    """
    people, candidates, rounds = residuals.shape
    sd = np.broadcast_to(noise, totals.shape)
    residual = totals - residuals[:, 0].T @ inputs[:, 0]
    active = np.flatnonzero(np.abs(inputs).max(axis=(0, 1)) > 0)
    if not len(active):
        return from_differences(np.zeros((people, candidates - 1, 1)), np.zeros(1), 1.0)
    # Precision of a typical record's series at each round: what a curve is worth there.
    precision = np.sqrt((1.0 / sd**2) @ (inputs**2).mean(axis=(0, 1)))
    basis = _curves(residuals.reshape(-1, rounds) * precision, _LEAK)  # (T, q), orthonormal
    coefficients = (residuals * precision) @ basis  # (m, K, q)
    shapes = basis / precision[:, None]
    columns = [(inputs[:, :, j], residual[:, j], sd[:, j]) for j in active]
    return stack([_coordinate(coefficients, shapes, *column) for column in columns])


def float32_noise(returned: Array, residuals: Array, inputs: Array, scale: float) -> Array:
    """Standard deviation (T, d) of gradient sums read from float32 models (decoders.md section 4).

    returned: (T, d), the models sent back; scale: what turns a difference of models into a sum of
    gradients (m / learning rate); residuals (m, K, T) and inputs (m, K, d) as in
    :func:`from_factors`.

    Adds, in squares: the rounding of the returned model, ulp(theta') scale / sqrt(12); the
    rounding of each residual (a sigmoid is good to 2^-24 and its argument adds as much again); the
    rounding of the products, taken as coherent; and that of the running sum. The candidate with
    the larger error counts. On Adult the true error had 0.8 to 1.1 times this root mean square.
    """
    ulp = np.spacing(np.abs(returned).astype(np.float32)).astype(np.float64)
    arithmetic = np.zeros_like(ulp)
    for k in range(residuals.shape[1]):
        r, x = residuals[:, k], inputs[:, k]
        products = (np.abs(r).T @ np.abs(x)) ** 2
        running = (r.T @ x) ** 2 * (x != 0).sum(axis=0)
        each = 4 * (x**2).sum(axis=0)
        arithmetic = np.maximum(arithmetic, UNIT_ROUNDOFF_32**2 * (each + products + running))
    return np.asarray(np.sqrt((ulp * scale) ** 2 / 12.0 + arithmetic), dtype=np.float64)


def _curves(series: Array, leak: float) -> Array:
    """Orthonormal curves in time that hold all records' series up to ``leak`` (Frobenius)."""
    rounds = series.shape[1]
    energy = float(np.einsum("ij,ij->", series, series))
    sketch = series
    if len(series) > _SKETCH:
        # Gaussian combinations span what the series span. The stream is fixed: another one would
        # change the rows, and the likelihood of any answer by less than the leak.
        mix = np.random.default_rng(20221212).normal(size=(_SKETCH, len(series)))
        sketch = mix @ series * np.sqrt(1.0 / _SKETCH)
    for candidate in (sketch, series):
        _, singular, right = linalg.svd(candidate, full_matrices=False, check_finite=False)
        tail = np.sqrt(np.cumsum((singular**2)[::-1])[::-1])
        q = max(int((tail > leak).sum()), 1)
        basis = np.ascontiguousarray(right[:q].T)
        projected = series @ basis
        kept = series - projected @ basis.T
        lost = float(np.einsum("ij,ij->", kept, kept))
        if candidate is series or lost <= max(4.0 * leak**2, 1e-20 * energy):
            break
    return basis if q < rounds else np.eye(rounds)


def _coordinate(
    coefficients: Array, shapes: Array, values: Array, residual: Array, sd: Array
) -> Measurement:
    """One input coordinate's series, reduced. shapes (T, q): the curves; values (m, K): the input;
    residual and sd (T,): what is observed of it and the noise."""
    curves, upper = linalg.qr(shapes / sd[:, None], mode="economic", check_finite=False)
    residual = residual / sd
    inside = curves.T @ residual
    outside = residual - curves @ inside
    spare = residual.size - inside.size
    chi2 = float(outside @ outside)
    raised = max(1.0, float(np.sqrt(chi2 / spare))) if spare >= SPARE else 1.0
    touched = (values != 0).any(axis=1)
    rows = (coefficients[touched] @ upper.T) * values[touched, :, None] / raised
    part = from_differences(rows[:, 1:] - rows[:, :1], inside / raised, 1.0, floor=FLOOR / 4)
    features = np.zeros((*values.shape, part.rank))
    features[touched] = part.features
    return replace(
        part,
        features=features,
        spare_rows=part.spare_rows + spare,
        spare_chi2=part.spare_chi2 + chi2 / raised**2,
    )
