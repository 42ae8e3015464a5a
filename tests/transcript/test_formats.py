"""Recordings of every format version there ever was open, are sound and can be audited.

Each was made by `overheard simulate` of its time: three rounds, two clients, nine people each.
``v2-sums`` is the same federation under secure aggregation, which version 1 could not record.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from overheard.transcript.store import FORMAT, READABLE, Recording
from overheard.transcript.verify import verify

FORMATS = Path(__file__).with_name("formats")
NAMES = sorted(p.name for p in FORMATS.iterdir() if p.is_dir())


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_there_is_one_of_every_version() -> None:
    versions = {int(name.partition("-")[0].removeprefix("v")) for name in NAMES}
    assert versions == set(READABLE)
    assert max(versions) == FORMAT


@pytest.mark.parametrize("name", NAMES)
def test_it_opens_and_is_sound(name: str) -> None:
    path = FORMATS / name
    found = verify(path)
    assert found.sound, found
    assert found.rounds == 3
    recording = Recording.open(path)
    assert recording.header["format"] == int(name[1])
    assert recording.closed
    assert recording.clients == ("site 0", "site 1")
    assert recording.targets == ("attribute.s",)
    assert {client: len(table) for client, table in recording.truth().items()} == {
        "site 0": 9,
        "site 1": 9,
    }
    assert all(entry.aggregated == (name == "v2-sums") for entry in recording.rounds)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_audited_and_not_changed(name: str, workplace: Any) -> None:
    before = contents(FORMATS / name)
    words = ["audit", str(FORMATS / name), "--out", "audit", "--attack", "majority"]
    if name == "v2-sums":
        words += ["--attack", "sum_decode", "--threat", "secure-server"]
    else:
        words += ["--attack", "exact_linear", "--attack", "max_entropy"]
    done = workplace.overheard(*words)
    assert done.returncode == 0, done.stderr
    from overheard.evaluation.record import read_audit

    record = read_audit(workplace.path / "audit" / "audit.json")
    assert record.run.rounds == 3
    assert record.run.damage == ()
    assert {f.client for f in record.findings} == {"site 0", "site 1"}
    assert {f.attack for f in record.findings} >= {"majority"}
    assert contents(FORMATS / name) == before


def test_the_same_federation_gives_the_same_numbers_in_every_version(workplace: Any) -> None:
    from overheard.evaluation.record import read_audit

    found = []
    for name in ("v1", "v2", "v3"):
        words = ["audit", str(FORMATS / name), "--out", name, "--attack", "max_entropy"]
        assert workplace.overheard(*words).returncode == 0
        record = read_audit(workplace.path / name / "audit.json")
        found.append([(f.client, f.value, f.low, f.high) for f in record.findings])
    assert found[0] == found[1] == found[2]
