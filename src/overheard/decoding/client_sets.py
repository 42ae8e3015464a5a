"""Which clients have a property, from one number a round that is a sum over its participants.

The number is the output of a linear filter (second part of this file); the posterior over sets of
clients comes first.

Round r gives y_r, standardised so that a client without the property adds about N(0, 1) and a
client with it e_r more (kerkouche2023 asks the same of its linear features). Rounds are not
independent: a client's own records lean the same way in rounds that are near. So

    y | tau ~ N(E tau, C(tau)),    E = diag(e) A,
    C(tau) = s ((A A') * L + diag((1 - diag(L)) A 1)) + D + diag(v A tau),

with A who took part (T, N), * entry by entry, L the part of a client's correlation between rounds
that is common to them, D the covariance of the error of the mean, both known from auxiliary
records, and v the variance of the target's own feature. s is what clients differ by from those
records: log-normal around 1, on a grid. A priori nobody is positive with probability ``nobody``;
else the share of positive clients has a Beta distribution. What honest clients add is not normal in
its tails: one of them may hold a record so much like the target as none of the auxiliary ones. With
the probability ``lookalike`` such a client's tau is drawn from N(0, lookalike_sd^2) instead of 0.

**Expectation propagation** over tau (Minka 2001; Rasmussen and Williams 2006, section 3.6), for
each s. Each client's Bernoulli prior is replaced by a Gaussian site; a sweep computes all cavities
from one N x N inverse and matches moments. What depends on tau beside the mean is handled at the
current belief p, which the sweeps improve: C(tau) is linearised at p, the covariance is C(p) and
log p(y | tau) has a further slope in tau; and the share of positive clients is at its posterior
mean given the other clients' p.

The marginal likelihood that expectation propagation estimates, corrected for what was replaced by a
mean, weighs the scales s, and all of them together against "nobody", whose likelihood is exact but
for lookalikes. The ratio of the two is a Bayes factor: under "nobody" it exceeds b with probability
at most 1 / b, however long one listens and whenever one stops (Ville 1939). Clients are named as
the set of the greatest expected F1 if somebody is positive, or nobody where a positive client would
stand out and the factor is below one. Those named are accused only where it exceeds ``odds``. Works
with fewer rounds than clients. Fails when: honest clients' records are themselves unlike the
auxiliary ones (s at the end of its grid says so), or many of them are like the target, or clients
always come together (then they share their probability).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular
from scipy.linalg.lapack import dpotri
from scipy.sparse.linalg import LinearOperator, cg
from scipy.special import betaln, expit, logit, logsumexp

from overheard.errors import FixData

Array = NDArray[np.float64]
TINY = 1e-9
"""Added to variances, relative to one client's, so that exact sums can be factorised."""
LEAST_VARIANCE, LEAST_PRECISION = 1e-8, 1e-12
"""Of a client that is decided, and of a cavity about which nothing is known."""


class Evidence(NamedTuple):
    """What the rounds showed: y, effect e, variance v (each (T,)), participation A (T, N).

    ``doubt`` D (T, T) is the covariance of the rounds' errors of the mean, in units of y;
    ``common`` L (T, T) the part of an honest client's correlation that is common to two rounds.
    ``lookalike``: the probability that a client without the property adds something unlike all that
    auxiliary records showed.
    """

    y: Array
    effect: Array
    variance: Array
    doubt: Array
    participation: Array
    common: Array
    lookalike: float = 0.0


