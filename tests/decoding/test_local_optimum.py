"""Local optima from mini-batch transcripts: least squares and logistic regression."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.datasets import load_breast_cancer

from overheard.decoding import pseudo_records as ls
from overheard.decoding.local_optimum import (
    LocalRecipe,
    decode_least_squares,
    noise_factor,
    residual_covariance,
    trend,
)
from overheard.decoding.pseudo_records import decode_logistic
from overheard.errors import ChooseAnotherAttack, FixConfig, FixRecording, ListenLonger

pytestmark = pytest.mark.slow

Array = NDArray[np.float64]
Client = tuple[Array, Array]


def gradient(logistic: bool, X: Array, y: Array, theta: Array) -> Array:
    out = X @ theta
    return X.T @ (expit(out) - y if logistic else 2.0 * (out - y)) / len(y)


def loss(logistic: bool, X: Array, y: Array, theta: Array) -> float:
    out = X @ theta
    return float(np.mean(np.logaddexp(0.0, out) - y * out if logistic else (out - y) ** 2))


def batches(recipe: LocalRecipe, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """The records of each step: in random order, drawn anew when all were used."""
    order: NDArray[np.int64] = np.empty(0, dtype=np.int64)
    for _ in range(recipe.steps):
        if len(order) == 0:
            order = rng.permutation(recipe.records)
        yield order[: recipe.batch]
        order = order[recipe.batch :]


def local_training(
    logistic: bool, client: Client, theta: Array, recipe: LocalRecipe, rng: np.random.Generator
) -> Array:
    X, y = client
    for chosen in batches(recipe, rng):
        theta = theta - recipe.learning_rate * gradient(logistic, X[chosen], y[chosen], theta)
    return theta


def federation(
    logistic: bool, clients: list[Client], recipes: list[LocalRecipe], rounds: int, seed: int
) -> list[tuple[Array, Array]]:
    rng = np.random.default_rng(seed)
    theta = np.zeros(clients[0][0].shape[1])
    sent, back = [], []
    for _ in range(rounds):
        theta = theta.astype(np.float32).astype(float)
        answers = np.array(
            [
                local_training(logistic, c, theta, r, rng).astype(np.float32).astype(float)
                for c, r in zip(clients, recipes, strict=True)
            ]
        )
        sent.append(theta)
        back.append(answers)
        theta = answers.mean(0)
    return [(np.array(sent), np.array(back)[:, c]) for c in range(len(clients))]


def regression_clients(rng: np.random.Generator, count: int, d: int) -> list[Client]:
    out = []
    for _ in range(count):
        scale = np.linalg.qr(rng.normal(size=(d, d)))[0] * np.logspace(0, -0.7, d)
        X = rng.normal(size=(250, d)) @ scale
        out.append((X, X @ rng.normal(size=d) + rng.normal(size=250)))
    return out


def client(rng: np.random.Generator, m: int, d: int, decay: float = 1.0) -> Client:
    """A regression of columns that are mixed: its weak directions are no coordinates."""
    X = rng.normal(size=(m, d)) * np.logspace(0, -decay, d)
    X = X @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    return X, X @ rng.normal(size=d) + rng.normal(size=m)


def leaf_clients(rng: np.random.Generator, sizes: list[int], d: int) -> list[Client]:
    """LEAF's synthetic task in small: own feature mean and own labelling at every client."""
    out = []
    for m in sizes:
        X = np.ones((m, d + 1))
        X[:, 1:] = rng.normal(size=d) + rng.normal(size=(m, d)) * np.arange(1, d + 1) ** -0.6
        w = rng.normal(size=d + 1)
        w[0] = -(X[:, 1:].mean(0) @ w[1:])  # both labels occur
        out.append((X, (X @ w + 0.3 * rng.normal(size=m) > 0).astype(float)))
    return out


def optimum(logistic: bool, X: Array, y: Array) -> Array:
    if not logistic:
        return np.linalg.lstsq(X, y, rcond=None)[0]
    theta = np.zeros(X.shape[1])
    for _ in range(100):
        p = expit(X @ theta)
        hessian = (X.T * (p * (1 - p))) @ X / len(y) + 1e-4 * np.eye(len(theta))
        theta = theta - np.linalg.solve(hessian, X.T @ (p - y) / len(y) + 1e-4 * theta)
    return theta


