"""The sufficient statistics of a secret column, from updates of linear least squares.

For squared error and a linear model the update depends on the secret (decoders.md section 2.1) only
through the moments ``U_k = sum over records with value k of phi_i``, phi being the public inputs, 1
and y. One step is linear in U; E steps are ``theta <- theta - c (H(U) theta - b(U))`` repeated, and
the same few numbers follow from a small non-linear least squares. X_p'X_p is public, so that two
messages suffice where a fit of the whole map needs d + 1.

The answer is kept as the linear measurement ``rows @ U = total`` with unit noise, so that a
moment which the messages do not determine is never inverted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixRecording

Array = NDArray[np.float64]


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

    def evaluate(at: Array) -> tuple[float, Array, Array]:
        predicted, slope = law(sent, at)
        residual = ((updates - predicted) / noise).ravel()
        rows = (slope / noise[..., None]).reshape(-1, len(at))
        return float(residual @ residual), residual, rows

    cost, residual, rows = evaluate(guess)
    for _ in range(50):  # Gauss-Newton takes a dozen
        # columns differ in scale by orders of magnitude: equilibrate before the solve
        scale = np.maximum(np.linalg.norm(rows, axis=0), 1e-300)
        move = np.linalg.lstsq(rows / scale, residual, rcond=1e-14)[0] / scale
        trials = ((guess + move / 2**halving) for halving in range(10))
        better = next((t for t in trials if evaluate(t)[0] < cost), None)
        if better is None:
            break
        before, guess = cost, better
        cost, residual, rows = evaluate(guess)
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
