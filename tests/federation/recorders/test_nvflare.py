from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from overheard.transcript.observe import in_the_clear
from overheard.transcript.store import Recording
from overheard.transcript.verify import verify

HERE = Path(__file__).parent


def test_simulator(tmp_path: Path, loopback_only: tuple[str, ...]) -> None:
    """The global model is as without a recorder, and every digest as the site had it."""
    if importlib.util.find_spec("nvflare") is None:
        pytest.skip("NVIDIA FLARE is not installed: pip install overheard[nvflare]")
    done = subprocess.run(
        [*loopback_only, sys.executable, str(HERE / "flare_job.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    assert verify(tmp_path / "run").sound
    recording = Recording.open(tmp_path / "run")
    recorded = {
        f"{who}-{digest}"
        for heard in recording.rounds
        for (way, who), (_, _, digest) in heard.spans.items()
        if way == "returned"
    }
    assert recorded == {p.name for p in (tmp_path / "digests").iterdir()}
    assert len(recorded) == 4
    with np.load(tmp_path / "expected.npz") as want, np.load(tmp_path / "final.npz") as after:
        assert set(want) == set(after) == {"w", "b"}
        for name in want:
            np.testing.assert_array_equal(want[name], after[name])
    assert [r.weights for r in recording.rounds] == [{"site-1": 1.0, "site-2": 3.0}] * 2
    notes = in_the_clear(recording).sentences()
    assert any("broadcast tells every site the weight" in note for note in notes)
    assert any("'weight told to all sites' of 2 client(s)" in note for note in notes)
    assert any("'loss'" in note for note in notes)
