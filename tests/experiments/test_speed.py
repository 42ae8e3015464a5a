"""What measures speed: ratios, memory, parties; and the opponent that learns what ours learns."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from patience import ended

from experiments.speed import lines, measure, simulation
from experiments.speed.measure import Job, Party
from experiments.speed.simulation import module, train
from overheard.errors import FixConfig
from overheard.programs.networks import initial
from overheard.programs.training import local_training, shards
from overheard.randomness import stream

pytestmark = pytest.mark.slow

SIZES = {"clients": 3, "records": 20, "inputs": 30, "hidden": 8, "outputs": 3, "rounds": 1}


def test_the_plain_loop_learns_what_ours_learns() -> None:
    """The same records, rates and batches: one client, one batch, so that no order matters."""
    sizes = {**SIZES, "clients": 1, "records": 10}
    recipe, (inputs, labels) = simulation.recipe_for(sizes), simulation.people(sizes)
    theta = initial(recipe.model, 3).astype(np.float32)
    data = shards(list(inputs), list(labels), "float32")
    ours = local_training(recipe, theta, data, stream(0, "x"))[0]
    net, loss = module(simulation.shape(sizes))
    torch.nn.utils.vector_to_parameters(torch.from_numpy(theta.copy()), net.parameters())
    x, y = torch.from_numpy(inputs[0]), torch.from_numpy(labels[0])
    train(net, loss, x, y)
    theirs = torch.nn.utils.parameters_to_vector(net.parameters()).detach().numpy()
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


# ------------------------------------------------------------------------------------ what measures


def busy(seconds: float) -> dict[str, Any]:
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
    return {"seconds_of_work": seconds}


def test_ratios_are_theirs_over_ours_and_a_share_is_scaled(monkeypatch: Any) -> None:
    """Here, as another process does not know a test's functions; a tenth is timed of theirs."""

    def ours(sizes: Any, folder: Path) -> Job:
        return Job(lambda: busy(0.02))

    def theirs(sizes: Any, folder: Path) -> Job:
        return Job(lambda: busy(0.01), share=0.1)

    def here(party: Party, sizes: Any, folder: Path) -> dict[str, Any]:
        return measure.measure(party.prepare(sizes, folder))

    monkeypatch.setattr(measure, "measured", here)
    monkeypatch.setattr(measure, "LONG_ENOUGH", 0.02)
    line = measure.Comparison("x", "y", ours, Party("theirs", theirs), {}, {}, limit=theirs)
    found = measure.compared(line)
    assert found["ratio"] == pytest.approx(5, rel=0.4)
    assert found["possible"] == pytest.approx(1, rel=0.4)
    absent = replace(line, theirs=Party("absent", theirs, needs="no_such_module_anywhere"))
    assert measure.compared(absent) == {"skipped": "no_such_module_anywhere is not installed"}
    assert measure.exponent((10, 100, 1000), (2, 200, 20_000)) == pytest.approx(2)


def test_memory_beyond_the_start_is_seen() -> None:
    """In a process of its own: one that has run other tests takes 20 MB from what it holds."""
    words = (
        "import numpy as np\n"
        "from experiments.speed import measure\n"
        "hungry = lambda: {'sum': float(np.ones(20 << 17).sum())}\n"
        "print(measure.measure(measure.Job(hungry))['extra_mb'])\n"
    )
    done = ended([sys.executable, "-c", words], measure.ROOT)
    assert 15 < float(done.stdout) < 60


def nothing(sizes: Any, folder: Path) -> Job:
    return Job(dict)


def test_an_engine_that_hangs_or_fails_is_ended_and_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Nothing that it started is left running."""
    engine = Party("an engine", nothing, engine=True)
    if measure.cannot(engine):
        pytest.skip(measure.cannot(engine))
    monkeypatch.setattr(measure, "PATIENCE", 1)
    hangs = f"sleep 60 & cp /proc/self/status {tmp_path}/there; sleep 61"
    monkeypatch.setattr(measure, "LOOPBACK", (*measure.LOOPBACK[:-2], hangs))
    with pytest.raises(FixConfig, match="'an engine' did not end within 1 s"):
        measure.measured(engine, {}, tmp_path)
    assert (tmp_path / "there").exists()
    left = subprocess.run(["pgrep", "-fx", "sleep 61"], capture_output=True, text=True, check=False)
    assert left.stdout == ""
    monkeypatch.setattr(measure, "LOOPBACK", ("false",))
    with pytest.raises(FixConfig, match="'an engine' ended with code 1"):
        measure.measured(engine, {}, tmp_path)


@pytest.mark.parametrize("name", [n for n, line in lines.LINES.items() if not line.theirs.engine])
def test_every_line_is_measured_at_small_sizes(name: str, tmp_path: Path) -> None:
    """All parties in this process, once; Flower's engine has ports and processes of its own."""
    line = lines.LINES[name]
    assert line.sizes.keys() == line.quick.keys()
    parties = [line.ours, line.theirs.prepare, *([line.limit] if line.limit else [])]
    for prepare in parties:
        job = prepare(line.quick, tmp_path)
        for call in (job.warm, job.before, job.run):
            if call is not None:
                call()
        assert getattr(sys.modules[prepare.__module__], prepare.__qualname__) is prepare


def test_one_line_in_processes_of_their_own() -> None:
    (each,) = (c for c in lines.EXPERIMENTS[0].cells() if c.quick and c["line"] == "mixed-model")
    found = dict(lines.EXPERIMENTS[0].run(each))
    assert json.loads(json.dumps(found)) == found
    assert found["ratio"] == pytest.approx(found["theirs_seconds"] / found["ours_seconds"])
    assert found["possible"] > found["ratio"] > 0
