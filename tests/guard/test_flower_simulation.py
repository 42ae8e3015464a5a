"""The guard in Flower's own simulation: Ray, processes, real messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

from overheard.transcript.store import Recording

pytestmark = pytest.mark.slow

pytest.importorskip("flwr", reason="Flower is not installed: pip install overheard[flower]")
pytest.importorskip("ray", reason="Ray is not installed: pip install 'flwr[simulation]'")
APP = Path(__file__).with_name("guarded_app.py")
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ADDRESS": "local",  # a Ray of its own: not one that another program has started
    "OMP_NUM_THREADS": "1",
}


def test_an_update_that_tells_is_stopped_and_the_others_go_on(
    tmp_path: Path, loopback_only: tuple[str, ...]
) -> None:
    """How the guard's figures compare with the audit's: `test_exposure`."""
    done = subprocess.run(
        [*loopback_only, sys.executable, str(APP), str(tmp_path)],
        env={**os.environ, **QUIET},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    stopped, noisy, loose = (
        json.loads((tmp_path / f"guard-{n}.json").read_text()) for n in range(3)
    )
    assert stopped["value"] == 1.0
    assert stopped["bits"] > 0.9
    assert noisy["bits"] <= 0.1 < loose["bits"] <= 0.5
    server = json.loads((tmp_path / "server.json").read_text())
    assert server["errors"] == ["refused by the guard: more of 'female' would leak than may"]
    assert server["finite"]
    assert set(Recording.open(tmp_path / "run").clients) == {"1", "2"}
