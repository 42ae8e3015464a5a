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
from overheard.decoding.measurement import FLOOR, Measurement, finite, from_differences, stack
from overheard.errors import FixData

Array = NDArray[np.float64]

UNIT_ROUNDOFF_32 = 2.0**-24
"""Relative error of one float32 operation."""

_SKETCH = 300  # random combinations of the records' curves from which their span is found
_LEAK = 0.1  # curves below this (whitened, all records together) are dropped


def from_factors(
    residuals: Any, inputs: Any, totals: Any, noise: Any, *, floor: float = FLOOR
) -> Measurement:
    """Measurement from factored gradients over many rounds.

    residuals: (m, K, T), record i's residual at round t were its value candidate k;
    inputs: (m, K, d), its input vector under candidate k (bias = a constant coordinate);
    totals: (T, d), observed sums of gradients: (sent - returned) * m / learning rate for one
    full-batch step; noise: their standard deviations, (T, d) or a number (:func:`float32_noise`).

    Noise is taken as independent between rounds and coordinates. It is raised per coordinate to
    what the left-over series shows when at least 20 values are left over. Leave out rounds in
    which all residuals are alike (a model of zeros): float32 sums of equal terms err in one
    direction, and such rounds say nothing that others do not. Raises FixData on NaN, infinity or
    shapes that do not belong together.
    """
    r, x = finite("residuals", residuals), finite("inputs", inputs)
    observed = finite("totals", totals)
    if r.ndim != 3 or x.ndim != 3 or r.shape[:2] != x.shape[:2] or not r.shape[0]:
        raise FixData(
            f"residuals have shape {r.shape} and inputs {x.shape}; expected "
            "(records, candidates, rounds) and (records, candidates, coordinates)"
        )
    expected = (r.shape[2], x.shape[2])
    if observed.shape != expected or not observed.size:
        raise FixData(f"totals have shape {observed.shape}; expected {expected} (rounds, inputs)")
    sd = _noise(noise, expected)
    residual = observed - r[:, 0].T @ x[:, 0]
    active = np.abs(x).max(axis=(0, 1)) > 0
    if not active.any():
        return from_differences(np.zeros((*r.shape[:2], 1))[:, 1:], np.zeros(1), 1.0)
    x, sd, residual = x[:, :, active], sd[:, active], residual[:, active]
    # Precision of a typical record's series at each round: what a curve is worth there.
    precision = np.sqrt((1.0 / sd**2) @ (x**2).mean(axis=(0, 1)))
    basis = _curves(r.reshape(-1, r.shape[2]) * precision, _LEAK)  # (T, q), orthonormal
    coefficients = (r * precision) @ basis  # (m, K, q)
    shapes = basis / precision[:, None]
    parts = [
        _coordinate(coefficients, x[:, :, j], shapes / sd[:, j, None], residual[:, j] / sd[:, j])
        for j in range(x.shape[2])
    ]
    return stack(parts, floor=floor)


def float32_noise(
    returned: Any, residuals: Any, inputs: Any, scale: float, *, residual_error: float = 2.0**-23
) -> Array:
    """Standard deviation (T, d) of gradient sums read from float32 models (decoders.md section 4).

    returned: (T, d), the models sent back; scale: what turns a difference of models into a sum of
    gradients (m / learning rate); residuals (m, K, T) and inputs (m, K, d) as in
    :func:`from_factors`; residual_error: rounding of one residual (a sigmoid is good to 2^-24 and
    its argument adds as much again).

    Adds, in squares: the rounding of the returned model, ulp(theta') scale / sqrt(12); the
    rounding of each residual; the rounding of the products, taken as coherent; and that of the
    running sum. The candidate with the larger error counts. On Adult the true error had
    0.8 to 1.1 times this root mean square.
    """
    back = finite("returned models", returned)
    r, x = finite("residuals", residuals), finite("inputs", inputs)
    ulp = np.spacing(np.abs(back).astype(np.float32)).astype(np.float64)
    variance = (ulp * scale) ** 2 / 12.0
    arithmetic = np.zeros_like(variance)
    for k in range(r.shape[1]):
        absolute = np.abs(r[:, k]).T @ np.abs(x[:, k])
        running = (r[:, k].T @ x[:, k]) ** 2 * (x[:, k] != 0).sum(axis=0)
        single = residual_error**2 * (x[:, k] ** 2).sum(axis=0)
        arithmetic = np.maximum(arithmetic, single + UNIT_ROUNDOFF_32**2 * (absolute**2 + running))
    return np.asarray(np.sqrt(variance + arithmetic), dtype=np.float64)


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


def _coordinate(coefficients: Array, values: Array, shapes: Array, residual: Array) -> Measurement:
    """One input coordinate's series, reduced. shapes (T, q) and residual (T,) are whitened."""
    curves, upper = linalg.qr(shapes, mode="economic", check_finite=False)
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


def _noise(noise: Any, shape: tuple[int, int]) -> Array:
    sd = finite("noise", noise)
    if sd.shape not in ((), shape):
        raise FixData(f"noise has shape {sd.shape}; expected a number or {shape}")
    if not (sd > 0).all():
        raise FixData("noise: standard deviations must be positive")
    return np.broadcast_to(sd, shape)