@dataclass(frozen=True)
class Options:
    """Priors, and settings of expectation propagation.

    nobody: the prior probability that no client is positive. 0: it is known that some are, and who
        is named is accused, however little the rounds say.
    share: the two numbers of the Beta distribution of the share of positive clients, if some are.
    scales: the grid of s.
    alike_sd: standard deviation of log s: clients of one kind are like the auxiliary records, of
        many kinds less.
    lookalike_sd: standard deviation of what a lookalike adds, in units of the effect.
    odds: Bayes factor of "somebody" against "nobody" above which clients are accused.
    sweeps: at most, for each s.
    damping: share of the way that a site moves in a sweep.
    tolerance: change of every probability at which sweeps have settled.
    min_precision: of a site.
    linearise: sweeps after which the covariance is taken at the new belief.
    negligible: by how much the log evidence of a scale is below the likeliest one's where no larger
        one is tried.
    """

    nobody: float = 0.5
    share: tuple[float, float] = (1.0, 9.0)
    scales: tuple[float, ...] = (0.6, 0.8, 1.0, 1.25, 1.6, 2.3, 3.5)
    alike_sd: float = 0.25
    lookalike_sd: float = 0.5
    odds: float = 20.0
    sweeps: int = 100
    damping: float = 0.35
    tolerance: float = 3e-3
    min_precision: float = 1e-2
    linearise: int = 8
    negligible: float = 12.0

    @property
    def mean_share(self) -> float:
        """Of the clients, how many are positive on average where some are."""
        return self.share[0] / sum(self.share)

    def least_detectable(self, clients: int) -> float:
        """The detectability at which a single positive client is accused on average: the log Bayes
        factor of one among so many has the mean d^2 / 2 - log(clients)."""
        return float(np.sqrt(2 * np.log(self.odds * clients)))

    def log_scales(self) -> Array:
        """log p(s) of each scale, but for a constant: log-normal around 1."""
        return np.asarray(-((np.log(self.scales) / self.alike_sd) ** 2) / 2)


class Posterior(NamedTuple):
    """Probabilities (N,), whom to name (N,), whom of them to accuse (N,): all or none; and how they
    were found.

    ``scale``: posterior mean of s; ``log_odds``: log Bayes factor of "somebody" against "nobody";
    ``detectability``: by how many standard deviations a positive client stands out over all rounds
    if it were known who else is positive, the median over clients; ``settled``: whether the sweeps
    came to rest.
    """

    probabilities: Array
    chosen: NDArray[np.bool_]
    accused: NDArray[np.bool_]
    scale: float
    log_odds: float
    detectability: float
    settled: bool


def posterior(evidence: Evidence, options: Options | None = None) -> Posterior:
    """The probability of the property for each client, and whom to name.

    Sweeps begin at the scale that suits "nobody" best, whose noise is large enough for all that
    holders do; then those of each scale go on from where the last came to rest.
    """
    options = options or Options()
    covariances, plain = nobody_likelihoods(evidence, options)
    p = np.full(evidence.participation.shape[1], options.mean_share)
    start = _Belief(p, p, np.diag(p * (1 - p)), 1 / (p * (1 - p)), 1 / (1 - p))
    start = _propagate(evidence, covariances[plain.argmax()], start, options)

    def upward(holders: bool) -> tuple[list[_Belief], Array]:
        """Belief and log p(y, s) at each scale, from the least up to one that is negligible."""
        result, logs, at = [start] * len(plain), np.full(len(plain), -np.inf), start
        for k, prior in enumerate(options.log_scales()):
            at = result[k] = _propagate(evidence, covariances[k], at, options, holders)
            logs[k] = prior + at.log_evidence
            if at.settled and logs[k] < logs.max() - options.negligible:
                break
        return result, logs

    (result, logs), nobody = upward(True), plain
    if evidence.lookalike:
        least = plain + len(p) * np.log1p(-evidence.lookalike)  # no client is a lookalike either
        nobody = np.maximum(least, upward(False)[1])
    # the marginal likelihood of sweeps that did not come to rest means nothing
    rest = np.array([one.settled for one in result])
    logs = np.where(rest | ~rest.any(), logs, -np.inf)
    weight, log_odds = np.exp(logs - logsumexp(logs)), float(logsumexp(logs) - logsumexp(nobody))
    somebody = weight @ [one.p for one in result]
    somebody_is = float(expit(log_odds + logit(1 - options.nobody)))
    best = int(weight.argmax())
    likeliest = _quadratic(evidence, covariances[best], result[best])
    detectability = float(np.median(np.sqrt(np.diag(likeliest.product))))
    enough = detectability >= options.least_detectable(len(p))
    chosen = best_set(somebody) & (log_odds > 0 or not enough or not options.nobody)
    return Posterior(
        somebody * somebody_is,
        chosen,
        chosen & (log_odds > np.log(options.odds) or not options.nobody),
        float(weight @ options.scales),
        log_odds,
        detectability,
        result[best].settled,
    )