def excess(logistic: bool, X: Array, y: Array, *models: Array) -> list[float]:
    """How much larger the losses of these models are than that of the optimum."""
    least = loss(logistic, X, y, optimum(logistic, X, y))
    return [loss(logistic, X, y, theta) - least for theta in models]


@given(st.integers(2, 40), st.integers(1, 40), st.integers(1, 7), st.integers(0, 2**31))
@settings(max_examples=15, deadline=None, derandomize=True)
def test_noise_factor_is_the_variance_of_the_summed_batch_means(
    m: int, batch: int, steps: int, seed: int
) -> None:
    recipe = LocalRecipe(0.1, steps, batch, m)
    rng = np.random.default_rng(seed)
    g = rng.normal(size=m)
    totals = [sum(0.1 * g[chosen].mean() for chosen in batches(recipe, rng)) for _ in range(2000)]
    assert np.var(totals) == pytest.approx(noise_factor(recipe) * np.var(g), rel=0.15, abs=1e-12)


def test_residual_covariance_is_that_of_the_noise() -> None:
    rng = np.random.default_rng(0)
    rounds, d = 2000, 5
    root = rng.normal(size=(d, d))
    sent = np.cumsum(rng.normal(size=(rounds, d)), 0) / 30
    update = sent @ rng.normal(size=(d, d)) + rng.normal(size=(rounds, d)) @ root
    found, _ = residual_covariance(sent, update, trend(rounds, 6))
    assert np.linalg.norm(found - root.T @ root) < 0.12 * np.linalg.norm(root.T @ root)


@pytest.mark.parametrize("steps", [1, 5, 10])
def test_least_squares_on_mini_batches(steps: int) -> None:
    ratio, plain, inside, stated = [], [], [], []
    for seed in range(2):
        clients = regression_clients(np.random.default_rng(seed), 4, 12)
        recipe = LocalRecipe(0.02, steps, 32, 250)
        observed = federation(False, clients, [recipe] * 4, 300, seed)
        for (X, y), (sent, back) in zip(clients, observed, strict=True):
            found, best = decode_least_squares(sent, back, recipe), optimum(False, X, y)
            naive = np.linalg.lstsq(np.c_[sent, np.ones(300)], sent - back, rcond=None)[0]
            point = -np.linalg.lstsq(naive[:12].T, naive[12], rcond=None)[0]
            ours, by_plain, last = excess(False, X, y, found.estimate, point, back[-1])
            ratio.append(ours / last)
            plain.append(by_plain / last)
            inside.append(np.mean(np.abs(found.estimate - best) < 2 * found.estimate_sd))
            stated.append(ours - last <= np.trace(found.covariance @ X.T @ X) / len(y))
    assert np.median(ratio) <= 0.5
    assert np.median(ratio) < np.median(plain)
    assert np.mean(inside) >= 0.8
    assert np.mean(stated) == 1.0


@pytest.mark.parametrize("steps", [1, 5])
def test_logistic_beats_the_last_returned_model(steps: int) -> None:
    """One client in mini-batches, one in large ones, one in full batches."""
    sizes, batches = [150, 400, 120], [32, 64, 120]
    errors, accuracy, last_accuracy = [], [], []
    for seed in range(2):
        clients = leaf_clients(np.random.default_rng(seed), sizes, 6)
        recipes = [LocalRecipe(0.05, steps, b, m) for b, m in zip(batches, sizes, strict=True)]
        observed = federation(True, clients, recipes, 150, seed)
        for (X, y), (sent, back), recipe in zip(clients, observed, recipes, strict=True):
            found = decode_logistic(sent, back, recipe, bias=0)
            errors.append(excess(True, X, y, found.estimate, back[-1]))
            accuracy.append(np.mean((X @ found.estimate > 0) == y))
            last_accuracy.append(np.mean((X @ back[-1] > 0) == y))
            p = expit(X @ back[-1])
            hessian = (X.T * (p * (1 - p))) @ X / len(y)
            assert np.subtract(*errors[-1]) <= 0.5 * np.trace(hessian @ found.covariance)
    ours, last = np.mean(errors, axis=0)
    assert ours <= 0.4 * last
    assert np.mean(accuracy) > np.mean(last_accuracy) + 0.05


