"""How far evidence is believed, beside what is written out by hand."""

from __future__ import annotations

import numpy as np

from overheard.decoding.gaussian import match
from overheard.decoding.tempering import temperature_of, tempered


def drawn(seed: int, records: int = 2000) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A prior, calibrated probabilities and the secrets drawn by them."""
    rng = np.random.default_rng(seed)
    prior = np.tile([0.5, 0.3, 0.2], (records, 1))
    p = prior * np.exp(rng.normal(size=prior.shape) * 2)
    p /= p.sum(axis=1, keepdims=True)
    return prior, p, (p.cumsum(axis=1) > rng.random((records, 1))).argmax(axis=1)


def test_evidence_is_what_a_power_makes_of_it() -> None:
    prior, p, _ = drawn(0, 50)
    for power in (0.0, 0.3, 0.9):
        found = prior * (p / prior) ** power
        assert np.allclose(tempered(p, prior, power), found / found.sum(axis=1, keepdims=True))


def test_what_is_surer_than_right_is_tempered() -> None:
    """Evidence counted twice is to be believed by half; what is calibrated as it is."""
    prior, p, secrets = drawn(1)
    twice = prior * (p / prior) ** 2
    twice /= twice.sum(axis=1, keepdims=True)
    assert abs(temperature_of([twice], [secrets], prior) - 0.5) < 0.11
    assert temperature_of([p], [secrets], prior) > 0.85


def test_sites_match_the_moments() -> None:
    """Site times cavity is a Gaussian with the mean and the covariance of the probabilities."""
    _, p, _ = drawn(2, 40)
    precision = np.tile(0.1 * np.eye(2), (40, 1, 1))
    shift = np.full((40, 2), 0.05)
    site, site_shift = match(p, precision, shift)
    covariance = np.linalg.inv(precision + site)
    mean = (covariance @ (shift + site_shift)[:, :, None])[:, :, 0]
    assert np.allclose(mean, p[:, 1:])
    free = p[:, 1:]
    written = np.einsum("ik,kl->ikl", free, np.eye(2)) - free[:, :, None] * free[:, None, :]
    assert np.allclose(covariance, written, atol=1e-6)
