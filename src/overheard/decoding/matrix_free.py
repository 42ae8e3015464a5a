"""Tens of thousands of records: the linear solve without a Gram matrix.

A dense layer's share of the update is ``sum_i delta_i [a_i, 1]'``, so applying the equations to a
guess, and their transpose to a residual, are products of matrices that hold one row per record.
Conjugate gradients on the normal equations need nothing else. Two things make a handful of steps
enough: the preconditioner (each record's own block of the Gram matrix), and that the answer is
discrete. Once it can be rounded, the residual of the rounded answer proves it or shows where it is
wrong, and the next steps solve for the corrections only. Steps are taken in float32, residuals in
float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from overheard.decoding.gaussian import moment_sites
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.ties import group_means

Array = NDArray[np.float64]


@dataclass(frozen=True)
class MatrixFreeOptions:
    """Settings of the conjugate gradients.

    close: typical error of an indicator at which a solve may be rounded.
    steps, attempts: conjugate-gradient steps before an attempt to round, and how many of these.
    significant: standard deviations: what noise leaves along no record's feature.
    whole: distance from a whole number at which a correction is none.
    doubt: least variance of an indicator that was not proven.
    """

    close: float = 0.02
    steps: int = 60
    attempts: int = 6
    significant: float = 7.0
    whole: float = 0.25
    doubt: float = 0.05


@dataclass(frozen=True)
class Part:
    """Outer products ``errors_i inputs_i'`` of one layer, in the columns that are not all zero.

    errors: (m, fan_out); inputs: (m, len(columns)); columns: their positions among the layer's,
    ascending.
    """

    errors: NDArray[np.floating[Any]]
    inputs: NDArray[np.floating[Any]]
    columns: NDArray[np.intp]


@dataclass(frozen=True)
class OuterProducts:
    """Equations of one dense layer about m records with K candidates, never built.

    features[k]: the parts whose sum is candidate k + 1's difference from candidate 0.
    """

    features: Sequence[Sequence[Part]]
    shape: tuple[int, int]

    @property
    def records(self) -> int:
        return len(self.features[0][0].errors)

    def single(self) -> OuterProducts:
        """The same in float32: enough for the steps of a solve whose residual is float64."""
        features = [
            [Part(p.errors.astype(np.float32), p.inputs.astype(np.float32), p.columns) for p in one]
            for one in self.features
        ]
        return OuterProducts(features, self.shape)

    def apply(self, z: Array) -> Array:
        """The sum over records (fan_out, fan_in) for indicators z (m, K - 1)."""
        out = np.zeros(self.shape)
        z = z.astype(self.features[0][0].errors.dtype)
        for k, parts in enumerate(self.features):
            for part in parts:
                out[:, part.columns] += part.errors.T @ (part.inputs * z[:, k, None])
        return out

    def adjoint(self, block: Array) -> Array:
        """Inner products (m, K - 1) of every difference with a block (fan_out, fan_in)."""
        out = np.zeros((self.records, len(self.features)))
        block = block.astype(self.features[0][0].errors.dtype)
        for k, parts in enumerate(self.features):
            for part in parts:
                inner = part.errors @ block[:, part.columns]
                out[:, k] += np.einsum("ij,ij->i", inner, part.inputs)
        return out

    def own_blocks(self) -> Array:
        """Each record's Gram matrix of its own differences (m, K - 1, K - 1)."""
        free = len(self.features)
        out = np.zeros((self.records, free, free))
        for a, left in enumerate(self.features):
            for b, right in enumerate(self.features[: a + 1]):
                for one, two in product(left, right):
                    x = one.inputs[:, np.isin(one.columns, two.columns)]
                    y = two.inputs[:, np.isin(two.columns, one.columns)]
                    errors = np.einsum("ij,ij->i", one.errors, two.errors)
                    out[:, a, b] += errors * np.einsum("ij,ij->i", x, y)
                out[:, b, a] = out[:, a, b]
        return out


