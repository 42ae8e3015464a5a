"""The secret's moments from updates of linear least squares."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overheard.decoding.rounds import Steps, _Law, moments_of_secret, statistics
from overheard.errors import FixRecording


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
