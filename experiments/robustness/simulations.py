"""Are the numbers right? What the product says, against simulations that know the truth.

Every simulation draws worlds whose truth is known, asks the product, and counts. An interval that
says 95% must contain the truth in 93 to 97 of 100 worlds; one that is conservative by construction
(said so in its line) in 95 or more. The same simulations run with fewer worlds in
``tests/numbers/test_simulations.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from experiments.robustness.promises import tried
from experiments.runner import Cell, Experiment, cell
from overheard.decoding.client_sets import Evidence, Options, contributions, posterior
from overheard.decoding.labels import Grouped, group_posterior, solve_residuals
from overheard.decoding.local_optimum import decode_least_squares
from overheard.decoding.measurement import from_gram, from_rows, stack
from overheard.decoding.posterior import NOISY, decode
from overheard.evaluation.decision import (
    clustered_interval,
    mean_change,
    mean_interval,
    share_interval,
)
from overheard.questions.property import f1_interval

Array = NDArray[np.float64]
Rng = np.random.Generator
LEAST, MOST = 0.93, 0.97


@dataclass(frozen=True)
class Simulation:
    """``draw`` gives, for one world, what is judged: whether each interval contained the truth
    (``intervals``), p-values (``uniform``), or pairs of a probability and what happened
    (``calibrated``). ``conservative``: covers 95% or more, and says why. ``share``: how many of
    the trials asked for are simulated, where a world takes long. ``gap``: the calibration error
    allowed beside chance; more than 0.03 only where sweeps approximate what nobody can add up."""

    what: str
    judged: str
    draw: Callable[[Rng], object]
    conservative: str = ""
    share: float = 1.0
    gap: float = 0.03


# --- intervals -----------------------------------------------------------------------------------


def _share(n: int, p: float) -> Callable[[Rng], bool]:
    def draw(rng: Rng) -> bool:
        low, high = share_interval((rng.random(n) < p).astype(np.float64))
        return bool(low <= p <= high)

    return draw


def _any_share(n: int) -> Callable[[Rng], bool]:
    """Over shares from one half to one: a single share of a discrete count lies on one side."""

    def draw(rng: Rng) -> bool:
        return _share(n, 0.5 + 0.5 * rng.random())(rng)

    return draw


def _mean(n: int, skewed: bool) -> Callable[[Rng], bool]:
    def draw(rng: Rng) -> bool:
        values = rng.normal(size=n) ** 2 if skewed else rng.normal(1.0, 1.0, n)
        low, high = mean_interval(values, rng)
        return bool(low <= 1.0 <= high)

    return draw


def _sizes(clients: int, unequal: bool, rng: Rng) -> NDArray[np.int64]:
    if not unequal:
        return np.full(clients, 100)
    sizes: NDArray[np.int64] = np.maximum(100 * np.exp(rng.normal(0, 1, clients)), 10).astype(int)
    return sizes


def _clustered_share(clients: int, unequal: bool, alike: bool = False) -> Callable[[Rng], bool]:
    def draw(rng: Rng) -> bool:
        truth = 8 / 12
        own = np.full(clients, truth) if alike else rng.beta(8, 4, clients)
        sizes = _sizes(clients, unequal, rng)
        units = [(rng.random(n) < p).astype(float) for n, p in zip(sizes, own, strict=True)]
        low, high = clustered_interval(units, share=True)
        return bool(low <= truth <= high)

    return draw


def _clustered_mean(clients: int, unequal: bool) -> Callable[[Rng], bool]:
    def draw(rng: Rng) -> bool:
        sizes = _sizes(clients, unequal, rng)
        units = [rng.normal() + rng.normal(0, 2, n) for n in sizes]
        low, high = clustered_interval(units)
        return bool(low <= 0 <= high)

    return draw


def _f1(clients: int, positive: float, found: float, accused: float) -> Callable[[Rng], bool]:
    hits = positive * found
    truth = 2 * hits / (hits + (1 - positive) * accused + positive)

    def draw(rng: Rng) -> bool:
        has = rng.random(clients) < positive
        named = np.where(has, rng.random(clients) < found, rng.random(clients) < accused)
        low, high = f1_interval(named, has, rng)
        return bool(low <= truth <= high)

    return draw


def _difference(n: int, before: float, after: float) -> Callable[[Rng], bool]:
    """Two audits: the difference of what leaks, as ``overheard compare`` states it."""

    def draw(rng: Rng) -> bool:
        hits = [(rng.random(n) < p).astype(np.float64) for p in (before, after)]
        leaks = [np.array([(h.mean(), *share_interval(h))]) for h in hits]
        _, low, high = mean_change(leaks[0], leaks[1], np.array([float(n)]), 0.95)
        return bool(low <= after - before <= high)

    return draw


def _group_means(rng: Rng) -> list[bool]:
    """leprovost2023's setting: labels of four groups behind one sum over forty records."""

    def people(n: int) -> tuple[Array, Array, Array, NDArray[np.int64]]:
        groups = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])
        inputs = rng.normal(size=(n, 8)) + np.eye(4, 8)[groups]
        labels = 0.5 * groups + inputs[:, 0] + rng.normal(size=n)
        predicted = 0.3 * inputs[:, 0]
        return (predicted - labels)[:, None] * inputs, labels, predicted, groups

    psi, labels, predicted, groups = people(400)
    mine, own, _, where = people(40)
    counts = np.bincount(where, minlength=4)
    there = counts > 0
    truth = np.bincount(where, own, minlength=4)[there] / counts[there]
    found = group_posterior(
        psi @ psi.T,
        psi @ mine.sum(0),
        labels,
        [predicted],
        Grouped(groups, 4, 40, counts.astype(float)),
    )
    return list(np.abs(found.means[there] - truth) <= 1.96 * found.sd[there])


