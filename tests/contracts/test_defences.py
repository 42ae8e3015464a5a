"""What every defence promises, whichever file it is in."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from overheard.data.dataset import Dataset
from overheard.errors import FixConfig
from overheard.federation.config import parse_config
from overheard.federation.defences.catalogue import DEFENCES, build_all, parse_defence
from overheard.federation.defences.contract import chain, told
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.learning.records import Records
from overheard.transcript.knowledge import AppliedDefence
from overheard.transcript.store import Recording

# settings with which each defence is tried; a new defence adds its own
SETTINGS = {
    "clip": {"norm": 0.05},
    "gaussian": {"sd": 0.1},
    "secure_sum": {},
    "dp_sgd": {"clip": 0.5, "noise": 1.0},
    "drop_column": {"columns": ["s"]},
    "top_k": {"share": 0.1},
    "quantise": {"bits": 8},
}
WHO = np.array([0, 2, 3])


def few_coordinates(before, after):
    assert ((after != 0).sum(axis=1) == 40).all()
    assert ((after == before) | (after == 0)).all()


def few_levels(before, after):
    assert all(len(np.unique(row.round(12))) <= 256 for row in after)


def multiples(before, after):
    assert (after * 2.0**32 == np.round(after * 2.0**32)).all()
    assert np.abs(after - before).max() <= 2.0**-33


def untouched(before, after):
    """They act while the client trains."""
    np.testing.assert_array_equal(after, before)


# what each promises about the updates besides norms and noise, which are in its claim
PROMISED = {
    "clip": lambda before, after: None,
    "gaussian": lambda before, after: None,
    "secure_sum": multiples,
    "dp_sgd": untouched,
    "drop_column": untouched,
    "top_k": few_coordinates,
    "quantise": few_levels,
}


def federation(name):
    """A plan with this defence alone: three clients, an attribute ``s``."""
    rng = np.random.default_rng(4)
    columns = {c: rng.normal(size=30) for c in "abcd"}
    columns["s"] = rng.integers(0, 2, 30).astype(float)
    columns["y"] = rng.normal(size=30)
    columns["site"] = np.repeat(["p", "q", "r"], 10)
    roles = {"client": "site", "target": "y", "task": "regression", "sensitive": ("s",)}
    people = Dataset("people", Records(columns), **roles, origin="made up", licence="")
    config = {
        "data": {"source": "people"},
        "model": {"name": "mlp", "hidden": [4]},
        "training": {"rounds": 2, "learning_rate": 0.1},
        "defence": [{"name": name, **SETTINGS[name]}],
    }
    return plan(parse_config(config), people)


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
        said = told(defence.claim)
        json.dumps(said.content())
        assert isinstance(said, AppliedDefence)
        assert said.names == (name,)
        after, _ = defence.upload(defence.init(5, 400), updates(), WHO, np.random.default_rng(1))
        if claim.clip_norm is not None:
            assert np.linalg.norm(after, axis=1).max() <= claim.clip_norm * (1 + 1e-12)
        PROMISED[name](updates(), after)
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

    def test_its_settings_survive_a_file_and_typos_are_refused(self, name):
        config = parse_defence({"name": name, **SETTINGS[name]})
        assert parse_defence(json.loads(config.model_dump_json())) == config
        with pytest.raises(FixConfig, match=f"defence '{name}': unknown key 'strenght'"):
            parse_defence({"name": name, **SETTINGS[name], "strenght": 1})

    def test_in_a_federation(self, name, tmp_path):
        """It is told to everybody, changes what is heard, and the same seed gives the same bits."""
        if name == "dp_sgd":
            pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")
        ready = federation(name)
        assert ("s" in ready.recipe.encoding.columns()) == (name != "drop_column")
        assert (ready.recipe.private is not None) == (name == "dp_sgd")
        runs = [Recording.open(simulate(ready, tmp_path / which)) for which in "ab"]
        assert runs[0].side("AppliedDefence")["names"] == [name]
        heard = [model_heard(run) for run in runs]
        np.testing.assert_array_equal(*heard)
        bare = ready.config.model_copy(update={"defence": ()})
        free = replace(ready, config=bare, recipe=ready.recipe.model_copy(update={"private": None}))
        without = model_heard(Recording.open(simulate(free, tmp_path / "bare")))
        if name not in ("drop_column", "secure_sum"):  # in the plan; rounding alone
            assert np.abs(heard[0] - without).max() > 1e-5
        else:
            np.testing.assert_allclose(heard[0], without, atol=1e-6)


def model_heard(run):
    """The model that the clients are sent in the last round."""
    *_, (_, sent, _) = run.aggregates()
    return np.concatenate([np.ravel(a) for a in sent.values()])


def test_every_defence_is_tried():
    assert set(SETTINGS) == set(PROMISED) == set(DEFENCES)
