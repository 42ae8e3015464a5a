"""Rounds of full-batch steps as one measurement: factored gradients, and moments.

**Many rounds of a model whose gradients factorise** come first; then linear least squares, of which
the moments of the secret are all that a message tells.

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

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.decoding.measurement import FLOOR, LEAST_DOF, Measurement, from_differences, stack
from overheard.errors import FixRecording

Array = NDArray[np.float64]


def from_factors(
    residuals: Array, inputs: Array, totals: Array, noise: Any, leak: float = 0.1
) -> Measurement:
    """Measurement from factored gradients over many rounds.

    residuals: (m, K, T), record i's residual at round t were its value candidate k;
    inputs: (m, K, d), its input vector under candidate k (bias = a constant coordinate);
    totals: (T, d), observed sums of gradients: (sent - returned) * m / learning rate for one
    full-batch step; noise: their standard deviations, (T, d) or a number;
    leak: curves below this (whitened, all records together) are dropped.

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
    basis = _curves(residuals.reshape(-1, rounds) * precision, leak)  # (T, q), orthonormal
    coefficients = (residuals * precision) @ basis  # (m, K, q)
    shapes = basis / precision[:, None]
    columns = [(inputs[:, :, j], residual[:, j], sd[:, j]) for j in active]
    return stack([_coordinate(coefficients, shapes, *column) for column in columns])


def _curves(series: Array, leak: float, combinations: int = 300) -> Array:
    """Orthonormal curves in time that hold all records' series up to ``leak`` (Frobenius), from so
    many random combinations of them where there are more."""
    rounds = series.shape[1]
    energy = float(np.einsum("ij,ij->", series, series))
    sketch = series
    if len(series) > combinations:
        # Gaussian combinations span what the series span. The stream is fixed: another one would
        # change the rows, and the likelihood of any answer by less than the leak.
        mix = np.random.default_rng(20221212).normal(size=(combinations, len(series)))
        sketch = mix @ series * np.sqrt(1.0 / combinations)
    for candidate in (sketch, series):
        _, singular, right = linalg.svd(candidate, full_matrices=False, check_finite=False)
        tail = np.sqrt(np.cumsum((singular**2)[::-1])[::-1])
        q = max(int((tail > leak).sum()), 1)
        basis = np.ascontiguousarray(right[:q].T)
        projected = series @ basis
        rest = series - projected @ basis.T
        lost = float(np.einsum("ij,ij->", rest, rest))
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
    dof = residual.size - inside.size
    chi2 = float(outside @ outside)
    raised = max(1.0, float(np.sqrt(chi2 / dof))) if dof >= LEAST_DOF else 1.0
    touched = (values != 0).any(axis=1)
    rows = (coefficients[touched] @ upper.T) * values[touched, :, None] / raised
    part = from_differences(rows[:, 1:] - rows[:, :1], inside / raised, 1.0, floor=FLOOR / 4)
    features = np.zeros((*values.shape, part.rank))
    features[touched] = part.features
    freedom, squares = part.residual_dof + dof, part.residual_ss + chi2 / raised**2
    return replace(part, features=features, residual_dof=freedom, residual_ss=squares)


# --- The sufficient statistics of a secret column, from updates of linear least squares.
#
# For squared error and a linear model the update depends on the secret (decoders.md section 2.1)
# only through the moments ``U_k = sum over records with value k of phi_i``, phi being the public
# inputs, 1 and y. One step is linear in U; E steps are ``theta <- theta - c (H(U) theta - b(U))``
# repeated, and the same few numbers follow from a small non-linear least squares. X_p'X_p is
# public, so that two messages suffice where a fit of the whole map needs d + 1.
#
# The answer is kept as the linear measurement ``rows @ U = total`` with unit noise, so that a
# moment which the messages do not determine is never inverted.


@dataclass(frozen=True)
class Moments:
    """``rows`` (r, (K-1) q) and ``total`` (r,): whitened equations for the moments of the values
    1..K-1; ``estimate`` (K-1, q) their least-squares solution; ``chi2``: the sum of squares that
    this leaves of the messages, in units of the assumed noise, with so many degrees of freedom."""

    rows: Array
    total: Array
    estimate: Array
    chi2: float
    freedom: int


def statistics(public: Array, labels: Array) -> Array:
    """phi (m, q): public inputs with the secret's own set to zero, a one, and the label."""
    return np.column_stack([public, np.ones(len(labels)), labels])


