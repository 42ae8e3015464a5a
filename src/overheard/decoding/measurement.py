"""What did one sum of per-record features tell about the records?

A client's update is a linear measurement of the secret (decoders.md section 1): record ``i`` takes
one of ``K`` candidate values, and the adversary sees

    t = sum_i F[i, s_i] + noise,          F[i, k] = gradient of record i with candidate k.

A :class:`Measurement` is that equation made ready for a decoder:

* **one gauge**: everything is relative to candidate 0, so ``features[:, 0]`` is zero and
  ``total`` is ``t - sum_i F[i, 0]``. No posterior depends on the gauge, and differences that the
  caller computes without cancellation (:func:`from_differences`) stay exact;
* **white**: the noise has unit covariance;
* **reduced**: only the directions in which the records differ by more than the noise are kept.
  A direction ``u`` with singular value ``s`` (whitened) tells at most ``log2(1 + s^2 / 4) / 2``
  bits, so that what lies below ``floor`` is lost at no cost.

The rest of the rows (outside the span of all differences) hold noise and nothing else. They cannot
help a decoder, but they show whether the stated noise is right: :attr:`Measurement.chi2` is
their mean square and should be near one. It needs no decoder and no truth.

Numerics: rows are reduced by QR and SVD, never through normal equations, because whitened singular
values of float32 messages easily span nine decades. :func:`from_gram` is for gradients that were
never built; its eigenvalues are trusted down to ``1e-12`` of the largest (condition of the Gram
matrix below 1e12) and what lies below is dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, stats

from overheard.errors import FixData

Array = NDArray[np.float64]

UNKNOWNS = 6000
"""Beyond so many a Gram matrix and its eigenvectors take minutes and gigabytes."""
NUMBERS = 60_000_000
"""Rows of features are written out up to so many numbers (480 MB); above, as inner products."""
BLOCK = 1 << 23
"""Numbers that are made at once where rows are needed one after the other (64 MB)."""
CARRIED = 32
"""Candidates of a record: expectation propagation carries a dimension for each."""
LEAST_DOF = 20
"""Rows that nothing explains from which a noise level is estimated: to a third, then."""
NORMAL_MEDIAN = float(stats.norm.ppf(0.75))
"""Of the absolute value of a standard normal number."""
FLOOR = 0.02
"""Singular values below this many noise standard deviations are dropped (7e-5 bits each)."""

GRAM_CONDITION = 1e12
"""Largest condition number of a Gram matrix whose eigenvectors are trusted."""

_EPS = float(np.finfo(np.float64).eps)
_SLOPPY = 8 * _EPS  # rounding of a sum and of the rotations that follow, relative to its terms


@dataclass(frozen=True)
class Measurement:
    """A whitened, reduced linear measurement of ``m`` records with ``K`` candidates each.

    features: (m, K, r), ``features[:, 0] == 0``; total: (r,); noise covariance: identity.
    residual_dof: equations outside the span of all differences; residual_ss: their sum of squares.
    """

    features: Array
    total: Array
    residual_dof: int = 0
    residual_ss: float = 0.0

    def __post_init__(self) -> None:
        shape = self.features.shape
        if len(shape) != 3 or not shape[0]:
            raise FixData(f"features have shape {shape}; expected (records, candidates, rows)")
        if self.total.shape != shape[2:]:
            raise FixData(
                f"the total has shape {self.total.shape}; expected {shape[2:]}, one number per row"
            )

    @property
    def records(self) -> int:
        """Number of records, m."""
        return int(self.features.shape[0])

    @property
    def candidates(self) -> int:
        """Number of candidate values per record, K."""
        return int(self.features.shape[1])

    @property
    def rank(self) -> int:
        """Number of independent equations above the noise, r."""
        return int(self.features.shape[2])

    @property
    def unknowns(self) -> int:
        """Number of free indicators, m (K - 1)."""
        return self.records * (self.candidates - 1)

    @property
    def chi2(self) -> float:
        """Mean square of the residual rows: near 1 if the stated noise is right, NaN if none.

        Its standard error is ``sqrt(2 / residual_dof)``. Well above 1: the noise is larger than
        stated, or the features do not describe this sum (other records, model or recipe).
        """
        return self.residual_ss / self.residual_dof if self.residual_dof else float("nan")

    @property
    def differences(self) -> Array:
        """Features as a matrix (m (K - 1), r), record-major, candidate 0 left out."""
        return self.features[:, 1:].reshape(self.unknowns, self.rank)

    def inflated(self, factor: float) -> Measurement:
        """The same measurement under noise whose standard deviation is ``factor`` times larger."""
        features, total = self.features / factor, self.total / factor
        squares = self.residual_ss / factor**2
        return replace(self, features=features, total=total, residual_ss=squares)

    def capped(self, limit: float) -> Measurement:
        """The same measurement with singular values above ``limit`` lowered to it.

        Equivalent to more noise in those directions only, so it never claims more, and it keeps
        solvers away from precision that they cannot use.
        """
        singular = np.sqrt(np.einsum("ikr,ikr->r", self.features, self.features))
        if not (singular > limit).any():
            return self
        factor = limit / np.maximum(singular, limit)
        return replace(self, features=self.features * factor, total=self.total * factor)

    def given(self, known: NDArray[np.bool_], values: NDArray[np.intp]) -> Measurement:
        """What remains to be decoded when some records are known (conditioning).

        known: (m,) mask; values: (m,) candidates, read where known. The rest is reduced again, so
        directions that the known records dominated are seen at full precision. Directions that
        only known records moved become residual rows: if ``residual_ss`` grows by much more than
        ``residual_dof`` then a value was wrong. Needs at least one unknown record.
        """
        taken = self.features[known, values[known]].sum(axis=0)
        return _reduce(self.features[~known, 1:], self.total - taken, FLOOR, [self])

    def chi2_per_equation(self, probabilities: Array) -> float:
        """Mean square of ``total`` minus its expectation; 0 for a measurement without rows."""
        residual = self.total - np.tensordot(probabilities, self.features, 2)
        return float(residual @ residual) / max(self.rank, 1)


def from_rows(features: Any, total: Any, noise: Any, *, floor: float = FLOOR) -> Measurement:
    """Measurement from explicit rows.

    features: (m, K, R); total: (R,); noise: a standard deviation, one per row (R,), or the full
    covariance (R, R). A standard deviation below the float64 rounding of the row's own sum is
    raised to it, so ``noise=0`` means "exact up to float64". Raises FixData on NaN, infinity,
    mismatched shapes, negative noise or a covariance that is not positive definite.
    """
    raw = Measurement(finite("features", features), finite("total", total))
    size = np.abs(raw.features).max(axis=1).sum(axis=0) + np.abs(raw.total)
    differences = raw.features[:, 1:] - raw.features[:, :1]
    residual = raw.total - raw.features[:, 0].sum(axis=0)
    return _reduce(*_whitened(differences, residual, noise, _SLOPPY * size), floor)


def from_differences(
    differences: Any, residual: Any, noise: Any, *, floor: float = FLOOR
) -> Measurement:
    """As :func:`from_rows`, from differences the caller computed without cancellation.

    differences: (m, K - 1, R): F[i, k] - F[i, 0]; residual: (R,): the observed total minus
    sum_i F[i, 0]; noise: as in :func:`from_rows`.
    """
    raw = Measurement(finite("differences", differences), finite("residual", residual))
    size = np.abs(raw.features).sum(axis=(0, 1)) + np.abs(raw.total)
    return _reduce(*_whitened(raw.features, raw.total, noise, _SLOPPY * size), floor)


def from_gram(gram: Array, cross: Array, floor: float = FLOOR) -> Measurement:
    """Measurement from inner products, for gradients that were never built (decoders.md section 1).

    gram: (m, K - 1, m, K - 1), inner products of the whitened differences; cross: (m, K - 1),
    theirs with what candidate 0 of every record leaves of the total.

    Directions whose eigenvalue is below 1e-12 of the largest cannot be told from rounding and are
    dropped even when they lie above the noise: use rows if it matters. There are no residual rows,
    so the noise cannot be checked.
    """
    flat = finite("the Gram matrix", gram).reshape(cross.size, -1)
    # divide and conquer: crowded spectra, as these are, take the default five times longer
    eigenvalues, vectors = linalg.eigh((flat + flat.T) / 2, driver="evd", check_finite=False)
    top = max(float(eigenvalues[-1]), 0.0)
    if eigenvalues[0] < -1e-8 * top:
        raise FixData("the Gram matrix has negative eigenvalues; give inner products")
    used = eigenvalues > max(floor**2, top / GRAM_CONDITION)
    singular, vectors = np.sqrt(eigenvalues[used]), vectors[:, used]
    features = (vectors * singular).reshape(*cross.shape, len(singular))
    total = vectors.T @ finite("the products", cross).ravel() / singular
    return Measurement(_with_reference(features), total)


def stack(measurements: Sequence[Measurement]) -> Measurement:
    """All equations of several measurements of the same records, reduced again (rounds stack).

    Their noises are taken as independent.
    """
    features = np.concatenate([x.features[:, 1:] for x in measurements], axis=2)
    return _reduce(features, np.concatenate([x.total for x in measurements]), FLOOR, measurements)


def _reduce(
    differences: Array, residual: Array, floor: float, earlier: Sequence[Measurement] = ()
) -> Measurement:
    """Rotate whitened rows into the singular directions that rise above the noise.

    earlier: measurements that the rows were made from, whose residual rows count along.
    """
    m, free, rows = differences.shape
    matrix = differences.reshape(m * free, rows)
    # Rows in which nothing differs are residual from the start; they need no factorisation.
    active = np.abs(matrix).max(axis=0, initial=0.0) > 0
    squares = float(residual[~active] @ residual[~active])
    matrix, residual = matrix[:, active], residual[active]
    if matrix.shape[1] > matrix.shape[0]:
        # More rows than unknowns: QR first, so that the SVD is square.
        q, upper = linalg.qr(matrix.T, mode="economic", check_finite=False)
        inside = q.T @ residual
        outside = residual - q @ inside
        squares += float(outside @ outside)
        matrix, residual = upper.T, inside
    if matrix.size:
        left, singular, right = linalg.svd(matrix, full_matrices=False, check_finite=False)
        used = singular > max(floor, _EPS * max(matrix.shape) * singular[0])
        total = right[used] @ residual
        features = left[:, used] * singular[used]
        # A dropped direction holds noise and a signal small against it: a fair residual row.
        residual = residual - right[used].T @ total
    else:
        total, features = np.zeros(0), np.zeros((m * free, 0))
    squares += float(residual @ residual)
    return Measurement(
        _with_reference(features.reshape(m, free, total.size)),
        total,
        rows - total.size + sum(x.residual_dof for x in earlier),
        squares + sum(x.residual_ss for x in earlier),
    )


def _with_reference(differences: Array) -> Array:
    """Candidate 0 put back: zeros."""
    m, _, r = differences.shape
    return np.concatenate([np.zeros((m, 1, r)), differences], axis=1)


def finite(name: str, values: Any) -> Array:
    """The values as float64; FixData names the array if they are not numbers or not finite."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise FixData(f"{name}: not an array of numbers ({error})") from None
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array)).sum())
        raise FixData(f"{name}: {bad} of {array.size} values are NaN or infinite; remove them")
    return array


