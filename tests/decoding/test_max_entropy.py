"""Maximum entropy by its dual; few equations about many records."""

from __future__ import annotations

import numpy as np
import pytest
from measurements import crooked, simulate
from scipy import special

from overheard.decoding.max_entropy import learned_share, max_entropy, tilted
from overheard.decoding.measurement import from_differences, from_rows
from overheard.errors import FixData


def _primal(p, measurement, prior):
    """Relative entropy to the prior plus half the squared residual: what the dual minimises."""
    residual = measurement.total - np.tensordot(p, measurement.features, 2)
    safe = np.maximum(p, 1e-300)
    return float((p * np.log(safe / prior)).sum() + 0.5 * residual @ residual)


@pytest.mark.parametrize("noise", [1.0, 1e-2, 1e-5])
@pytest.mark.parametrize(("m", "k", "rows"), [(40, 2, 10), (30, 4, 15), (25, 2, 60)])
def test_duality_gap_is_closed(m, k, rows, noise):
    """The gap is zero at the optimum and nowhere else: a certificate that needs no solver."""
    problem = simulate(12, m, k, rows, noise)
    measurement = from_rows(problem.features, problem.total, noise).capped(1e6)
    prior = np.random.default_rng(0).dirichlet(np.ones(k), size=m)
    posterior = max_entropy(measurement, prior)
    assert posterior.converged
    p = posterior.probabilities
    np.testing.assert_allclose(p.sum(axis=1), 1.0, atol=1e-12)
    multipliers = measurement.total - np.tensordot(p, measurement.features, 2)
    log_partition = special.logsumexp(np.log(prior) + measurement.features @ multipliers, axis=1)
    dual = log_partition.sum() - measurement.total @ multipliers + multipliers @ multipliers / 2
    assert _primal(p, measurement, prior) + dual == pytest.approx(0.0, abs=5e-3)


def test_very_ill_conditioned_rows_still_converge():
    rng = np.random.default_rng(18)
    d = crooked(rng, 60, 80, np.logspace(4, -8, 60))
    secret = rng.integers(0, 2, 60)
    posterior = max_entropy(from_differences(d[:, None], secret @ d, 1e-9))
    assert posterior.converged
    assert np.mean(posterior.guess == secret) > 0.9


@pytest.mark.parametrize(
    ("prior", "words"),
    [
        (np.array([0.5, 0.6]), "sum"),
        (np.array([0.2, 0.3, 0.5]), "shape"),
        (np.array([1.5, -0.5]), "negative"),
        (np.array([np.nan, 1.0]), "finite"),
        ("half", "not an array"),
    ],
)
def test_bad_priors_are_refused_by_name(prior, words):
    measurement = from_rows(*simulate(0, 3, 2, 4, 0.1)[:2], 0.1)
    with pytest.raises(FixData, match=words):
        max_entropy(measurement, prior)


def people(rng, count, share, related):
    """Rows of a few numbers about many records, whose secret may go with their features."""
    features = np.zeros((count, 2, 6))
    features[:, 1] = rng.normal(size=(count, 6)) + 0.5
    score = features[:, 1, 1] * related + rng.normal(size=count)
    secret = (score > np.quantile(score, 1 - share)).astype(int)
    total = features[np.arange(count), secret].sum(axis=0) + rng.normal(0, 1.0, 6)
    return from_rows(features, total, 1.0), secret


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_the_share_of_a_client_unlike_the_population_is_learned(rng, share):
    measurement, secret = people(rng, 600, share, related=0.0)
    learned = learned_share(measurement, np.array([0.7, 0.3]))
    assert learned.sum() == pytest.approx(1)
    assert learned[1] == pytest.approx(secret.mean(), abs=0.06)


def test_a_secret_that_goes_with_the_features_is_not_noise(rng):
    measurement, secret = people(rng, 600, 0.5, related=2.0)
    assert 5 * measurement.rank <= measurement.unknowns
    found = tilted(measurement, np.array([0.8, 0.2]))
    assert found.chi2_per_equation < 1.5
    assert (found.guess == secret).mean() > 0.75
    assert found.confidence.mean() == pytest.approx((found.guess == secret).mean(), abs=0.06)
