"""A damaged recording is refused, or audited without what is damaged, and every report says so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

QUICK = ["--attack", "majority", "--attack", "global_model", "--no-rounds"]
AUDIT = ["audit", "run", "--out", "out", *QUICK]


def flip(path: Path, at: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[at] ^= 1
    path.write_bytes(raw)


@pytest.fixture
def damaged(workplace: Any) -> Any:
    """Two rounds of eight are gone: one by its file, one by its line of the index."""
    wire = workplace.path / "run" / "wire"
    flip(wire / "round-000002.safetensors", 400)
    lines = (wire / "index.jsonl").read_bytes().splitlines(keepends=True)
    flip(wire / "index.jsonl", sum(map(len, lines[:6])) + 80)
    return workplace


def test_it_is_refused_and_nothing_is_left(damaged: Any) -> None:
    before = damaged.contents()
    done = damaged.overheard(*AUDIT)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: run/wire/index.jsonl: line 7 is damaged")
    assert "--ignore-damage audits what is left of a damaged recording" in line
    assert damaged.contents() == before


def test_told_to_go_on_every_report_says_what_is_missing(damaged: Any) -> None:
    run = {n: b for n, b in damaged.contents().items() if n.startswith("run")}
    done = damaged.overheard(*AUDIT, "--ignore-damage")
    assert done.returncode == 0, done.stderr
    missing = [
        "wire/index.jsonl: line 7 is damaged; what it listed is left out",
        "wire/round-000002.safetensors: its bytes do not match the index; round 2 is left out",
    ]
    lines = [line for line in done.stderr.splitlines() if not line.startswith("auditing ")]
    assert [line.removeprefix("damaged: ") for line in lines] == missing
    assert "The recording is damaged; 2 part(s) of it were left out." in done.stdout
    record = json.loads((damaged.path / "out" / "audit.json").read_text())
    assert record["run"]["damage"] == missing
    assert record["run"]["rounds"] == 6
    assert record["run"]["recording"] == "run"
    assert {p.name for p in (damaged.path / "out").iterdir()} == {"audit.json", "report.html"}
    assert {n: b for n, b in damaged.contents().items() if n.startswith("run")} == run
    for file in ("page.html", "page.md", "page.json"):
        done = damaged.overheard("report", "out/audit.json", "--out", file)
        assert done.returncode == 0, done.stderr
    told = json.loads((damaged.path / "page.json").read_text())
    assert told["missing"] == missing
    page = (damaged.path / "page.html").read_text()
    text = (damaged.path / "page.md").read_text()
    for words in (page, text):
        assert "What is missing" in words
        assert "2 parts of it were left out" in words
        assert "round 2 is left out" in words
        assert words.index("What is missing") < words.index("Verdict", words.index("missing"))


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("truth/0001-records.safetensors", "lists no records"),
        ("side/0001-localtraining.json", "has no training recipe"),
        ("wire/index.jsonl", "the header, is damaged; nothing can be made"),
    ],
)
def test_without_what_an_audit_needs_it_says_so(workplace: Any, file: str, said: str) -> None:
    flip(workplace.path / "run" / file, 70)
    before = workplace.contents()
    done = workplace.overheard(*AUDIT, "--ignore-damage")
    assert done.returncode == 1
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert workplace.contents() == before