def _whitened(
    differences: Array, residual: Array, noise: Any, rounding: Array
) -> tuple[Array, Array]:
    """Both divided by standard deviations, or by the Cholesky factor of a covariance."""
    sd = finite("noise", noise)
    rows = residual.size
    if sd.shape not in ((), (rows,), (rows, rows)):
        raise FixData(
            f"noise has shape {sd.shape}; expected a number, one per row ({rows}) or their "
            "covariance"
        )
    if sd.ndim < 2:
        if (sd < 0).any():
            raise FixData("noise: negative standard deviations; give zero or more")
        raised = np.maximum(sd, rounding)
        raised = np.where(raised > 0, raised, 1.0)
        return differences / raised, residual / raised
    covariance = sd + np.diag(np.maximum(rounding, np.finfo(np.float64).tiny ** 0.5) ** 2)
    try:
        lower = linalg.cholesky((covariance + covariance.T) / 2, lower=True)
    except linalg.LinAlgError:
        raise FixData(
            "noise: the covariance is not positive definite; add the variance of rounding to its "
            "diagonal"
        ) from None
    both = np.vstack([differences.reshape(-1, rows), residual])
    white = linalg.solve_triangular(lower, both.T, lower=True, check_finite=False).T
    return np.ascontiguousarray(white[:-1]).reshape(differences.shape), white[-1]
