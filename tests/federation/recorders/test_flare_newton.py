"""FLARE's logistic regression by Newton's method: recorded in its simulator, audited, reported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from overheard.data.dataset import Dataset
from overheard.evaluation.audit import audit
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
SITES = ("site-1", "site-2")
MODEL = {
    "name": "newton",
    "intercept": "first",
    "ridge": 1.0,
    "step": 0.8,
    "wire_names": {"coefficients": "numpy_key"},
}


def described(recording: Recording, folder: Path) -> Recording:
    """The recording with what its owner knows of the sites' people beside it."""
    sys.path.insert(0, str(HERE))
    try:
        from flare_newton import COLUMNS, people
    finally:
        sys.path.remove(str(HERE))
    tables = [people(site) for site in SITES]
    x = np.concatenate([inputs for inputs, _ in tables])
    columns = {name: x[:, k] for k, name in enumerate(COLUMNS)}
    label = np.concatenate([labels for _, labels in tables])
    records = Records({**columns, "y": label, "site": np.repeat(SITES, 60)})
    dataset = Dataset(
        name="people", records=records, client="site", target="y", task="classification",
        sensitive=("s",), origin="generated", licence="none",
    )  # fmt: skip
    config = {"data": {"source": "file", "scale": "none"}, "model": MODEL}
    ready = plan(parse_config({**config, "training": {"rounds": 1}}), dataset)
    about = {**recording.about, "clients": list(SITES)}
    with SideWriter(folder, SideHeader(recording.digest, {}, about)) as writer:
        write_knowledge(writer, ready)
    return recording.described_in(folder)


def test_a_newton_job_ends_in_a_report(flare: Callable[[str], Path]) -> None:
    place = flare("flare_newton.py")
    assert verify(place / "run").sound
    recording = described(Recording.open(place / "run"), place / "beside")
    record = audit(recording, EAVESDROPPER, ["linear", "majority", "max_entropy"])
    assert [r.outcome for r in record.replays] == ["fits"] * 2
    found = [f for f in record.findings if f.attack == "linear"]
    assert [f.value for f in found] == [1.0, 1.0]
    assert max(f.majority for f in found) < 0.8
    assert found[0].details["rounds_heard"] == 5
    write_report(record, place / "report.html")
    assert "linear" in (place / "report.html").read_text()
