from __future__ import annotations

import numpy as np
import pytest

from overheard.errors import FixConfig
from overheard.guard.limits import Exposure, Limits, entropy_of, made_certain, shares_of

QUIET = Exposure("a", 100, 0.6, 0.5, 0.7, 0.6, 0, 0.0, 0.0)


def posterior(shares: list[float], known: float, count: int) -> tuple[np.ndarray, ...]:
    """Records of which the value is given ``known`` and is right, at these shares."""
    rng = np.random.default_rng(0)
    which = rng.choice(len(shares), count, p=shares)
    bits = np.log2(known) - np.log2(np.asarray(shares)[which])
    return np.full(count, known), np.ones(count), bits


def test_each_limit_stops_by_itself() -> None:
    limits = Limits(bits=0.1, entropy=0.2, certain=0.05)
    assert QUIET.answer(limits) == "ok"
    for changes in ({"bits": 0.11}, {"share": 0.21}, {"certain": 6}, {"exposed": "by its rule"}):
        loud = Exposure(**{**vars(QUIET), **changes})
        assert len(loud.beyond(limits)) == 1
        assert loud.answer(limits) == "too much"
        assert loud.severity(limits) > QUIET.severity(limits)
    assert Exposure(**{**vars(QUIET), "doubt": "poor fit"}).answer(limits) == "not known"
    with pytest.raises(FixConfig, match="entropy = -1"):
        Limits(entropy=-1)


def test_a_rare_value_that_is_known_is_few_bits_and_everybody() -> None:
    """2 of 600: 0.03 bits a record, and every one of them is settled."""
    which = np.zeros(600, dtype=np.int64)
    which[:2] = 1
    shares = shares_of(which, 2)
    bits = -np.log2(shares[which])
    assert bits.mean() < 0.04
    assert bits.mean() / entropy_of(shares) == pytest.approx(1.0)
    assert made_certain(np.ones(600), np.ones(600), bits) == 600


def test_what_the_shares_settle_is_not_made_certain_by_listening() -> None:
    which = np.zeros(600, dtype=np.int64)
    which[:2] = 1
    shares = shares_of(which, 2)
    guess = shares[0]  # everybody is given the shares: the commonest value beyond 99%
    bits = np.where(which == 0, 0.0, np.log2(1 - guess) - np.log2(shares[1]))
    assert made_certain(np.full(600, guess), (which == 0).astype(float), bits) == 0


def test_who_is_sure_and_often_wrong_makes_nothing_certain() -> None:
    confidence, hits, bits = posterior([0.5, 0.5], 1.0, 100)
    assert made_certain(confidence, hits, bits) == 100
    hits = np.where(np.arange(100) < 40, 0.0, 1.0)
    assert made_certain(confidence, hits, np.where(hits > 0, bits, -19.0)) == 0
    assert made_certain(np.full(100, 0.985), np.ones(100), bits) == 0


def test_names() -> None:
    asked = {"membership": "", "local_model": "", "label": "", "attribute": "s"}
    names = [
        Exposure(**{**vars(QUIET), "question": q, "attribute": a}).name for q, a in asked.items()
    ]
    assert names == ["membership", "own model", "label", "s"]