def nobody_likelihoods(evidence: Evidence, options: Options) -> tuple[list[Array], Array]:
    """For each scale s: C where nobody is positive (T, T); and log p(y, s | nobody)."""
    a, common = evidence.participation, evidence.common
    own = np.maximum(1 - np.diag(common), 0) * a.sum(axis=1) + TINY
    honest = (a @ a.T) * common + np.diag(own)
    made = [s * honest + evidence.doubt for s in options.scales]
    return made, options.log_scales() + [_log_density(c, evidence.y) for c in made]


def _log_density(covariance: Array, rest: Array) -> float:
    """log N(rest; 0, covariance), but for (T / 2) log 2 pi."""
    root = np.linalg.cholesky(covariance)
    solved = solve_triangular(root, rest, lower=True)
    return float(-np.log(np.diag(root)).sum() - solved @ solved / 2)


def _inverse(matrix: Array) -> tuple[Array, float]:
    """Of a positive definite matrix; and half the log of its determinant."""
    root = np.linalg.cholesky(matrix)
    upper = dpotri(root.T)[0]  # both have zeros below the diagonal
    np.fill_diagonal(upper, np.diag(upper) / 2)
    return upper + upper.T, float(np.log(np.diag(root)).sum())


class _Belief(NamedTuple):
    """Where expectation propagation stands.

    p (N,): probabilities; mean (N,), spread (N, N): of tau; precision, shift (N,): sites
    exp(-precision tau^2 / 2 + shift tau).
    """

    p: Array
    mean: Array
    spread: Array
    precision: Array
    shift: Array
    log_evidence: float = 0.0
    settled: bool = False


class _Quadratic(NamedTuple):
    """log p(y | tau) = const + (projection + slope)' tau - tau' product tau / 2; ``slope`` (N,)
    is what the target's own variance adds."""

    product: Array
    projection: Array
    slope: Array


def _quadratic(evidence: Evidence, nobody: Array, at: _Belief) -> _Quadratic:
    """C(tau) linearised at the belief: its means p (N,) and the covariance of tau.

    Client i with the property, or without it, raises or lowers the variances of its rounds from
    those at p; what that does to log p(y), the rounds' residuals being as tau_i = 1 or 0 has them,
    follows round by round (Sherman and Morrison).
    """
    a, p, spread = evidence.participation, np.clip(at.mean, 0, 1), at.spread
    t, i = np.nonzero(a)  # rounds, and the clients that took part
    inverse, _ = _inverse(nobody + np.diag(evidence.variance * (a @ p)))
    columns = evidence.effect[:, None] * a
    solved, solved_y = inverse @ columns, inverse @ evidence.y
    along = solved @ spread  # covariance of W (y - E tau) with tau, W = C(p)^-1
    toward = along[t, i] / np.diag(spread)[i]
    square = np.einsum("ti,ti->t", along, solved)[t] - along[t, i] * toward
    rest, own, v, p = (solved_y - solved @ p)[t], np.diag(inverse)[t], evidence.variance[t], p[i]

    def raised(by: Array, residual: Array) -> Array:
        factor = 1 + by * own
        return np.asarray(by * (square + residual**2) / factor - np.log(factor)) / 2

    gain = raised(v * (1 - p), rest - toward * (1 - p)) - raised(-v * p, rest + toward * p)
    slope = np.bincount(i, gain, a.shape[1]).astype(np.float64)
    return _Quadratic(columns.T @ solved, columns.T @ solved_y, slope)


