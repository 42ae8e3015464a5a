"""Flower's XGBoost strategies, recorded by the same line and audited to a report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scripts import load
from typer.testing import CliRunner

from overheard.cli import app as cli
from overheard.errors import FixConfig
from overheard.evaluation.audit import audit
from overheard.federation.recorders.description import describe, read_description
from overheard.federation.recorders.template import write_template
from overheard.report import render
from overheard.transcript.store import Recording
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.verify import verify

pytest.importorskip("flwr", reason="Flower is not installed: pip install overheard[flower]")
pytest.importorskip("xgboost", reason="needs overheard[xgboost]")
HERE = Path(__file__).parent
DESCRIPTION = """
[data]
source = "file"
path = "people.csv"
client = "who"
target = "rich"
task = "classification"

[clients]
{clients}

[model]
name = "xgboost"
eta = 0.1
max_depth = 6
aggregation = "{aggregation}"

{blocks}

[target]
classes = [0.0, 1.0]

[audit]
attributes = ["sex"]
"""


here, app = load(HERE / "conftest.py", "recorders_conftest"), load(HERE / "flower_trees.py")


def described(place: Path, aggregation: str) -> Recording:
    """The recording with what an auditor writes beside it."""
    rows = [[f"c{p}", *row] for p in range(len(here.NODES)) for row in app.people(p).tolist()]
    lines = [",".join(["who", *app.COLUMNS]), *(",".join(map(str, row)) for row in rows)]
    (place / "people.csv").write_text("\n".join(lines) + "\n")
    names = "\n".join(f'"{node}" = "c{p}"' for p, node in enumerate(here.NODES))
    blocks = "\n".join(f'[[encoding]]\ncolumn = "{c}"' for c in app.COLUMNS[:-1])
    text = DESCRIPTION.format(clients=names, aggregation=aggregation, blocks=blocks)
    (place / "audit.toml").write_text(text)
    recording = Recording.open(place / "run")
    describe(recording, read_description(place / "audit.toml"), place / "described")
    return recording.described_in(place / "described")


def test_bagging_is_recorded_and_audited(tmp_path: Path) -> None:
    from flwr.serverapp.strategy import FedXgbBagging

    from overheard.flower import record

    strategy = FedXgbBagging(fraction_train=1.0, fraction_evaluate=0.0, min_available_nodes=4)
    server = app.server(lambda: record(strategy, tmp_path / "run"), rounds=10)
    server(here.in_process_grid(app.client_app()), here.context())
    assert verify(tmp_path / "run").sound
    bare = Recording.open(tmp_path / "run")
    assert bare.payload == "release"
    heard = list(bare.releases(str(here.NODES[0])))
    assert len(heard) == 10
    assert heard[0][1]["0"].tobytes() == b""
    assert heard[1][1]["0"].tobytes().count(b'"tree_param"') == 4  # everybody's tree
    recording = described(tmp_path, "bagging")
    found = audit(recording, EAVESDROPPER, ["linear"], ["c0"])
    assert {r.outcome for r in found.replays} == {"fits"}
    (finding,) = found.findings
    assert finding.value > max(finding.majority, 0.85)
    assert finding.sure.certain_right == finding.sure.certain > 0.5 * app.PEOPLE
    assert "sex" in render(found)
    words = ["audit", str(tmp_path / "run"), "--with", str(tmp_path / "audit.toml")]
    words += ["--client", "c0", "--attack", "linear", "--trust-code", "--no-rounds"]
    done = CliRunner().invoke(cli, [*words, "--out", str(tmp_path / "audit")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "audit" / "audit.json").exists()


def test_cyclic_is_recorded_and_audited(tmp_path: Path) -> None:
    from flwr.serverapp.strategy import FedXgbCyclic

    from overheard.flower import record

    strategy = FedXgbCyclic(fraction_evaluate=0.0, min_available_nodes=4)
    server = app.server(lambda: record(strategy, tmp_path / "run"), rounds=16)
    server(here.in_process_grid(app.client_app(cyclic=True)), here.context())
    assert verify(tmp_path / "run").sound
    recording = described(tmp_path, "cyclic")
    found = audit(recording, EAVESDROPPER, ["linear"], ["c1"])
    (finding,) = found.findings
    assert finding.details["rounds_heard"] == 4
    assert finding.sure.certain_right == finding.sure.certain
    assert not found.failed


def test_networks_and_programs_are_described_as_what_they_are(tmp_path: Path) -> None:
    from overheard.transcript.store import Recorder

    with Recorder(tmp_path / "run", "model", {}) as recorder:
        recorder.round(0, {"w": np.zeros((1, 4))}, {str(here.NODES[0]): {"w": np.zeros((1, 4))}})
    with pytest.raises(FixConfig, match="holds models of a network"):
        described(tmp_path, "bagging")
    text = (tmp_path / "audit.toml").read_text()
    (tmp_path / "audit.toml").write_text(text + "\n[training]\nlearning_rate = 0.1\n")
    with pytest.raises(FixConfig, match=r"leave \[training\]"):
        read_description(tmp_path / "audit.toml")


def test_the_template_of_trees_names_their_program(tmp_path: Path) -> None:
    from overheard.transcript.store import Recorder

    with Recorder(tmp_path / "run", "release", {}) as recorder:
        tree = {"0": np.frombuffer(b"{}", dtype=np.uint8)}
        recorder.round(1, {"0": np.zeros(0, dtype=np.uint8)}, {"a": tree})
    text = write_template(tmp_path / "run").read_text()
    assert 'name = "xgboost"' in text
    assert "[training]" not in text
