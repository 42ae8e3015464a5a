"""The decoder against DP-SGD: clipping hides nothing, noise does, and the listener knows both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.evaluation.metrics import attribute_bits, attribute_hits, calibration_error
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.transcript.observe import observe
from overheard.transcript.store import Recording
from overheard.transcript.target import attribute
from overheard.transcript.threat import SERVER
from overheard.transcript.view import launch


def guessed(path: Path, model: dict[str, Any], noise: float, rounds: int = 2) -> tuple[Any, Any]:
    config = {
        "data": {"source": "digits", "options": {"victim": 60, "attributes": ["c043"]}},
        "model": model,
        "training": {"rounds": rounds, "learning_rate": 0.1},
        "defence": [{"name": "dp_sgd", "clip": 0.3, "noise": noise}],
    }
    run = Recording.open(simulate(plan(parse_config(config)), path))
    view = observe(run, SERVER, attribute("c043"), "victim")
    return launch(MaxEntropy(), view, 0), run.truth()["victim"]["c043"]


@pytest.mark.parametrize("model", [{"name": "mlp", "hidden": [8]}, {"name": "logistic"}])
def test_clipped_gradients_tell_as_much_as_whole_ones(tmp_path: Path, model: Any) -> None:
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")
    guess, secret = guessed(tmp_path / "run", model, 0.0)
    assert attribute_hits(guess, secret).mean() == 1.0


def test_noise_that_is_known_leaves_calibrated_doubt(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")
    bits, errors = [], []
    for noise in (0.1, 1.0, 10.0):
        guess, secret = guessed(tmp_path / f"{noise}", {"name": "mlp", "hidden": [8]}, noise)
        bits.append(attribute_bits(guess, secret).mean())
        errors.append(calibration_error(guess, secret))
    assert bits[0] > bits[1] > bits[2] - 0.05
    assert bits[2] > -0.1
    assert max(errors) < 0.25


def test_restless_sweeps_are_calmed_not_replaced_by_surer_ones() -> None:
    """Noise at which plain sweeps do not settle as stated: calibrated all the same."""
    import numpy as np

    from overheard.decoding.measurement import from_differences
    from overheard.decoding.posterior import decode

    errors = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        secret = rng.integers(0, 2, 80)
        rows = rng.normal(size=(80, 1, 240)) * np.geomspace(8.0, 0.2, 240)
        total = secret @ rows[:, 0] + rng.normal(size=240)
        found = decode(from_differences(rows, total, np.ones(240)))
        sure = found.probabilities.max(axis=1)
        errors.append(float(sure.mean() - (found.probabilities.argmax(axis=1) == secret).mean()))
    assert np.mean(errors) < 0.03
