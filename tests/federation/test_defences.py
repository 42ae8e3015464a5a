"""Defences in a chain, in a config, and in a message."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import simulated

from overheard.errors import FixConfig
from overheard.federation.defences.clip import Clip
from overheard.federation.defences.contract import applied, chain
from overheard.federation.defences.gaussian import Gaussian
from overheard.federation.federation import parse_config
from overheard.transcript.knowledge import AppliedDefence, Messages
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import observe

Settings = Callable[..., dict[str, Any]]


def test_an_order_that_voids_a_claim_is_refused() -> None:
    with pytest.raises(FixConfig, match=r"'clip' after 'gaussian' voids .* put 'clip' before it"):
        chain(Gaussian(sd=0.1), Clip(norm=1.0))
    with pytest.raises(FixConfig, match="voids"):
        chain(Clip(norm=2.0), chain(Gaussian(sd=0.1), Clip(norm=1.0)))


def test_claims_add_up() -> None:
    """Noise is of one standard deviation; ``times_clip`` is in units of the clip before it."""
    parts = Clip(norm=2.0), Clip(norm=1.0), Gaussian(sd=0.3), Gaussian(times_clip=0.4)
    said = applied(chain(*parts).claims)
    assert said.names == ("clip", "clip", "gaussian", "gaussian")
    assert said.clip_norm == 1.0
    assert said.noise_sd == pytest.approx(0.5)
    assert applied((Gaussian(sd=0.3, at="server").claim,)).noise_sd == 0.0


@pytest.mark.parametrize(
    ("defences", "complaint"),
    [
        ([{"name": "clp", "norm": 1.0}], r"unknown defence 'clp'; did you mean 'clip'\?"),
        ([{"norm": 1.0}], r"unknown defence None; known: clip, "),
        ([{"name": "clip", "nrm": 1.0}], r"defence 'clip': unknown key 'nrm'; did you mean 'norm'"),
        ([{"name": "clip", "norm": -1.0}], r"norm.*greater than 0 \(given: -1\.0\)"),
        ([{"name": "clip"}], r"norm.*Field required"),
        ([{"name": "gaussian"}], "give either sd or times_clip"),
        ([{"name": "gaussian", "sd": 1.0, "times_clip": 1.0}], "give either sd or times_clip"),
        (["clip"], r"defence\.0"),
    ],
)
def test_a_wrong_defence_is_refused(settings_for: Settings, defences: Any, complaint: str) -> None:
    with pytest.raises(FixConfig, match=complaint):
        parse_config(settings_for(defence=defences))


def test_noise_in_units_of_no_clip_norm_is_refused_before_anything_is_written(
    settings_for: Settings, tmp_path: Path
) -> None:
    content = settings_for(defence=[{"name": "gaussian", "times_clip": 1.0}])
    with pytest.raises(FixConfig, match="no 'clip' before it; add one, or give sd"):
        simulated(tmp_path / "run", content)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("training", [{}, {"algorithm": "fedsgd"}, {"precision": "float64"}])
def test_what_goes_over_the_wire_is_defended(
    settings_for: Settings, tmp_path: Path, training: dict[str, Any]
) -> None:
    def sent(name: str, *defences: dict[str, Any]) -> Messages:
        content = settings_for(training={**training, "rounds": 2})
        recording = simulated(tmp_path / name, content | {"defence": list(defences)})
        view = observe(recording, EAVESDROPPER, attribute("s"), "site 0")
        assert (AppliedDefence in view.kinds) == bool(defences)
        return view.know(Messages)

    bare = sent("bare")
    length = float(np.linalg.norm(bare.updates()[0]))
    clipped = sent("clipped", {"name": "clip", "norm": length / 4})
    np.testing.assert_allclose(clipped.updates()[0], bare.updates()[0] / 4, rtol=1e-4, atol=1e-7)
    loose = sent("loose", {"name": "clip", "norm": length * 1e6})
    np.testing.assert_allclose(loose.returned, bare.returned, rtol=1e-6)
    noisy = sent("noisy", {"name": "gaussian", "sd": 0.5})
    assert 0.1 < np.std(noisy.updates()[0] - bare.updates()[0]) < 1.5
    assert noisy.returned.dtype == bare.returned.dtype


def test_the_server_may_add_the_noise(settings_for: Settings, tmp_path: Path) -> None:
    content = settings_for(training={"rounds": 2, "participation": 1.0})
    links = []
    for name, defences in (("a", []), ("b", [{"name": "gaussian", "sd": 0.5, "at": "server"}])):
        recording = simulated(tmp_path / name, content | {"defence": defences})
        links.append(observe(recording, EAVESDROPPER, attribute("s"), "site 0").know(Messages))
    np.testing.assert_array_equal(links[0].returned[0], links[1].returned[0])
    assert np.abs(links[0].sent[1] - links[1].sent[1]).max() > 0.05
