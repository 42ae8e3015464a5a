from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from overheard.transcript.store import Recording

pytestmark = pytest.mark.slow


def as_checkpoints(run: Path, folder: Path, after: bool = False) -> None:
    """The messages of a recording as a folder of safetensors files."""
    recording = Recording.open(run)
    for entry in recording.rounds:
        observed = recording.messages(entry, entry.spans)
        for (way, who), message in zip(entry.spans, observed, strict=True):
            arrays = {n: np.ascontiguousarray(a) for n, a in message.items()}
            number = entry.number - (after and way == "sent")
            place = folder / f"round_{number + 1:04d}"
            place.mkdir(parents=True, exist_ok=True)
            save_file(arrays, place / f"{who or 'global'}.safetensors")


FILLED = {
    'path = "records.csv"': 'path = "../people.csv"',
    'client = "client"': 'client = "at"',
    'target = "label"': 'target = "y"',
    "attributes = []": 'attributes = ["s"]',
}


def fill_in(file: Path) -> None:
    text = file.read_text()
    for old, new in FILLED.items():
        assert old in text
        text = text.replace(old, new)
    file.write_text(text)


def imported(workplace: Any) -> Path:
    """Checkpoints that were imported, and the description of them, filled in."""
    as_checkpoints(workplace.path / "run", workplace.path / "checkpoints")
    workplace.overheard("import", "checkpoints", "--out", "imported")
    workplace.overheard("init", "imported")
    file = workplace.path / "imported" / "audit.toml"
    fill_in(file)
    return file


def findings(file: Path) -> Any:
    record = json.loads(file.read_text())
    return [
        {k: f[k] for k in ("attack", "client", "attribute", "value", "n", "majority")}
        for f in record["findings"]
    ]


ATTACKS = ["--attack", "majority", "--attack", "max_entropy", "--attack", "exact_linear"]


def test_checkpoints_audit_as_the_simulation_they_came_from(workplace: Any) -> None:
    """import, init, audit: the same findings as for the recording that describes itself."""
    as_checkpoints(workplace.path / "run", workplace.path / "checkpoints")
    done = workplace.done("import", "checkpoints", "--out", "imported")
    assert "rounds     8" in done.stdout
    refused = workplace.refused("audit", "imported", "--out", "early")
    assert "`overheard init imported` writes imported/audit.toml" in refused
    assert workplace.overheard("init", "imported").returncode == 0
    assert "exists already" in workplace.refused("init", "imported")
    fill_in(workplace.path / "imported" / "audit.toml")
    outside = workplace.refused("audit", "imported", "--out", "one", *ATTACKS)
    assert "names '../people.csv', which is outside of the recording" in outside
    assert "say so with --with imported/audit.toml" in outside
    vouched = ["--with", "imported/audit.toml"]
    one = workplace.done("audit", "imported", *vouched, "--out", "one", *ATTACKS)
    assert "Replay check passed for 3 of 3 clients" in one.stdout
    workplace.done("audit", "run", "--out", "other", *ATTACKS)
    mine, theirs = (findings(workplace.path / n / "audit.json") for n in ("one", "other"))
    assert len(mine) == len(theirs) == 9
    for a, b in zip(mine, theirs, strict=True):
        assert a == {**b, "value": pytest.approx(b["value"], abs=1e-9)}
    replays = json.loads((workplace.path / "one" / "audit.json").read_text())["replays"]
    assert [replay["outcome"] for replay in replays] == ["fits"] * 3
    assert "describes itself already" in workplace.refused("audit", "run", *vouched, "--out", "b")


def test_code_needs_trust(workplace: Any) -> None:
    file = imported(workplace)
    text = file.read_text()
    assert 'name = "linear"' in text
    text = text.replace('name = "linear"', 'factory = "trap_of_this_test:make"')
    file.write_text(text.replace("../people.csv", "people.csv"))
    shutil.copy(workplace.path / "people.csv", file.with_name("people.csv"))
    (workplace.path / "trap_of_this_test.py").write_text("raise ImportError('it was run')")
    vouched = ["audit", "imported", "--with", "imported/audit.toml", "--out", "a"]
    refused = workplace.refused(*vouched)
    assert "--trust-code" in refused
    assert "it was run" not in refused
    # what lay in the recording is a stranger's, whatever is trusted
    found = workplace.refused("audit", "imported", "--out", "a", "--trust-code")
    assert "say so with --with imported/audit.toml" in found
    assert "it was run" not in found
    assert "cannot be found (it was run)" in workplace.refused(*vouched, "--trust-code")
    assert not (workplace.path / "a").exists()


def test_globals_that_are_what_a_round_ended_in(workplace: Any) -> None:
    as_checkpoints(workplace.path / "run", workplace.path / "after", after=True)
    (workplace.path / "p.toml").write_text('sent_is = "after"\n[weights]\n"site 0" = 30\n')
    workplace.done("import", "after", "--out", "imported", "--pattern", "p.toml")
    before, after = (Recording.open(workplace.path / name) for name in ("run", "imported"))
    assert len(after.rounds) == len(before.rounds)
    for client in before.clients:
        one, other = ([arrays for _, *arrays in r.releases(client)] for r in (before, after))
        np.testing.assert_equal(one, other)
    assert all(r.weights.get("site 0", 30) == 30 for r in after.rounds)


@pytest.mark.parametrize(
    ("pattern", "complaint"),
    [
        ('returned = "r/{client}.safetensors"', "must have {client} and {round}"),
        ('sent = "x_{round}.safetensors"', "round 1 has no file like 'x_{round}.safetensors'"),
        ('returned = "{round}-{client}"', "no file is named like '{round}-{client}'"),
        ("sent = 5", "sent: Input should be a valid string"),
        ("sent = ", "is not TOML"),
    ],
)
def test_patterns_that_do_not_fit(workplace: Any, pattern: str, complaint: str) -> None:
    as_checkpoints(workplace.path / "run", workplace.path / "checkpoints")
    (workplace.path / "p.toml").write_text(pattern)
    done = workplace.refused("import", "checkpoints", "--out", "new", "--pattern", "p.toml")
    assert complaint in done
    assert not (workplace.path / "new").exists()


def test_a_checkpoint_that_is_damaged_keeps_the_rounds_before(workplace: Any) -> None:
    as_checkpoints(workplace.path / "run", workplace.path / "checkpoints")
    (workplace.path / "checkpoints" / "round_0005" / "global.safetensors").write_bytes(b"nonsense")
    done = workplace.refused("import", "checkpoints", "--out", "new")
    assert "round_0005/global.safetensors: cannot be read as safetensors" in done
    recording = Recording.open(workplace.path / "new")
    assert [r.number for r in recording.rounds] == [1, 2, 3, 4]
    assert not recording.closed
