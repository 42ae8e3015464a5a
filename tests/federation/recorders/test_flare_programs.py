"""FLARE's Newton steps, boosted trees and statistics: recorded in its simulator, audited, reported.

Its histogram-based XGBoost is not here: it needs an XGBoost that was built with federated learning.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from scripts import load

from overheard.data.dataset import Dataset
from overheard.evaluation.audit import audit
from overheard.evaluation.record import Audit
from overheard.federation.config import parse_config
from overheard.federation.disclosure import write_knowledge
from overheard.federation.plan import plan
from overheard.programs.records import Records
from overheard.report.html import write_report
from overheard.transcript.side import SideHeader, SideWriter
from overheard.transcript.store import Recording
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.verify import verify

HERE = Path(__file__).parent
MODELS: dict[str, dict[str, Any]] = {
    "newton": {
        "intercept": "first", "ridge": 1.0, "step": 0.8, "wire_names": {"coefficients": "numpy_key"}
    },
    # FLARE divides its learning rate, 0.1, by the number of sites
    "xgboost": {"eta": 0.05, "max_depth": 4},
    "statistics": {
        "tables": [{"by": ["s"]}, {"kind": "sum", "of": "s"}], "bins": {"s": [0.5]}, "decimals": 4,
        "wire_names": {"0.counts": "histogram/people/s", "1.numbers": "sum/people/s"},
    },
}  # fmt: skip
JOBS = {"newton": "newton", "trees": "xgboost", "statistics": "statistics"}


def jobs(out: Path, start: tuple[str, ...], kinds: list[str]) -> None:
    """Run these jobs at once: a simulator mostly waits."""
    running = {}
    for kind in kinds:
        (out / kind).mkdir()
        words = [*start, sys.executable, str(HERE / "flare_programs.py"), kind, str(out / kind)]
        with (out / f"{kind}.log").open("w") as log:
            running[kind] = subprocess.Popen(words, stdout=log, stderr=subprocess.STDOUT)
    for kind, process in running.items():
        assert process.wait(400) == 0, (out / f"{kind}.log").read_text()[-3000:]


def described(recording: Recording, folder: Path, name: str, script: ModuleType) -> Recording:
    """The recording with what its owner knows of the sites' people beside it."""
    tables = [script.people(site) for site in script.SITES]
    x = np.concatenate([inputs for inputs, _ in tables])
    columns = {name: x[:, k] for k, name in enumerate(script.COLUMNS)}
    label = np.concatenate([labels for _, labels in tables])
    records = Records({**columns, "y": label, "site": np.repeat(script.SITES, 60)})
    dataset = Dataset(
        name="people", records=records, client="site", target="y", task="classification",
        sensitive=("s",), origin="generated", licence="none",
    )  # fmt: skip
    config = {"data": {"source": "file", "scale": "none"}, "model": {"name": name, **MODELS[name]}}
    ready = plan(parse_config({**config, "training": {"rounds": 1}}), dataset)
    about = {**recording.about, "clients": list(script.SITES)}
    with SideWriter(folder, SideHeader(recording.digest, {}, about)) as writer:
        write_knowledge(writer, ready)
    return recording.described_in(folder)


def reported(out: Path, kind: str, script: ModuleType) -> Audit:
    """The audit of a job's recording, which is sound, fits, and ends in a page."""
    assert verify(out / kind / "run").sound
    bare = Recording.open(out / kind / "run")
    assert [entry.number for entry in bare.rounds] == list(range(script.ROUNDS[kind]))
    recording = described(bare, out / f"{kind}-beside", JOBS[kind], script)
    record = audit(recording, EAVESDROPPER, ["linear", "majority", "max_entropy"])
    assert [r.outcome for r in record.replays] == ["fits"] * 2
    write_report(record, out / f"{kind}.html")
    assert "linear" in (out / f"{kind}.html").read_text()
    return record


def test_jobs_that_train_no_network_end_in_reports(
    tmp_path: Path, loopback_only: tuple[str, ...]
) -> None:
    if importlib.util.find_spec("nvflare") is None:
        pytest.skip("NVIDIA FLARE is not installed: pip install overheard[nvflare]")
    script = load(HERE / "flare_programs.py")
    there = importlib.util.find_spec("xgboost") is not None
    kinds = ["newton", "statistics", *(["trees"] if there else [])]
    jobs(tmp_path, loopback_only, kinds)
    found = {
        kind: [f for f in reported(tmp_path, kind, script).findings if f.attack == "linear"]
        for kind in kinds
    }
    assert [f.value for f in found["newton"]] == [1.0, 1.0]
    assert max(f.majority for f in found["newton"]) < 0.8
    # a histogram of one column tells how many, and not who
    assert [f.value for f in found["statistics"]] == [f.majority for f in found["statistics"]]
    assert {f.details["rounds_heard"] for f in found["statistics"]} == {2}
    if not there:
        pytest.skip("trees need overheard[xgboost]; the other two jobs were checked")
    heard = list(Recording.open(tmp_path / "trees/run").releases("site-1"))
    assert list(heard[3][1]) == ["model_data.0", "model_data.1"]  # only what is new is sent
    assert b'"sum_hessian": [1.0, 1.0' in heard[3][2]["model_data"].tobytes()  # masked by FLARE
    for finding in found["trees"]:
        assert finding.sure.certain_right == finding.sure.certain > 0
