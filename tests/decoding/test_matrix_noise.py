"""Noise with a product covariance: found from draws, and whitened away."""

from __future__ import annotations

import numpy as np
import pytest

from overheard.decoding.matrix_noise import MatrixNoise, matrix_noise
from overheard.errors import FixData
from overheard.programs.gradient_rows import Difference, Differences


def covariance(rng: np.random.Generator, width: int) -> np.ndarray:
    mixed = rng.normal(size=(width, width)) / np.sqrt(width)
    return mixed @ mixed.T + 0.2 * np.eye(width)


def test_whitens_what_it_was_fitted_to(rng: np.random.Generator) -> None:
    rows, columns = covariance(rng, 30), covariance(rng, 50)
    left, right = np.linalg.cholesky(rows), np.linalg.cholesky(columns)
    draws = left @ rng.normal(size=(8, 30, 50)) @ right.T
    noise = matrix_noise(draws[:6], columns, 0.0)
    for fresh in draws[6:]:
        white = noise.white(fresh)
        assert np.mean(white**2) == pytest.approx(1.0, abs=0.3)
        # no direction stays louder than the others
        assert np.linalg.eigvalsh(white.T @ white / 30)[-1] < 10
        assert noise.chi2(fresh) == pytest.approx(np.mean(white**2))
        assert noise.louder(3.0).chi2(fresh) == pytest.approx(np.mean(white**2) / 9)


def test_a_column_louder_than_its_inputs_say_is_believed(rng: np.random.Generator) -> None:
    draws = rng.normal(size=(4, 20, 40))
    draws[:, :, 7] *= 30
    noise = matrix_noise(draws, np.eye(40), 0.0)
    fresh = rng.normal(size=(20, 40))
    fresh[:, 7] *= 30
    assert np.mean(noise.white(fresh)[:, 7] ** 2) < 3


def test_white_factors_are_white_gradients(rng: np.random.Generator) -> None:
    noise = MatrixNoise(
        np.linalg.cholesky(covariance(rng, 4)), np.linalg.cholesky(covariance(rng, 6))
    )
    layer = Difference(rng.normal(size=(2, 5, 4)), rng.normal(size=(2, 5, 6)), bias=False)
    naive = np.stack([noise.white(x.reshape(4, 6)).ravel() for x in layer.explicit()])
    factors = Difference(*noise.white_factors(layer.errors, layer.inputs))
    white = Differences((factors,))
    assert white.gram(white) == pytest.approx(naive @ naive.T)
    assert factors.lengths() == pytest.approx((naive**2).sum(axis=1))


def test_silence_has_the_rounding_error_left() -> None:
    noise = matrix_noise(np.zeros((3, 4, 5)), np.eye(5), 1e-3)
    assert noise.chi2(np.full((4, 5), 1e-3)) == pytest.approx(1.0, rel=0.1)


def test_residuals_must_be_finite() -> None:
    with pytest.raises(FixData, match="finite"):
        matrix_noise(np.full((2, 3, 3), np.nan), np.eye(3), 0.0)
