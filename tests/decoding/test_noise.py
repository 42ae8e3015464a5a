"""The covariance of noise: directions from one sample, variances from another; or shrunk."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from overheard.decoding.noise import Sums, whitened, whitening

N, WIDTH = 90, 40


def drawn(seed: int) -> tuple[Any, Any, Any]:
    """Records' gradients, a message, and weights with which they are summed up."""
    rng = np.random.default_rng(seed)
    rows, message = rng.normal(size=(N, WIDTH)), rng.normal(size=WIDTH)
    differences, expected, *others = (rng.normal(size=(k, N)) / 8 for k in (7, 1, 60, 200, 3))
    return rows, message, Sums(differences, expected[0], *others)


def white(rows: Any, message: Any, weights: Sums, share: float = 0.0) -> Any:
    parts = np.array_split(np.arange(WIDTH), 3)
    blocks = ((rows[:, part], message[part], np.full(len(part), share)) for part in parts)
    return whitened(blocks, lambda block: Sums(*(weight @ block for weight in weights)))


def test_the_noise_in_a_direction_is_what_other_deviations_have_there() -> None:
    """Inner products are those under the inverse of the noise's covariance, written out."""
    rows, message, weights = drawn(1)
    features, messages = white(rows, message, weights)
    differences, expected, suppressed, heldout, clients = (weight @ rows for weight in weights)
    _, directions = np.linalg.eigh(suppressed.T @ suppressed)
    noise = ((heldout @ directions) ** 2).sum(axis=0)
    inverse = (directions / noise) @ directions.T
    left = np.vstack([message, clients]) - expected
    np.testing.assert_allclose(features @ features.T, differences @ inverse @ differences.T)
    np.testing.assert_allclose(messages @ features.T, left @ inverse @ differences.T, atol=1e-12)


def test_rounding_is_noise_where_no_deviation_is() -> None:
    rows, message, weights = drawn(2)
    nothing = weights._replace(suppressed=np.zeros((0, N)), heldout=np.zeros((200, N)))
    features, _ = white(rows, message, nothing, share=4.0)
    differences = weights.differences @ rows
    np.testing.assert_allclose(features @ features.T, differences @ differences.T / 4)


def test_records_alike_are_one_unknown() -> None:
    rows, message, weights = drawn(3)
    twice = weights._replace(differences=np.tile(weights.differences, (2, 1)))
    features, _ = white(rows, message, twice)
    assert features.shape == (14, WIDTH)
    np.testing.assert_allclose(features[:7], features[7:])


@pytest.mark.parametrize("samples", [6, 20])
def test_whitened_noise_has_unit_covariance(samples: int, rng: np.random.Generator) -> None:
    """By the inverse root of the shrunk covariance, written out."""
    missed, sd = rng.normal(size=(samples, 9)) / 2, rng.uniform(0.5, 2.0, 9)
    rows, standard = rng.normal(size=(4, 9)), missed / sd
    written = 0.3 * np.eye(9) + 0.7 * standard.T @ standard
    expected = (rows / sd) @ np.linalg.inv(written) @ (rows / sd).T
    made = whitening(missed, sd, 0.3)(rows)
    np.testing.assert_allclose(made @ made.T / 0.3, expected)
