"""xu2021 Algorithm 3: what the learned map says about itself is in the paper's units."""

from __future__ import annotations

import pytest

from overheard.attacks.papers.xu2021 import LearnedMap, learn_maps

SHORT = LearnedMap(hidden=30, steps=200, rate=1e-2, search_steps=20)


def messages(rng, noise, rounds=60):
    """(1, T, P) models sent and updates of a client with an affine law and some noise."""
    sent = rng.normal(size=(1, rounds, 3))
    return sent, 0.1 * (sent - 1.0) + noise * rng.normal(size=sent.shape)


def test_the_loss_is_equation_9(rng):
    """Untrained, the map says almost nothing: the loss is then the squared updates' own sum."""
    sent, updates = messages(rng, 0.01)
    _, loss, _ = learn_maps(sent, updates, LearnedMap(hidden=2, steps=1, rate=0.0), 0)
    centred = updates - updates.mean(1)
    assert loss[0] == pytest.approx((centred**2).sum(), rel=0.7)
    _, again, _ = learn_maps(sent, 7.0 * updates, SHORT, 0)
    _, once, _ = learn_maps(sent, updates, SHORT, 0)
    assert again[0] == pytest.approx(49 * once[0], rel=1e-3)


def test_more_noise_is_a_higher_loss(rng):
    """Smaller batches, noisier updates: as a share of the updates' variance the loss would stay."""
    losses = [learn_maps(*messages(rng, noise), SHORT, 0)[1][0] for noise in (0.2, 1.0, 5.0)]  # type: ignore[call-arg]
    assert losses == sorted(losses)
    assert losses[2] > 20 * losses[0]
