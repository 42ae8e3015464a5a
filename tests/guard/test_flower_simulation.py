"""The guard in Flower's own simulation: Ray, processes, real messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE
from scripts import load

from overheard.evaluation.audit import audit
from overheard.federation.recorders.description import describe, read_description
from overheard.transcript.store import Recording
from overheard.transcript.threat import SERVER

pytestmark = pytest.mark.slow

pytest.importorskip("flwr", reason="Flower is not installed: pip install overheard[flower]")
pytest.importorskip("ray", reason="Ray is not installed: pip install 'flwr[simulation]'")
HERE = Path(__file__).parent
QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ADDRESS": "local",  # a Ray of its own: not one that another program has started
    "OMP_NUM_THREADS": "1",
}
MUCH, LITTLE = 0.004, 1e-4


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory, loopback_only: tuple[str, ...]) -> Path:
    folder = tmp_path_factory.mktemp("guarded")
    done = subprocess.run(
        [*loopback_only, sys.executable, str(HERE / "guarded_app.py"), str(folder)],
        env={**os.environ, **QUIET},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return folder


def seen(out: Path, number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / f"guard-{number}.json").read_text())
    return found


def audited(out: Path, site: str, sd: float) -> Any:
    """The audit's finding about one client, told of the noise by the file beside the recording."""
    ready = load(HERE / "guarded_app.py").ready()
    blocks = [
        f'[[encoding]]\ncolumn = "{b.column}"\nshift = {b.shift!r}\nscale = {b.scale!r}'
        for b in ready.recipe.encoding.blocks
        if b.block == "scaled"
    ]
    target = ready.recipe.target
    text = [
        '[data]\nsource = "randhie"\n[clients]\n"1" = "site 2"\n"2" = "site 3"',
        '[model]\nname = "mlp"\nhidden = [64]\n[training]\nlearning_rate = 0.1',
        *blocks,
        f"[target]\nshift = {target.shift!r}\nscale = {target.scale!r}",
        f'[audit]\nattributes = ["female"]\n[[defence]]\nname = "gaussian"\nsd = {sd}',
    ]
    file = out / f"{site}.toml"
    file.write_text("\n".join(text) + "\n")
    described = out / f"{site} described"
    describe(Recording.open(out / "run"), read_description(file), described)
    recording = Recording.open(out / "run", described)
    record = audit(recording, SERVER, ["max_entropy"], [site], ["female"])
    (replay,) = record.replays  # the noise included: it is what chance leaves
    assert (replay.client, replay.outcome) == (site, "fits")
    assert replay.by_chance
    (found,) = record.findings
    return found


def test_an_update_that_tells_is_stopped_and_the_others_go_on(out: Path) -> None:
    assert seen(out, 0)["value"] == 1.0
    assert seen(out, 0)["bits"] > 0.9
    server = json.loads((out / "server.json").read_text())
    assert server["errors"] == ["refused by the guard: more of 'female' would leak than may"]
    assert server["finite"]
    assert set(Recording.open(out / "run").clients) == {"1", "2"}


def test_enough_noise_passes_and_the_audit_agrees(out: Path) -> None:
    guard, found = seen(out, 1), audited(out, "site 2", MUCH)
    assert guard["bits"] <= 0.1
    assert guard["low"] <= found.value <= guard["high"]
    assert found.details["bits_gained"] <= 0.1


def test_where_more_may_leak_the_audit_finds_what_the_guard_saw(out: Path) -> None:
    guard, found = seen(out, 2), audited(out, "site 3", LITTLE)
    assert 0.1 < guard["bits"] <= 0.5
    assert guard["low"] <= found.value <= guard["high"]
    assert found.low <= guard["value"] <= found.high
    assert found.value > found.majority + 0.05
