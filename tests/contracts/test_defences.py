"""What every defence promises, whichever file it is in."""

from __future__ import annotations

import json

import numpy as np
import pytest

from overheard.federation.defences.catalogue import DEFENCES, build_all, parse_defence
from overheard.federation.defences.contract import chain, told
from overheard.transcript.knowledge import AppliedDefence

# settings with which each defence is tried; a new defence adds its own
SETTINGS = {
    "clip": {"norm": 0.5},
    "gaussian": {"sd": 0.1},
    "secure_sum": {},
    "dp_sgd": {"clip": 0.5, "noise": 1.0},
    "drop_column": {"columns": ["s"]},
    "top_k": {"share": 0.1},
    "quantise": {"bits": 8},
}
WHO = np.array([0, 2, 3])


def built(name):
    return build_all([parse_defence({"name": name, **SETTINGS[name]})])


def updates():
    return np.random.default_rng(3).normal(size=(3, 400)) * [[0.001], [0.02], [1.0]]


@pytest.mark.parametrize("name", sorted(DEFENCES))
class TestEvery:
    def test_shapes_and_inputs_are_kept(self, name):
        defence, before, model = built(name), updates(), np.ones(400)
        state = defence.init(5, 400)
        after, state = defence.upload(state, before, WHO, np.random.default_rng(0))
        sent, _ = defence.broadcast(state, model, np.random.default_rng(0))
        assert after.shape == before.shape
        assert after.dtype == np.float64
        assert sent.shape == model.shape
        np.testing.assert_array_equal(before, updates())
        np.testing.assert_array_equal(model, 1.0)

    def test_same_seed_same_bits(self, name):
        defence = built(name)
        twice = [
            defence.upload(defence.init(5, 400), updates(), WHO, np.random.default_rng(7))[0]
            for _ in range(2)
        ]
        np.testing.assert_array_equal(*twice)

    def test_its_claim_is_data_and_true(self, name):
        defence = built(name)
        (claim,) = defence.claim
        assert claim.name == name
        assert len(claim.promises) > 10
        said = json.loads(json.dumps(told(defence.claim)))
        AppliedDefence(tuple(said["names"]), said["clip_norm"], said["noise_sd"])
        after, _ = defence.upload(defence.init(5, 400), updates(), WHO, np.random.default_rng(1))
        if claim.clip_norm is not None:
            assert np.linalg.norm(after, axis=1).max() <= claim.clip_norm * (1 + 1e-12)
        if claim.noise_sd:
            assert np.std(after - updates()) == pytest.approx(claim.noise_sd, rel=0.1)

    def test_joins_as_itself(self, name):
        defence = chain(chain(), built(name))
        after = [
            d.upload(d.init(5, 400), updates(), WHO, np.random.default_rng(2))[0]
            for d in (defence, built(name))
        ]
        np.testing.assert_array_equal(*after)
        assert defence.claim == built(name).claim