class Steps(NamedTuple):
    """Local full-batch steps: c = 2 lr / m, the factor of one gradient step; how many; whether the
    model has a bias (its inputs are then [x, 1]); FedProx's coefficient times the learning rate."""

    factor: float
    times: int
    bias: bool
    proximal: float = 0.0


def moments_of_secret(
    sent: Array,
    updates: Array,
    noise: Array,
    phi: Array,
    blocks: Array,
    steps: Steps,
    within: Array | None = None,
) -> Moments:
    """Solve the messages for the secret's moments.

    Args:
        sent: (T, P) models sent, P = d inputs (+ 1 bias).
        updates: (T, P) sent minus returned.
        noise: (T, P) standard deviation of each update.
        phi: (m, q) from `statistics`.
        blocks: (K, d) what each value adds to the model's inputs.
        steps: what a client does between two messages.
        within: (K, d) variance of the inputs among records of one value (binned numbers).
    """
    law = _Law(phi, blocks, np.zeros_like(blocks) if within is None else within, steps)
    guess = np.repeat(phi.sum(0, keepdims=True) / len(blocks), len(blocks) - 1, axis=0).ravel()

    def evaluate(at: Array) -> tuple[float, Array, Array, Array]:
        """The sum of squares that is left there, what is left, its rows, and where that is."""
        predicted, slope = law(sent, at)
        residual = ((updates - predicted) / noise).ravel()
        rows = (slope / noise[..., None]).reshape(-1, len(at))
        return float(residual @ residual), residual, rows, at

    cost, residual, rows, _ = evaluate(guess)
    for _ in range(50):  # Gauss-Newton takes a dozen
        # columns differ in scale by orders of magnitude: equilibrate before the solve
        scale = np.maximum(np.linalg.norm(rows, axis=0), 1e-300)
        move = np.linalg.lstsq(rows / scale, residual, rcond=1e-14)[0] / scale
        trials = (evaluate(guess + move / 2**halving) for halving in range(10))
        better = next((tried for tried in trials if tried[0] < cost), None)
        if better is None:
            break
        before, (cost, residual, rows, guess) = cost, better
        if before - cost < 1e-9 * before:
            break
    if not np.isfinite(cost):
        raise FixRecording("the updates do not follow linear least squares; is the recipe right?")
    q, r = np.linalg.qr(rows)
    total = r @ guess + q.T @ residual
    freedom = max(len(residual) - len(guess), 0)
    return Moments(r, total, guess.reshape(len(blocks) - 1, -1), cost, freedom)


class _Law:
    """updates(sent; U) and its derivative by U, by forward differentiation of the local steps."""

    def __init__(self, phi: Array, blocks: Array, within: Array, steps: Steps) -> None:
        d, q, self.steps = blocks.shape[1], phi.shape[1], steps
        size = d + steps.bias
        lift = np.eye(q, size)  # phi -> public inputs of the model
        e, inside = (np.pad(part, ((0, 0), (0, size - d))) for part in (blocks, within))
        # with all records at value 0: H0, b0; each moment of value k adds (e_k - e_0) terms
        shifted = phi @ lift + e[0]
        square = e[:, :, None] * e[:, None, :] + inside[:, :, None] * np.eye(size)
        self.h0 = shifted.T @ shifted + len(phi) * np.diag(inside[0])
        self.b0 = shifted.T @ phi[:, -1]
        change = e[1:] - e[0]
        cross = np.einsum("as,kt->kast", lift, change)
        dh, db = cross + cross.swapaxes(2, 3), np.zeros((len(change), q, size))
        dh[:, d] += square[1:] - square[0]
        db[:, -1] = change
        self.dh, self.db = dh.reshape(-1, size, size), db.reshape(-1, size)

    def __call__(self, sent: Array, moments: Array) -> tuple[Array, Array]:
        h = self.h0 + np.tensordot(moments, self.dh, 1)
        b = self.b0 + moments @ self.db
        theta = sent.copy()
        slope = np.zeros((*sent.shape, len(moments)))
        factor, times, _, proximal = self.steps
        for _ in range(times):
            pull = np.tensordot(theta, self.dh, ([1], [2])).swapaxes(1, 2) - self.db.T
            turn = factor * (h @ slope + pull) + proximal * slope
            theta = theta - factor * (theta @ h - b) - proximal * (theta - sent)
            slope = slope - turn
        return sent - theta, -slope