def tumours(rng: np.random.Generator, clients: int, people: int, unlike: bool) -> list[Client]:
    """Six columns of a real table that nothing was tuned on; the classes overlap. Clients that are
    unlike differ in the first one."""
    table = load_breast_cancer()
    rows = rng.permutation(len(table.target))[: clients * people]
    X = table.data[:, [1, 4, 8, 9, 14, 18]]
    X = np.column_stack([np.ones(len(X)), (X - X.mean(0)) / X.std(0)])
    if unlike:
        rows = rows[np.argsort(X[rows, 1] + 1.5 * rng.normal(size=len(rows)))]
    return [(X[own], table.target[own].astype(float)) for own in rows.reshape(clients, people)]


@pytest.mark.parametrize(
    ("recipe", "clients", "rounds"),
    [(LocalRecipe(0.5, 16, 8, 60), 3, 40), (LocalRecipe(0.3, 5, 100, 100), 4, 12)],
)
def test_goes_no_further_than_helps(recipe: LocalRecipe, clients: int, rounds: int) -> None:
    """Clients alike in small batches, clients unlike in full ones: all the way to the fitted
    optimum is worse than the last returned model for some; as far as trusted, for one at most."""
    errors = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        held = tumours(rng, clients, recipe.records, recipe.full_batch)
        observed = federation(True, held, [recipe] * clients, rounds, seed)
        for (X, y), (sent, back) in zip(held, observed, strict=True):
            found = decode_logistic(sent, back, recipe, bias=0)
            whole = back[-1] + (found.estimate - back[-1]) / max(found.trusted, 0.01)
            errors.append(excess(True, X, y, whole, found.estimate, back[-1]))
    blind, ours, last = np.transpose(errors)
    worse = [np.sum(tried > 1.02 * last) for tried in (blind, ours)]
    assert worse[1] <= 1 < worse[0]
    assert np.mean(ours) < min(np.mean(blind), np.mean(last))


def small_search(bias: int | None) -> tuple[ls._Search, Array]:
    """A search of four parameters, and a point near its start."""
    rng = np.random.default_rng(5)
    sent = rng.normal(size=(12, 4)) * 0.3
    returned = sent + 0.1 * rng.normal(size=sent.shape)
    options = ls.PseudoRecordOptions(records=8, equations=20)
    search = ls._search(sent, returned, LocalRecipe(0.1, 1, 10, 100), bias, options, rng)
    x = 0.1 * rng.normal(size=len(search.base) * len(search.segment) + 4)
    return search.allowing(0.1), x


