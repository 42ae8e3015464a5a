"""Few equations about many records."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.decoding.max_entropy import few_equations, learned_share, tilted
from overheard.decoding.measurement import from_rows


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
    assert few_equations(measurement)
    found = tilted(measurement, np.array([0.8, 0.2]))
    assert found.chi2_per_equation < 1.5
    assert (found.guess == secret).mean() > 0.75
    assert found.confidence.mean() == pytest.approx((found.guess == secret).mean(), abs=0.06)