def _labels(rng: Rng) -> list[bool]:
    features, values = rng.normal(size=(30, 20)), rng.normal(0, 2, 20)
    noise = np.full(30, 1.0)
    found = solve_residuals(features, features @ values + rng.normal(size=30), noise)
    return list(np.abs(found.values - values) <= 1.96 * found.sd)


def _local_optimum(rng: Rng) -> list[bool]:
    """The optimum of a least-squares client whose directions are all identified."""
    size, rounds, noise = 4, 40, 1e-4
    x = rng.normal(size=(60, size))
    pull = 0.05 * x.T @ x / len(x)
    optimum = rng.normal(size=size)
    sent = optimum + rng.normal(size=(rounds, size))
    returned = sent - (sent - optimum) @ pull + noise * rng.normal(size=sent.shape)
    fit = decode_least_squares(sent, returned)
    return list(np.abs(fit.estimate - optimum) <= 1.96 * fit.estimate_sd)


def _contribution(rng: Rng) -> list[bool]:
    took = (rng.random((30, 12)) < 0.4).astype(float)
    shares = 1 + rng.normal(size=12)
    variance = rng.uniform(0.1, 1.0, 30)
    sums = took @ shares + np.sqrt(variance) * rng.normal(size=30)
    mean, sd = contributions(sums, variance, took)
    return list(np.abs(mean - shares) <= 1.96 * sd)


# --- p-values ------------------------------------------------------------------------------------


def _spare_rows(rng: Rng) -> float:
    """What spare rows say of the noise stated, where it is right: chi-square with as many degrees
    as there are spare rows, whatever the records."""
    parts = []
    secret = rng.integers(0, 2, 6)
    for _ in range(2):
        features = rng.normal(size=(6, 2, 15))
        noise = rng.uniform(0.5, 2.0, 15)
        total = features[np.arange(6), secret].sum(axis=0) + noise * rng.normal(size=15)
        parts.append(from_rows(features, total, noise))
    joint = stack(parts)
    return float(special.chdtrc(joint.residual_dof, joint.residual_ss))


def _right_answer(rng: Rng) -> float:
    """What the right answer leaves unexplained: the p-value behind "does this answer fit?"."""
    features = rng.normal(size=(5, 3, 9))
    secret = rng.integers(0, 3, 5)
    total = features[np.arange(5), secret].sum(axis=0) + 0.3 * rng.normal(size=9)
    measured = from_rows(features, total, 0.3)
    chi2 = measured.chi2_per_equation(np.eye(3)[secret]) * measured.rank
    return float(special.chdtrc(measured.rank, chi2))


def _placebo(rng: Rng) -> float:
    """A decoder hears other people's secret; its score on this one, among the scores on shuffled
    ones, has a uniform rank (ties broken at random)."""
    people = 30
    features = rng.normal(size=(people, 2, 8))
    observed, asked = (rng.integers(0, 2, people) for _ in range(2))
    total = features[np.arange(people), observed].sum(axis=0) + 0.1 * rng.normal(size=8)
    guess = decode(from_rows(features, total, 0.1)).probabilities[:, 1]

    def score(secret: NDArray[np.int64]) -> float:
        return float(np.log(np.where(secret, guess, 1 - guess) + 1e-6).sum())

    mine = score(asked)
    others = np.array([score(rng.permutation(asked)) for _ in range(49)])
    above, ties = int((others > mine).sum()), int((others == mine).sum())
    return float((above + rng.random() * (ties + 1)) / 50)


# --- posteriors ----------------------------------------------------------------------------------


