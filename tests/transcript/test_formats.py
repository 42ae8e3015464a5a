"""A recording of this format that was made elsewhere and earlier is read; other formats are not.

``recorded/`` was made by `overheard simulate`: three rounds, two clients, nine people each.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from overheard.errors import FixRecording
from overheard.evaluation.record import read_audit
from overheard.transcript.store import FORMAT, Recording
from overheard.transcript.verify import verify

RECORDED = Path(__file__).with_name("recorded")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_it_opens_is_sound_and_is_audited_without_a_change(workplace: Any) -> None:
    before = contents(RECORDED)
    found, recording = verify(RECORDED), Recording.open(RECORDED)
    assert found.sound, found
    assert found.rounds == 3
    assert recording.header["format"] == FORMAT
    assert recording.closed
    assert recording.targets == ("attribute.s",)
    assert {c: len(table) for c, table in recording.truth().items()} == {"site 0": 9, "site 1": 9}
    chosen = ["majority", "exact_linear", "max_entropy"]
    attacks = [word for name in chosen for word in ("--attack", name)]
    done = workplace.overheard("audit", str(RECORDED), "--out", "audit", *attacks)
    assert done.returncode == 0, done.stderr
    record = read_audit(workplace.path / "audit" / "audit.json")
    assert (record.run.rounds, record.run.damage) == (3, ())
    assert {f.client for f in record.findings} == {"site 0", "site 1"}
    assert {f.attack for f in record.findings} == set(chosen)
    assert contents(RECORDED) == before


@pytest.mark.parametrize("other", [1, 3, "overheard 2", None, [FORMAT]])
def test_another_format_is_refused_in_one_line(tmp_path: Path, forge: Any, other: Any) -> None:
    run = tmp_path / "run"
    shutil.copytree(RECORDED, run)
    forge(run / "wire", lambda entries: entries[0].update(format=other))
    with pytest.raises(FixRecording) as caught:
        Recording.open(run)
    text = str(caught.value)
    assert f"format {other!r}, " in text
    assert f"reads {FORMAT} only" in text
    assert "\n" not in text
