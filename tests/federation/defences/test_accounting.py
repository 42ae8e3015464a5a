from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from overheard.federation.config import parse_config
from overheard.federation.defences.accounting import Budget, budget, sampled_gaussian
from overheard.federation.defences.catalogue import build_all
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.transcript.store import Recording

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


def test_more_steps_cost_more_and_more_noise_costs_less() -> None:
    assert sampled_gaussian(0.0, 1.0, 1, 1e-5) == inf
    least = sampled_gaussian(4.0, 1.0, 1, 1e-5)
    assert least < sampled_gaussian(4.0, 1.0, 10, 1e-5) < sampled_gaussian(1.0, 1.0, 10, 1e-5)
    assert sampled_gaussian(1.0, 0.1, 10, 1e-5) < sampled_gaussian(1.0, 1.0, 10, 1e-5)


def config_with(*defences: dict[str, object]) -> dict[str, object]:
    return {
        "data": {"source": "digits", "options": {"victim": 40, "participants": 2}},
        "model": {"name": "mlp", "hidden": [6]},
        "training": {"rounds": 3, "learning_rate": 0.1, "batch_size": 10},
        "defence": list(defences),
    }


def test_a_recording_says_what_was_promised(tmp_path: Path) -> None:
    config = parse_config(config_with({"name": "dp_sgd", "clip": 1.0, "noise": 2.0}))
    ready = plan(config)
    assert ready.recipe.private is not None
    assert ready.recipe.private.noise == 2.0
    run = Recording.open(simulate(ready, tmp_path / "run"))
    promised = run.side("PrivacyBudget")
    steps = ready.recipe.local_steps(40) * 3
    expected = sampled_gaussian(2.0, 10 / 40, steps, 1e-5)
    assert promised["victim"]["epsilon"] == pytest.approx(expected)
    assert "DP-SGD" in promised["victim"]["words"]


def test_noise_on_clipped_updates_is_counted_and_noise_alone_is_not() -> None:
    ready = plan(parse_config(config_with()))
    both = parse_config(
        config_with({"name": "clip", "norm": 0.5}, {"name": "gaussian", "times_clip": 4.0})
    ).defence
    found = budget(both, build_all(both).claim, ready.recipe, 40, 3)
    assert found is not None
    assert found.epsilon == pytest.approx(sampled_gaussian(2.0, 1.0, 3, 1e-5))
    alone = parse_config(config_with({"name": "gaussian", "sd": 0.1})).defence
    assert budget(alone, build_all(alone).claim, ready.recipe, 40, 3) is None
    assert Budget(inf, 1e-5, "").as_json()["epsilon"] is None