def _decoded(
    rows: int, noise: float, people: int = 40, values: int = 2
) -> Callable[[Rng], list[tuple[float, bool]]]:
    """Secrets drawn from the decoder's own prior."""

    def draw(rng: Rng) -> list[tuple[float, bool]]:
        prior = rng.dirichlet(np.ones(values), size=people)
        secret = (rng.random(people)[:, None] > np.cumsum(prior, axis=1)).sum(axis=1)
        secret = np.minimum(secret, values - 1)
        features = rng.normal(size=(people, values, rows))
        total = features[np.arange(people), secret].sum(axis=0) + noise * rng.normal(size=rows)
        found = decode(from_rows(features, total, noise), prior)
        return list(zip(found.confidence, found.guess == secret, strict=True))

    return draw


def _noisy(rng: Rng) -> list[tuple[float, bool]]:
    """As above by plain sweeps, the noise stated at two thirds of what it is."""
    people, rows = 40, 60
    secret = rng.integers(0, 2, people)
    features = rng.normal(size=(people, 2, rows))
    total = features[np.arange(people), secret].sum(axis=0) + 4.5 * rng.normal(size=rows)
    found = decode(from_rows(features, total, 3.0), options=NOISY)
    return list(zip(found.confidence, found.guess == secret, strict=True))


def _weighed(rng: Rng) -> list[tuple[float, bool]]:
    """Who of a pool is in a sum, from inner products: one in three is."""
    n, rows = 30, 60
    gradients = rng.normal(size=(n, rows))
    inside = rng.random(n) < 1 / 3
    observed = inside @ gradients + 2.0 * rng.normal(size=rows)
    gram, told = gradients @ gradients.T / 2.0**2, gradients @ observed / 2.0**2
    found = decode(from_gram(gram, told[:, None]), np.array([2 / 3, 1 / 3]), options=NOISY)
    return list(zip(found.probabilities[:, 1], inside, strict=True))


def _holders(rng: Rng) -> list[tuple[float, bool]]:
    """Which clients hold a record, from sums over rounds in which they lean the same way."""
    clients, rounds, effect, own, lasting = 20, 30, 3.0, 2.0, 0.6
    model = Options()
    there = np.zeros((rounds, clients))
    for row in there:
        row[rng.choice(clients, 6, replace=False)] = 1
    holds = rng.random(clients) < rng.beta(*model.share) * (rng.random() > model.nobody)
    weights = np.exp(model.log_scales())
    s = rng.choice(model.scales, p=weights / weights.sum())
    common = np.full((rounds, rounds), lasting)
    y = effect * (there @ holds)
    y = y + there @ (np.sqrt(s * lasting) * rng.normal(size=clients))
    spread = s * (1 - lasting) * there.sum(axis=1) + own * (there @ holds)
    y = y + np.sqrt(spread) * rng.normal(size=rounds)
    flat = np.ones(rounds)
    evidence = Evidence(y, effect * flat, own * flat, 0 * common, there, common)
    found = posterior(evidence, model)
    return list(zip(found.probabilities, holds, strict=True))


ALIKE = "more where the clients are alike: their number is paid for, though they differ in nothing"

SIMULATIONS = (
    Simulation("share of 100 records, Wilson (any share)", "intervals", _any_share(100)),
    Simulation("share of 60 records, true 0.8", "intervals", _share(60, 0.8)),
    Simulation("share of 300 records, true 0.97", "intervals", _share(300, 0.97)),
    Simulation("mean of 6 scores, Student", "intervals", _mean(6, False)),
    Simulation("mean of 80 skewed scores, bootstrap-t", "intervals", _mean(80, True), share=0.5),
    Simulation("share over 4 clients", "intervals", _clustered_share(4, False)),
    Simulation("share over 6 clients of unequal size", "intervals", _clustered_share(6, True)),
    Simulation("share over 20 clients", "intervals", _clustered_share(20, False)),
    Simulation("share over 6 clients alike", "intervals", _clustered_share(6, False, True), ALIKE),
    Simulation("mean over 4 clients", "intervals", _clustered_mean(4, False)),
    Simulation("mean over 10 clients of unequal size", "intervals", _clustered_mean(10, True)),
    Simulation("F1 over 80 clients", "intervals", _f1(80, 0.15, 0.8, 0.05), share=0.5),
    Simulation("F1 over 10 clients", "intervals", _f1(10, 0.1, 0.95, 0.01), share=0.5),
    Simulation("difference of two audits, none", "intervals", _difference(300, 0.7, 0.7)),
    Simulation("difference of two audits, 0.6 to 0.9", "intervals", _difference(100, 0.6, 0.9)),
    Simulation("mean label of a group (leprovost2023)", "intervals", _group_means, share=0.1),
    Simulation("label of a record", "intervals", _labels, share=0.1),
    Simulation("a client's own optimum, every direction", "intervals", _local_optimum, share=0.25),
    Simulation("a client's contribution", "intervals", _contribution, share=0.2),
    Simulation("spare rows under the noise stated", "uniform", _spare_rows),
    Simulation("what the right answer leaves", "uniform", _right_answer),
    Simulation("placebo: rank of the score", "uniform", _placebo, share=0.25),
    Simulation(
        "decode, 12 equations, little noise", "calibrated", _decoded(12, 0.1), "", 0.1, 0.05
    ),
    Simulation("decode, 30 equations, much noise", "calibrated", _decoded(30, 3.0), share=0.1),
    Simulation("decode, 3 values", "calibrated", _decoded(20, 1.0, 24, 3), "", 0.1, 0.05),
    Simulation("decode, 10 records listed", "calibrated", _decoded(4, 1.0, 10), share=0.25),
    Simulation("sweeps under understated noise", "calibrated", _noisy, "", 0.1, 0.07),
    Simulation("members by inner products", "calibrated", _weighed, share=0.1),
    Simulation("clients that hold a record, from sums", "calibrated", _holders, share=0.1),
)