def decode_matrix_free(
    features: OuterProducts, residual: Array, noise: float, groups: NDArray[np.intp]
) -> Posterior:
    """Probabilities from conjugate gradients, rounding and proof; deterministic.

    residual: (fan_out, fan_in), the observed sum less every record's candidate 0; noise: its
    standard deviation; groups: (m,) numbers of records that cannot be told apart.

    Method "conjugate_gradients". ``converged``: the rounded answer leaves, along every record's
    feature, nothing but noise (7 standard deviations of what is left over overall), or solving for
    corrections to it leads back to it; and every record's feature stands 7 times above the noise
    that is left. If not, the probabilities are those of Gaussian errors as large as the last
    solve's distance from whole numbers: an approximation; ``chi2_per_equation`` says how far off.
    """
    options, m, free = MatrixFreeOptions(), features.records, len(features.features)
    blocks = features.own_blocks()
    norms = np.sqrt(np.maximum(np.einsum("ikk->ik", blocks), 1e-300))
    ridge = noise**2 * moment_sites(np.full((1, free + 1), 1 / (free + 1)))[0]
    preconditioner = np.linalg.inv(blocks + ridge + 1e-12 * np.eye(free) * blocks.max())
    quick = features.single()
    z = np.full((m, free), 1 / (free + 1))
    answer = np.full_like(z, np.nan)
    steps, proven = 0, False
    for attempt in range(options.attempts):
        rest = residual - features.apply(z)
        # after the first rounding few records are left to correct: the typical one is right
        close = options.close * 0.1**attempt
        change, used = _solve(quick, rest, ridge, preconditioner, (close, options.steps))
        z = z + change
        steps += used
        before, answer = answer, _nearest(z, groups)
        rest = residual - features.apply(answer)
        spread = float(np.sqrt(np.mean(rest**2)))
        scores = np.abs(features.adjoint(rest)) / (norms * max(spread, noise))
        # Or: corrections to the answer before, solved for all records at once and ten times more
        # closely, come to nothing. (Rounding in a long sum is not white, so scores may be large.)
        settled = np.array_equal(answer, before) and np.abs(z - answer).max() < options.whole
        proven = bool(settled or scores.max(initial=0.0) < options.significant)
        if proven:
            break
        z = answer if float(np.mean(scores > options.significant)) < 0.1 else z
    # How far the noise that is left may have moved each record: nothing, for most. Without proof an
    # answer is also as doubtful as the solves were far from whole numbers.
    error = (spread / norms.min(axis=1)) ** 2
    error = np.where(error * options.significant**2 < 1.0, 0.0, np.maximum(error, options.doubt))
    if not proven:
        error = np.maximum(error, max(float(np.mean((z - answer) ** 2)), options.doubt))
    probabilities, chi2 = _probabilities(z, answer, groups, error), (spread / noise) ** 2
    proven, size = proven and not error.any(), m * free
    return Posterior(probabilities, chi2, size, size, steps, proven, "conjugate_gradients")


def _solve(
    features: OuterProducts,
    residual: Array,
    ridge: Array,
    preconditioner: Array,
    until: tuple[float, int],
) -> tuple[Array, int]:
    """Conjugate gradients for (A'A + ridge) x = A' residual, ``until`` x moves by less than a
    number, or for so many steps."""
    close, steps = until
    right = features.adjoint(residual)
    x = np.zeros_like(right)
    rest = right
    step = (preconditioner @ rest[:, :, None])[:, :, 0]
    direction, strength = step, float(np.sum(rest * step))
    for used in range(1, steps + 1):
        if strength <= 0.0:
            return x, used
        image = features.adjoint(features.apply(direction))
        image += (ridge @ direction[:, :, None])[:, :, 0]
        length = strength / float(np.sum(direction * image))
        x = x + length * direction
        rest = rest - length * image
        step = (preconditioner @ rest[:, :, None])[:, :, 0]
        moved = float(np.sqrt(np.mean((length * direction) ** 2)))
        if max(float(np.sqrt(np.mean(step**2))), moved) < close:
            return x, used
        renewed = float(np.sum(rest * step))
        direction, strength = step + (renewed / strength) * direction, renewed
    return x, steps


def _nearest(z: Array, groups: NDArray[np.intp]) -> Array:
    """Indicators (shares of a group, for ties) rounded to what records can have."""
    sizes = np.bincount(groups)[groups][:, None]
    full = np.column_stack([1 - z.sum(axis=1), z])
    best = np.eye(full.shape[1])[full.argmax(axis=1)][:, 1:]
    counts = np.clip((group_means(z, groups) * sizes).round(), 0, sizes)
    return np.where(sizes == 1, best, counts / sizes)


def _probabilities(z: Array, answer: Array, groups: NDArray[np.intp], error: Array) -> Array:
    """The answer's; where it may be in error, those of a Gaussian of this variance (m,) around the
    solve z."""
    shares = np.column_stack([np.maximum(1 - answer.sum(axis=1), 0.0), answer])
    shares /= shares.sum(axis=1, keepdims=True)
    doubtful = error > 0
    corners = np.eye(shares.shape[1])[:, 1:]
    far = ((z[doubtful, None, :] - corners) ** 2).sum(axis=2)
    shares[doubtful] = special.softmax(-far / (2 * error[doubtful, None]), axis=1)
    return group_means(shares, groups)
