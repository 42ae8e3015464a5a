from __future__ import annotations

import logging
import sys
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import planned

from experiments.robustness.privacy import tight_sampled_gaussian
from overheard.errors import FixConfig, InstallExtra
from overheard.federation.defences.accounting import (
    Budget,
    budget,
    delta_for,
    sampled_gaussian,
    sampled_gaussian_changed,
)
from overheard.federation.defences.contract import chain
from overheard.federation.plan import Plan
from overheard.federation.simulate import simulate
from overheard.programs.training import sampled_weights
from overheard.transcript.store import Recording

pytestmark = pytest.mark.slow

pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")


@pytest.mark.parametrize(("noise", "rate", "steps"), [(1.0, 0.02, 500), (2.0, 0.1, 100), (4, 1, 5)])
def test_epsilon_is_that_of_opacus(noise: float, rate: float, steps: int) -> None:
    pytest.importorskip("opacus", reason="Opacus is not installed")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.accountants import RDPAccountant

        theirs = RDPAccountant()
        theirs.history = [(noise, rate, steps)]
        epsilon = theirs.get_epsilon(1e-5)
    assert sampled_gaussian(noise, rate, steps, 1e-5) == pytest.approx(epsilon, rel=0.05)


STEPS = {"name": "dp_sgd", "clip": 1.0, "noise": 4.0}
CLIP = {"name": "clip", "norm": 1.0}


def defended(*defences: dict[str, object], **training: object) -> Plan:
    content = {
        "data": {"source": "digits", "options": {"victim": 40, "participants": 2}},
        "model": {"name": "mlp", "hidden": [6]},
        "training": {"rounds": 3, "learning_rate": 0.1, **training},
        "defence": list(defences),
    }
    return planned(content)


def promised(*defences: dict[str, object], records: int = 40, **training: object) -> Budget | None:
    """What is promised in three rounds."""
    ready = defended(*defences, **training)
    return budget(chain(*ready.config.defence).claims, ready.recipe, records, 3)