def _propagate(
    evidence: Evidence, nobody: Array, start: _Belief, options: Options, holders: bool = True
) -> _Belief:
    """Sweeps at one scale, until all probabilities rest; and log p(y | somebody, s), but for
    (T / 2) log 2 pi, at the share and the covariance that they used. Without ``holders``: of
    nobody, lookalikes alone."""
    at, d, (alpha, beta), clients = start, options.damping, options.share, len(start.p)
    model, change = _quadratic(evidence, nobody, at), 1.0
    for sweep in range(1, options.sweeps + 1):
        spread, half_log = _inverse(model.product + np.diag(at.precision))
        linear, own = model.projection + model.slope + at.shift, np.diag(spread)
        mean = spread @ linear
        # the Gaussian without each client's own site
        cavity = np.maximum(1 / own - at.precision, LEAST_PRECISION)
        centre = (mean / own - at.shift) / cavity
        share = holders * (alpha + at.p.sum() - at.p) / (alpha + beta + clients - 1)
        p, new, varies, _ = _tilted(share, centre, cavity, evidence.lookalike, options.lookalike_sd)
        if change < options.tolerance:
            break
        change = float(np.abs(new - at.mean).max())
        precision = 1 / np.maximum(varies, LEAST_VARIANCE) - cavity
        precision = np.maximum(precision, options.min_precision)
        shift = new * (cavity + precision) - centre * cavity
        precision = at.precision + d * (precision - at.precision)
        shift = at.shift + d * (shift - at.shift)
        at = _Belief(p, new, spread, precision, shift)
        if evidence.variance.any() and sweep % options.linearise == 0:
            model = _quadratic(evidence, nobody, at)
    n = float(at.p.sum())
    share = np.full(clients, holders * (alpha + n) / (alpha + beta + clients))
    logs = _tilted(share, centre, cavity, evidence.lookalike, options.lookalike_sd)[3]
    joined = cavity + at.precision
    sites = (centre * cavity + at.shift) ** 2 / joined - np.log(joined) - centre**2 * cavity
    result = (logs - sites / 2).sum() + mean @ linear / 2 - half_log
    if holders:
        # the share is Beta-distributed: its marginal likelihood at the expected number of positives
        result += betaln(n + alpha, clients - n + beta) - betaln(alpha, beta)
        result -= n * np.log(share[0]) + (clients - n) * np.log(1 - share[0])
    # C(tau) is not linear: exactly at the likeliest tau, in place of the linearisation there
    tau = np.round(at.p) + (at.mean - at.p)
    there = evidence.participation @ tau
    result -= tau @ (model.projection + model.slope - model.product @ tau / 2)
    covariance = nobody + np.diag(evidence.variance * np.maximum(there, 0))
    result += _log_density(covariance, evidence.y - evidence.effect * there)
    return at._replace(log_evidence=float(result), settled=change < 10 * options.tolerance)


def _tilted(share: Array, centre: Array, cavity: Array, lookalike: float, sd: float) -> Array:
    """Rows (4, N): the probability of the property, mean and variance of tau, and the log of the
    integral of its prior times exp(-cavity (tau - centre)^2 / 2).

    tau is 1 with the probability ``share``, else N(0, sd^2) for a lookalike and 0 for others.
    """
    wide = 1 + cavity * sd**2
    with np.errstate(divide="ignore"):
        logs = np.log([share, (1 - share) * lookalike, (1 - share) * (1 - lookalike)])
    logs -= np.array([(1 - centre) ** 2, centre**2 / wide, centre**2]) * cavity / 2
    logs[1] -= np.log(wide) / 2
    total = np.logaddexp.reduce(logs, axis=0)
    p, like, _ = np.exp(logs - total)
    at, spread = centre * (1 - 1 / wide), sd**2 / wide
    mean = p + like * at
    return np.array([p, mean, p + like * (spread + at**2) - mean**2, total])


def best_set(probabilities: Array) -> NDArray[np.bool_]:
    """The most probable clients, as many as give the greatest F1 at the expected numbers of hits
    and of positives."""
    order = np.argsort(-probabilities, kind="stable")
    named = np.arange(1, len(order) + 1)
    expected = 2 * np.cumsum(probabilities[order]) / (named + probabilities.sum())
    return np.isin(np.arange(len(order)), order[: expected.argmax() + 1])


def contributions(sums: Array, variance: Array, participation: Array) -> tuple[Array, Array]:
    """How much each client's updates helped: mean and standard deviation (N,) of its share.

    Along the mean gradient of other people's records an honest client's update is 1 on average, an
    update of nothing 0, a negated one -1. Each round tells the sum of its participants' shares
    (T,), with this variance; what a client did on average is the posterior mean of a linear model
    (kerkouche2023 names such a score as future work). Before listening shares are N(1, 1).
    """
    a, weight = participation, 1 / variance
    precision = (a * weight[:, None]).T @ a + np.eye(a.shape[1])
    covariance = np.linalg.inv(precision)
    mean = 1 + covariance @ a.T @ (weight * (sums - a.sum(axis=1)))
    return mean, np.sqrt(np.diag(covariance))