@dataclass(frozen=True)
class Judged:
    """What a simulation showed; ``right`` says whether it is as it must be."""

    trials: int
    faults: int
    words: str
    right: bool


def judge(simulation: Simulation, trials: int, seed: int = 0) -> Judged:
    """Draw the worlds and compare; ``trials`` in the answer counts what was judged."""
    name = np.frombuffer(simulation.what.encode(), np.uint8)
    rng = np.random.default_rng([seed, *name.tolist()])
    drawn = [simulation.draw(rng) for _ in range(max(int(trials * simulation.share), 10))]
    if simulation.judged == "uniform":
        return _uniform(np.array(drawn, dtype=np.float64))
    if simulation.judged == "calibrated":
        return _calibrated(drawn, simulation.gap)  # type: ignore[arg-type]
    return _covering(drawn, simulation.conservative)


def _covering(drawn: list[object], conservative: str) -> Judged:
    worlds = [np.atleast_1d(np.asarray(world, dtype=np.float64)) for world in drawn]
    inside = np.concatenate(worlds)
    share = float(inside.mean())
    # intervals of one world err together: the spread is that of worlds
    error = float(np.std([w.mean() for w in worlds], ddof=1) / np.sqrt(len(worlds)))
    least, most = (0.95, 1.0) if conservative else (LEAST, MOST)
    words = f"contains the truth {share:.1%} of the time (allowed {least:.0%} to {most:.0%})"
    words += f"; {conservative}" if conservative else ""
    right = least - 3 * error <= share <= most + 3 * error
    return Judged(len(inside), int((inside == 0).sum()), words, right)


def _uniform(p: Array) -> Judged:
    found = stats.kstest(p, "uniform")
    words = f"p-values uniform: Kolmogorov-Smirnov distance {found.statistic:.3f}"
    words += f", {np.mean(p < 0.05):.1%} below 0.05 (KS p = {found.pvalue:.2f})"
    return Judged(len(p), int((p < 0.05).sum()), words, bool(found.pvalue > 1e-3))


def _calibrated(worlds: list[list[tuple[float, bool]]], allowed: float) -> Judged:
    """Per tenth of confidence: as many right as the probabilities add up to."""
    p, hit = (np.array(x, dtype=np.float64) for x in zip(*chain(*worlds), strict=True))
    which = np.minimum((p * 10).astype(int), 9)
    gap = float(np.abs(np.bincount(which, hit - p)).sum() / len(p))
    # records of one world err together
    apart = [np.mean([said - came for said, came in world]) for world in worlds]
    chance = 3 * float(np.std(apart)) / np.sqrt(len(worlds))
    words = f"says {p.mean():.1%}, is right {hit.mean():.1%}; calibration error {gap:.3f}"
    words += f" (allowed {allowed:.2f} beside chance, {chance:.3f})"
    return Judged(len(p), int((hit == 0).sum()), words, bool(gap <= allowed + chance))


def _drawn(each: Cell) -> dict[str, object]:
    found = judge(BY_NAME[each["simulation"]], each["trials"], each.seed)
    return tried(found.trials, not found.right, found.words)


BY_NAME = {simulation.what: simulation for simulation in SIMULATIONS}
EXPERIMENTS = (
    Experiment(
        "robustness-simulations",
        "intervals, p-values and probabilities against the truth",
        _drawn,
        lambda: [cell(simulation=name, trials=1500, cost=30) for name in BY_NAME],
        must="**Intervals contain the truth as often as they say**, p-values are uniform, "
        "probabilities are calibrated",
    ),
)