def test_a_recording_says_what_was_promised(tmp_path: Path) -> None:
    """Over all rounds, those included in which a client may not have taken part."""
    with pytest.raises(FixConfig, match=r"delta = 0\.02 with"):
        simulate(defended(STEPS | {"delta": 0.02}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    ready = defended(STEPS, participation=0.5, batch_size=10)
    said = Recording.open(simulate(ready, tmp_path / "run")).side("PrivacyBudget")["victim"]
    steps = ready.recipe.local_steps(40) * 3
    assert said["epsilon"] == pytest.approx(sampled_gaussian(4.0, 10 / 40, steps, 1e-5))
    assert "DP-SGD" in said["words"]


@pytest.mark.parametrize(
    ("training", "records", "steps", "rate"),
    [
        ({}, 40, 3, 1.0),  # one full batch a round
        ({"epochs": 4}, 40, 12, 1.0),
        ({"batch_size": 10}, 40, 12, 0.25),
        ({"batch_size": 10, "epochs": 2}, 45, 3 * 2 * 5, 10 / 45),  # the last batch is a step too
        ({"batch_size": 10, "steps": 7}, 40, 21, 0.25),
        ({"batch_size": 64}, 40, 3, 1.0),  # a batch larger than the client is a full batch
        ({"algorithm": "fedsgd"}, 40, 3, 1.0),
        ({"algorithm": "fedprox", "proximal": 0.1, "batch_size": 20}, 40, 6, 0.5),
        ({"participation": 0.5}, 40, 3, 1.0),  # who takes part is seen: every round counts
    ],
)
def test_steps_are_counted(
    training: dict[str, object], records: int, steps: int, rate: float
) -> None:
    """Three rounds, the steps counted by hand; and as many steps are taken."""
    private = {"name": "dp_sgd", "clip": 1.0, "noise": 3.0, "delta": 1e-4}
    recipe = defended(private, **training).recipe
    found = promised(private, records=records, **training)
    assert found is not None
    assert found.delta == 1e-4
    assert found.epsilon == pytest.approx(sampled_gaussian(3.0, rate, steps, 1e-4))
    assert f"{steps} steps, sampling rate {rate:.3g}, noise 3" in found.words
    taken = list(sampled_weights(recipe, np.array([records]), records, np.random.default_rng(0)))
    assert 3 * len(taken) == steps
    for weights, noisy in taken:
        assert noisy == pytest.approx(1 / (rate * records))
        assert set(weights[0]) <= {0.0, noisy[0]}


LOUD = {"name": "gaussian", "times_clip": 50.0}
FAINT = {"name": "gaussian", "times_clip": 0.1}
SERVERS = {"name": "gaussian", "sd": 1.0, "at": "server"}


@pytest.mark.parametrize(
    "later",
    [
        ({"name": "clip", "norm": 0.1},),
        ({"name": "gaussian", "sd": 0.1},),  # without a clip it counts for nothing of its own
        (SERVERS,),
        ({"name": "top_k", "share": 0.1},),
        ({"name": "quantise", "bits": 4},),
        ({"name": "drop_column", "columns": ["c000"]},),
        ({"name": "secure_sum"},),
        (CLIP, FAINT),
    ],
)
def test_what_comes_after_does_not_weaken_a_promise(later: tuple[dict[str, object], ...]) -> None:
    assert promised(STEPS, *later) == promised(STEPS)


@pytest.mark.parametrize(
    ("defences", "noise"),
    [
        ((CLIP, LOUD), 25.0),
        ((STEPS, CLIP, LOUD), 25.0),  # the smaller of two promises holds
        ((CLIP, {"name": "clip", "norm": 2.0}, LOUD), 25.0),  # the tighter of two clips bounds
        ((CLIP, LOUD, LOUD), 25 * 2**0.5),  # noises add up
        ((CLIP, SERVERS), None),
        (({"name": "gaussian", "sd": 0.1},), None),
    ],
)
def test_noise_on_clipped_updates_is_counted(defences: Any, noise: float | None) -> None:
    found = promised(*defences)
    assert (found is None) == (noise is None)
    if found is not None and noise is not None:
        assert found.words.startswith("noise on clipped updates")
        assert found.epsilon == pytest.approx(sampled_gaussian(noise, 1.0, 3, 1e-5))


def test_dp_sgd_after_what_it_would_void_is_refused_and_twice_too() -> None:
    for earlier in (
        CLIP,
        {"name": "gaussian", "sd": 1.0},
        {"name": "top_k", "share": 0.5},
        {"name": "secure_sum"},
    ):
        with pytest.raises(FixConfig, match=f"'dp_sgd' after '{earlier['name']}' voids"):
            defended(earlier, STEPS)
    with pytest.raises(FixConfig, match="there twice"):
        defended(STEPS, STEPS)


def test_noise_zero_promises_nothing() -> None:
    found = promised(STEPS | {"noise": 0.0})
    assert found is not None
    said = found.as_json()
    assert (said["epsilon"], said["changed"], said["delta"]) == (None, None, 1e-5)


@pytest.mark.parametrize(
    ("noise", "rate", "steps"), [(2.0, 1.0, 3), (4.0, 0.1, 30), (0.05, 0.3, 9)]
)
def test_changing_a_record_costs_more_than_leaving_it_out(
    noise: float, rate: float, steps: int
) -> None:
    there = sampled_gaussian(noise, rate, steps, 1e-5)
    changed = sampled_gaussian_changed(noise, rate, steps, 1e-5)
    assert there < changed
    assert changed <= sampled_gaussian(noise / 2, 1.0, steps, 1e-5) * (1 + 1e-9)
    if rate == 1:
        assert changed == pytest.approx(sampled_gaussian(noise / 2, 1.0, steps, 1e-5))
    assert sampled_gaussian_changed(0.0, rate, steps, 1e-5) == inf
    if noise > 1:
        assert 0 < tight_sampled_gaussian(noise, rate, steps, 1e-5) <= there


def test_the_accountant_keeps_its_warnings_to_itself(caplog: pytest.LogCaptureFixture) -> None:
    sampled_gaussian(2.0, 0.31, 10, 1e-5)
    assert not caplog.records
    assert logging.getLogger("absl").level != logging.ERROR


def test_without_the_accountant_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    ready = defended(STEPS | {"noise": 2.34})
    with pytest.raises(InstallExtra, match=r"pip install 'overheard\[dp"):
        simulate(ready, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_delta_is_below_one_over_the_records_of_all_clients() -> None:
    assert delta_for(1_000) == 1e-5
    assert delta_for(99_999) == 1e-5
    assert delta_for(100_000) == pytest.approx(1e-6)
    assert delta_for(1_000, 9e-4) == 9e-4
    for delta in (1e-3, 0.5):
        with pytest.raises(FixConfig, match=r"with 1,000 records.*below 1 / records \(0.001\)"):
            delta_for(1_000, delta)