# --- The best linear detector of one gradient among many, without training one.
#
# An update is (nearly) a sum of per-record gradients. Whether a sum contains a given gradient
# more than chance would have it is best told by the projection on the matched filter
#
#     a = (Cov + K + 0.005 s2 I)^-1 (g_target - mean g),
#
# with mean and covariance of the gradients of records from elsewhere and s2 the mean of
# diag(Cov). There are fewer records than parameters, so that Cov alone says nothing about most
# directions. K says something: in each layer the Kronecker product that has the layer's row and
# column second moments, E[G G'] and E[G' G] of its gradients G (out, in), which few records
# determine. It is half of the estimate and, being easy to invert, the preconditioner: four steps
# of conjugate gradients are enough. (With 0.1 diag(Cov) in place of K the target stands out by a
# third less, and thirty steps are needed.) kerkouche2023 finds such a direction by logistic
# regression on thousands of simulated updates.

Moments = tuple[Array, Array, int]


class Rows(Protocol):
    """Gradients of n records as a matrix (n, P) that can be multiplied."""

    def __len__(self) -> int: ...
    def times(self, vectors: Array) -> Array: ...
    def transposed(self, weights: Array) -> Array: ...
    def squares(self) -> Array: ...
    def moments(self) -> Sequence[Moments]: ...


class Block(NamedTuple):
    """Rows with their sum, the sum of their squares (P,), and each layer's second moments."""

    rows: Rows
    total: Array
    squares: Array
    moments: Sequence[Moments]


def block(rows: Rows) -> Block:
    """Rows, summed up once."""
    total = rows.transposed(np.ones((len(rows), 1)))[:, 0]
    return Block(rows, total, rows.squares(), rows.moments())


class Kronecker(NamedTuple):
    """A layer's approximate covariance ``left x right`` by eigenvectors; biases by themselves."""

    left_values: Array
    left: Array
    right_values: Array
    right: Array
    biases: Array

    def scaled(self, vector: Array, shift: float, power: int) -> Array:
        """(K + shift)^power times a vector (width,)."""
        split = len(self.left) * len(self.right)
        weights = vector[:split].reshape(len(self.left), len(self.right))
        values = np.multiply.outer(self.left_values, self.right_values) + shift
        turned = (self.left.T @ weights @ self.right) * values**power
        back = self.left @ turned @ self.right.T
        return np.concatenate([back.ravel(), vector[split:] * (self.biases + shift) ** power])


def _kronecker(moments: Sequence[Moments], count: int, variance: Array) -> Kronecker:
    """The Kronecker product with these second moments (sums over the blocks)."""
    left = sum((m[0] for m in moments[1:]), moments[0][0]) / count
    right = sum((m[1] for m in moments[1:]), moments[0][1]) / count
    unit = np.sqrt(max(float(np.trace(left)), 1e-300))
    (a, u), (b, v) = np.linalg.eigh(left / unit), np.linalg.eigh(right / unit)
    return Kronecker(np.maximum(a, 0), u, np.maximum(b, 0), v, variance)


class Background(NamedTuple):
    """What gradients of other people's records look like: blocks of rows, their mean and variance.

    Blocks may be of different rounds: a model moves little between neighbouring rounds, so that
    one block a round is made anew.
    """

    blocks: tuple[Block, ...]
    records: int
    mean: Array
    variance: Array
    layers: tuple[Kronecker, ...]

    def kronecker(self, vector: Array, shift: float, power: int) -> Array:
        """(K + shift)^power times a vector (P,), layer by layer."""
        ends = np.cumsum([len(k.left) * len(k.right) + len(k.biases) for k in self.layers])[:-1]
        parts = zip(self.layers, np.split(vector, ends), strict=True)
        return np.concatenate([layer.scaled(part, shift, power) for layer, part in parts])

    def covariance_times(self, vector: Array) -> Array:
        """Cov times a vector (P,)."""
        column = vector[:, None]
        made = sum(one.rows.transposed(one.rows.times(column))[:, 0] for one in self.blocks)
        return np.asarray(made / self.records - self.mean * (self.mean @ vector))


