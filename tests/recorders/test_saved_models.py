"""Models of boosted trees that were saved as files: imported as they are, described, audited."""

from __future__ import annotations

from pathlib import Path

import pytest
from federations import generated_people, recorded
from typer.testing import CliRunner

from overheard.cli import app as cli
from overheard.errors import FixData
from overheard.evaluation.audit import audit
from overheard.evaluation.record import read_audit
from overheard.programs.families.xgboost import model_bytes
from overheard.recorders.folder import Pattern, import_folder
from overheard.transcript.store import Recording
from overheard.transcript.threat import EAVESDROPPER

pytestmark = pytest.mark.slow

FUZZED = Path(__file__).parents[1] / "fuzz/corpus/trees/classes.json"
DESCRIPTION = """
[data]
source = "file"
path = "people.csv"
client = "at"
target = "y"
[model]
name = "xgboost"
objective = "reg:squarederror"
max_depth = 4
[audit]
attributes = ["s"]
"""


def test_they_are_imported_as_they_are(tmp_path: Path) -> None:
    """The first round begins with no model; a later one must say which."""
    how = Pattern(
        sent="round_{round}/global.json", returned="round_{round}/{client}.json", payload="release"
    )
    raw = FUZZED.read_bytes()
    for number in (1, 2):
        (tmp_path / f"saved/round_{number}").mkdir(parents=True)
        (tmp_path / f"saved/round_{number}/a.json").write_bytes(raw)
    with pytest.raises(FixData, match="round 2 has no file"):
        import_folder(tmp_path / "saved", tmp_path / "refused", how)
    (tmp_path / "saved/round_2/global.json").write_bytes(raw)
    assert import_folder(tmp_path / "saved", tmp_path / "run", how) == 2
    (_, none, first), (_, sent, _) = Recording.open(tmp_path / "run").releases("a")
    assert none["model"].tobytes() == b""
    assert first["model"].tobytes() == sent["model"].tobytes() == raw


@pytest.mark.parametrize("form", ["json", "ubj"])
def test_they_are_audited_like_the_messages_that_they_were(tmp_path: Path, form: str) -> None:
    xgboost = pytest.importorskip("xgboost", reason="needs overheard[xgboost]")
    model = {"name": "xgboost", "objective": "reg:squarederror", "max_depth": 4}
    run = recorded(tmp_path / "heard", model, clients=2, people=40, rounds=4, participation=1.0)
    for client in run.clients:
        for entry, sent, returned in run.releases(client):
            place = tmp_path / f"saved/round_{entry.number}"
            place.mkdir(parents=True, exist_ok=True)
            for name, message in (("global", sent), (client, returned)):
                if raw := model_bytes(message, 0):
                    booster = xgboost.Booster()
                    booster.load_model(bytearray(raw))
                    (place / f"{name}.{form}").write_bytes(booster.save_raw(form))
    (tmp_path / "pattern.toml").write_text(
        f'payload = "release"\nsent = "round_{{round}}/global.{form}"\n'
        f'returned = "round_{{round}}/{{client}}.{form}"\n'
    )
    words = ["import", str(tmp_path / "saved"), "--pattern", str(tmp_path / "pattern.toml")]
    done = CliRunner().invoke(cli, [*words, "--out", str(tmp_path / "run")])
    assert done.exit_code == 0, done.output
    columns = generated_people(2, 40, 3, 0).records.columns
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    lines = [",".join(columns), *(",".join(map(repr, row)) for row in rows)]
    (tmp_path / "people.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "audit.toml").write_text(DESCRIPTION)
    words = ["audit", str(tmp_path / "run"), "--with", str(tmp_path / "audit.toml")]
    words += ["--attack", "linear", "--no-rounds", "--out", str(tmp_path / "audit")]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    again, before = (
        read_audit(tmp_path / "audit/audit.json"),
        audit(run, EAVESDROPPER, ["max_entropy"]),
    )
    assert [r.outcome for r in again.replays] == ["fits"] * 2
    assert [f.value for f in again.findings] == [f.value for f in before.findings]
    assert min(f.value for f in again.findings) > 0.8
