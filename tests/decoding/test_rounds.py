"""Many rounds as one measurement."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measurements import score
from scipy.special import expit

from overheard.decoding.measurement import from_rows
from overheard.decoding.posterior import decode
from overheard.decoding.rounds import Steps, _Law, from_factors, moments_of_secret, statistics
from overheard.errors import FixRecording


def _federation(seed, m, d, rounds, noise, k=2):
    """Logistic regression whose model drifts smoothly; the last coordinate is sensitive."""
    rng = np.random.default_rng(seed)
    inputs = np.repeat(rng.normal(size=(m, 1, d)), k, axis=1)
    inputs[:, :, -1] = np.arange(k)
    labels = rng.integers(0, 2, m)
    start, end = rng.normal(size=(2, d))
    times = np.linspace(0, 1, rounds)[:, None]
    models = start + (end - start) * times + 0.3 * np.sin(6 * times) * rng.normal(size=d)
    residuals = expit(inputs @ models.T) - labels[:, None, None]
    secret = rng.integers(0, k, m)
    who = np.arange(m)
    totals = residuals[who, secret].T @ inputs[who, secret]
    totals += noise * rng.normal(size=totals.shape)
    return residuals, inputs, totals, secret


def _explicit(residuals, inputs, totals, noise):
    rows = residuals[:, :, :, None] * inputs[:, :, None, :]
    m, k = rows.shape[:2]
    return from_rows(rows.reshape(m, k, -1), totals.ravel(), noise)


@pytest.mark.parametrize(("rounds", "k"), [(1, 2), (3, 3), (60, 2), (200, 2)])
def test_no_answer_changes_its_likelihood(rounds, k):
    residuals, inputs, totals, secret = _federation(1, 40, 5, rounds, 0.01, k)
    small = from_factors(residuals, inputs, totals, 0.01)
    whole = _explicit(residuals, inputs, totals, 0.01)
    rng = np.random.default_rng(0)
    for _ in range(10):
        other = np.where(rng.random(40) < 0.1, rng.integers(0, k, 40), secret)
        expected = score(whole, other) - score(whole, secret)
        got = score(small, other) - score(small, secret)
        # Noise is raised where the left-over series is louder by chance: a few per cent.
        assert got == pytest.approx(expected, rel=0.2, abs=0.5)


def test_thousand_rounds_are_few_rows_and_a_sharper_answer():
    residuals, inputs, totals, secret = _federation(2, 150, 6, 1000, 0.05)
    everything = from_factors(residuals, inputs, totals, 0.05)
    tenth = from_factors(residuals[:, :, ::100], inputs, totals[::100], 0.05)
    assert everything.rank < 150
    assert everything.residual_dof > 4000
    assert everything.chi2 == pytest.approx(1.0, abs=0.1)
    right = [np.mean(decode(x).guess == secret) for x in (tenth, everything)]
    assert right[1] > right[0]


def test_a_noisier_coordinate_is_trusted_less():
    """One coordinate carries thirty times the stated noise; only that one is discounted."""
    residuals, inputs, totals, _ = _federation(3, 60, 4, 300, 0.01)
    totals[:, 1] += 0.3 * np.random.default_rng(4).normal(size=300)
    calibrated = from_factors(residuals, inputs, totals, 0.01)
    assert calibrated.chi2 == pytest.approx(1.0, abs=0.1)
    assert _explicit(residuals, inputs, totals, 0.01).chi2 > 50


def federation(seed, people=40, columns=3, values=2, bias=True):
    """Public inputs, the secret's own input after them, labels, and what each value adds."""
    rng = np.random.default_rng(seed)
    public = np.column_stack([rng.normal(size=(people, columns)), np.zeros(people)])
    secret = rng.integers(0, values, people)
    blocks = np.zeros((values, columns + 1))
    blocks[:, -1] = np.arange(values) * 1.5 - 0.5
    labels = rng.normal(size=people)
    sent = rng.normal(size=(4, columns + 1 + bias))
    return public, secret, blocks, labels, sent


def replayed(public, secret, blocks, labels, sent, rate, steps, bias, proximal=0.0):
    """The slow twin: gradient steps on the records themselves, record by record."""
    updates = []
    for theta in sent:
        model = theta.copy()
        for _ in range(steps):
            gradient = np.zeros_like(model)
            for x, s, y in zip(public, secret, labels, strict=True):
                row = np.concatenate([x + blocks[s], [1.0]]) if bias else x + blocks[s]
                gradient += 2 * (row @ model - y) * row / len(labels)
            model = model - rate * gradient - proximal * (model - theta)
        updates.append(theta - model)
    return np.array(updates)


@given(st.integers(0, 10_000), st.integers(2, 3), st.booleans(), st.integers(1, 3))
def test_the_law_is_what_the_records_do(seed, values, bias, steps):
    public, secret, blocks, labels, sent = federation(seed, 12, 2, values, bias)
    rate, proximal = 0.05, 0.02
    phi = statistics(public, labels)
    law = _Law(phi, blocks, np.zeros_like(blocks), Steps(2 * rate / 12, steps, bias, proximal))
    truth = np.stack([phi[secret == k].sum(axis=0) for k in range(1, values)]).ravel()
    predicted, slope = law(sent, truth)
    wanted = replayed(public, secret, blocks, labels, sent, rate, steps, bias, proximal)
    np.testing.assert_allclose(predicted, wanted, atol=1e-10)
    step = 1e-6 * np.random.default_rng(seed).normal(size=len(truth))
    ahead, behind = law(sent, truth + step)[0], law(sent, truth - step)[0]
    np.testing.assert_allclose(slope @ step, (ahead - behind) / 2, atol=1e-11)


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize("values", [2, 3])
def test_the_moments_come_back(steps, values):
    public, secret, blocks, labels, sent = federation(1, values=values)
    updates = replayed(public, secret, blocks, labels, sent, 0.1, steps, True)
    phi = statistics(public, labels)
    noise = np.full(updates.shape, 1e-9)
    found = moments_of_secret(sent, updates, noise, phi, blocks, Steps(0.2 / 40, steps, True))
    truth = np.stack([phi[secret == k].sum(axis=0) for k in range(1, values)])
    # the column of the secret itself is zero in phi; with values in one input their moments are
    # determined up to what that input mixes: the equations say so, and the truth satisfies them
    left = found.rows @ truth.ravel() - found.total
    assert np.abs(left).max() < 1e-2 * np.abs(found.total).max()
    if values == 2:
        used = np.ptp(phi, axis=0) > 0
        used[-2] = True
        np.testing.assert_allclose(found.estimate[0][used], truth[0][used], atol=1e-4)
    assert found.chi2 < 10


def test_updates_of_something_else_inflate_the_noise():
    public, _, blocks, labels, sent = federation(2)
    other = np.random.default_rng(0).normal(size=sent.shape)
    phi = statistics(public, labels)
    found = moments_of_secret(
        sent, other, np.full(other.shape, 1e-3), phi, blocks, Steps(0.005, 1, True)
    )
    assert found.chi2 > 100


def test_infinite_updates_are_refused():
    public, _, blocks, labels, sent = federation(3)
    phi = statistics(public, labels)
    bad = np.full(sent.shape, np.inf)
    with pytest.raises(FixRecording, match="linear least squares"), np.errstate(invalid="ignore"):
        moments_of_secret(sent, bad, np.ones(sent.shape), phi, blocks, Steps(0.005, 1, True))