def background(blocks: Sequence[Block]) -> Background:
    """Mean and variance over the rows of all blocks."""
    count = sum(len(one.rows) for one in blocks)
    if count < 2:
        raise FixData(f"{count} auxiliary record(s) have no covariance; give at least two")
    mean = np.sum([one.total for one in blocks], axis=0) / count
    squares = np.sum([one.squares for one in blocks], axis=0) / count
    variance = np.maximum(squares - mean**2, 0.0)
    layers, start = [], 0
    for moments in zip(*(one.moments for one in blocks), strict=True):
        left, right, biases = moments[0]
        stop = start + len(left) * len(right) + biases
        layers.append(_kronecker(moments, count, variance[stop - biases : stop]))
        start = stop
    return Background(tuple(blocks), count, mean, variance, tuple(layers))


@dataclass(frozen=True)
class FilterOptions:
    """Settings of the filter and of what is estimated from its outputs.

    blocks: groups of auxiliary records, of which one a round has its gradients made anew.
    block: records in a group, at most. As many, or a third of all, are held out for the scale.
    ridge: added to the covariance, relative to the mean of its diagonal.
    first_iterations, iterations: of conjugate gradients, in the first round and in later ones.
    masks: dropout draws of a target, once for the filter and once for its outputs.
    usual, worth: the correlation of a record's outputs in two rounds before any was seen, and for
        how many records it counts.
    factor_edge: eigenvalues of the correlation above this multiple of what chance makes are common
        factors.
    factor_steps: of principal-axis factoring.
    most_alike: correlations are at most this; at 1 Fisher's scale would be infinite.
    """

    blocks: int = 5
    block: int = 1000
    ridge: float = 0.005
    first_iterations: int = 10
    iterations: int = 4
    masks: int = 32
    usual: float = 0.25
    worth: float = 30.0
    factor_edge: float = 2.5
    factor_steps: int = 10
    most_alike: float = 1 - 1e-4


FILTER = FilterOptions()


def matched(
    around: Background, difference: Array, start: Array, iterations: int, ridge: float
) -> Array:
    """The filter (P,) for a difference g_target - mean g (P,), by conjugate gradients.

    ``start``: the filter of the round before, from which a few iterations are enough.
    """
    average = float(around.variance.mean())
    if not average > 0:
        raise FixData("the auxiliary gradients do not vary; give records that differ")
    shift, shape = ridge * average, (len(difference), len(difference))
    system = LinearOperator(
        shape, lambda v: around.covariance_times(v) + around.kronecker(v, shift, 1), dtype=float
    )
    near = LinearOperator(shape, lambda v: around.kronecker(v, shift / 2, -1) / 2, dtype=float)
    return np.asarray(cg(system, difference, start, rtol=1e-12, maxiter=iterations, M=near)[0])


def common_part(outputs: NDArray[np.floating], options: FilterOptions = FILTER) -> Array:
    """The part of the correlation between rounds (T, T) that is common, from outputs (T, n).

    Auxiliary records answer the rounds' filters too. The correlation of their outputs between two
    rounds is that of an honest client's, which is a sum over records of the same kind. What is
    common to rounds (a record leans the same way for as long as the model changes little) is told
    apart from what each round has of its own (dropout, other batches) by principal-axis factoring:
    the common part has low rank, the own part is diagonal. Few records say little: correlations are
    shrunk to the usual one on Fisher's scale, atanh, on which their error is 1 / sqrt(n - 3).
    The diagonal is the share of a round's variance that is met again in others.
    """
    rounds, records = outputs.shape
    centred = outputs - outputs.mean(axis=1, keepdims=True, dtype=np.float64)
    lengths = np.sqrt((centred**2).sum(axis=1, keepdims=True))
    unit = centred / np.where(lengths > 0, lengths, 1.0)
    # on Fisher's scale, which is infinite at 1
    fisher = np.arctanh(options.most_alike * unit @ unit.T)
    usual, weight = np.arctanh(options.usual), max(records - 3, 0)
    correlation = np.tanh(usual + (fisher - usual) * weight / (weight + options.worth))
    own = np.full(rounds, 1 - options.usual)
    edge = options.factor_edge * np.sqrt(rounds / (records + options.worth))
    for _ in range(options.factor_steps):
        correlation[np.diag_indices(rounds)] = 1 - own
        values, vectors = np.linalg.eigh(correlation)
        factors = values > edge * own.mean()
        factors[-1] = True
        common = (vectors[:, factors] * np.maximum(values[factors], 0)) @ vectors[:, factors].T
        own = np.clip(1 - np.diag(common), 0.0, 1.0)
    return np.asarray(common)