@pytest.mark.parametrize("bias", [0, None])
def test_slope_is_the_derivative(bias: int | None) -> None:
    search, x = small_search(bias)
    slope = search.slope(x)
    for i in np.random.default_rng(6).choice(len(x), 12, replace=False):
        step = np.zeros_like(x)
        step[i] = 1e-6
        up, down = search.gap(x + step), search.gap(x - step)
        np.testing.assert_allclose(-(up - down) / 2e-6, slope[:, i], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("bias", [0, None])
def test_what_remains_is_the_posterior_covariance(bias: int | None) -> None:
    """The slow way: invert the precision of all coordinates, and look at the last ones."""
    search, x = small_search(bias)
    slope = search.slope(x)
    whole = np.linalg.inv(np.eye(len(x)) + slope.T @ slope)
    remaining = ls._remaining(slope, 4)
    np.testing.assert_allclose(remaining, whole[-4:, -4:], rtol=1e-6, atol=1e-9)


def test_bad_input_is_named() -> None:
    with pytest.raises(FixConfig, match="positive"):
        LocalRecipe(0.0, 1, 1, 1)
    recipe = LocalRecipe(0.1, 1, 10, 100)
    models = np.random.default_rng(0).normal(size=(20, 3))
    with pytest.raises(FixRecording, match="shape"):
        decode_least_squares(models, models[:4])
    bad = models.copy()
    bad[2, 1] = np.nan
    with pytest.raises(FixRecording, match="message 2"):
        decode_least_squares(models, bad)
    with pytest.raises(ListenLonger, match="1 message"):
        decode_least_squares(models[:1], models[:1])
    with pytest.raises(ListenLonger, match="noise"):
        decode_least_squares(models, models)
    with pytest.raises(ListenLonger, match="5 messages"):
        decode_least_squares(models[:5], models[:5] + 1, recipe)
    with pytest.raises(ChooseAnotherAttack, match="unchanged"):
        decode_logistic(models, models, recipe, bias=0)
    with pytest.raises(FixRecording, match="shape"):
        decode_logistic(models, models[:, :2], recipe, bias=0)


def answer(X: Array, y: Array, sent: Array, lr: float, steps: int) -> Array:
    """Full-batch gradient descent on mean squared error, the obvious way."""
    theta = sent.copy()
    for _ in range(steps):
        theta = theta - lr * 2.0 * (theta @ X.T - y) @ X / len(y)
    return theta


def stable_rate(clients: list[tuple[Array, Array]]) -> float:
    return 0.5 / max(np.linalg.eigvalsh(X.T @ X / len(X))[-1] for X, _ in clients)


@given(st.integers(2, 6), st.integers(1, 5), st.integers(0, 2**31))
@settings(max_examples=40, deadline=None)
def test_agrees_with_plain_least_squares_where_that_works(d: int, steps: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    X, y = client(rng, 20, d, decay=0.3)
    sent = rng.normal(size=(3 * d + 2, d))
    back = answer(X, y, sent, stable_rate([(X, y)]), steps)
    fit = decode_least_squares(sent, back)
    naive = np.linalg.lstsq(np.c_[sent, np.ones(len(sent))], sent - back, rcond=None)[0]
    np.testing.assert_allclose(fit.W, naive[:d].T, atol=1e-8)
    np.testing.assert_allclose(fit.W, fit.W.T)
    np.testing.assert_allclose(
        fit.estimate, -np.linalg.solve(naive[:d].T, naive[d]), rtol=1e-5, atol=1e-6
    )
    assert np.linalg.eigvalsh(fit.W)[0] > 0


def test_identified_optimum_has_calibrated_errors() -> None:
    rng = np.random.default_rng(0)
    X, y = client(rng, 100, 8, decay=0.5)
    truth, scores = optimum(False, X, y), []
    for _ in range(200):
        sent = rng.normal(size=(20, 8))
        back = answer(X, y, sent, stable_rate([(X, y)]), 5) + 1e-6 * rng.normal(size=sent.shape)
        fit = decode_least_squares(sent, back)
        scores.append((fit.estimate - truth) / fit.estimate_sd)
    assert 0.8 < np.std(scores) < 1.25
    assert 0.93 < np.mean(np.abs(scores) < 2) < 0.98


def test_flat_directions_are_counted_not_feared() -> None:
    rng = np.random.default_rng(1)
    X, y = client(rng, 6, 10)  # fewer records than parameters
    sent = rng.normal(size=(30, 10))
    fit = decode_least_squares(sent, answer(X, y, sent, stable_rate([(X, y)]), 3))
    assert (fit.identified, fit.flat) == (6, 4)
    assert np.mean((X @ fit.estimate - y) ** 2) < 1e-12


@pytest.mark.parametrize("steps", [1, 5])
@pytest.mark.parametrize("rounds", [10, 60, 200])
def test_crowded_models_of_an_ill_conditioned_client(steps: int, rounds: int) -> None:
    """Everybody in every round, float32: what is not identified is guessed for the better, and the
    covariance allows for it."""
    ratios, covered = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        clients = [client(rng, 100, 12, decay=0.7) for _ in range(3)]
        recipe = LocalRecipe(0.2 * stable_rate(clients), steps, 100, 100)
        observed = federation(False, clients, [recipe] * 3, rounds, seed)
        for (X, y), (sent, back) in zip(clients, observed, strict=True):
            fit = decode_least_squares(sent, back)
            ours, last = excess(False, X, y, fit.estimate, back[-1])
            ratios.append(ours / last)
            off = np.abs(fit.estimate - optimum(False, X, y))
            covered.append(np.mean(off <= 2 * fit.estimate_sd))
            assert 0 < fit.identified < 12
            assert np.linalg.eigvalsh(fit.W)[0] > 0
    assert np.median(ratios) < 0.3
    assert np.max(ratios) < 1
    assert np.mean(covered) > 0.95


def test_combinations_of_few_rounds_are_as_many_as_the_rounds(rng: np.random.Generator) -> None:
    rows = ls._combinations(rng.normal(size=(10, 19)), ls.trend(10, 12), 600)
    np.testing.assert_allclose(rows.T @ rows, np.eye(10), atol=1e-12)
