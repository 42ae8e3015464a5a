"""Hits beside an audit: only where asked for, for the owner alone; what lies is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.robustness import compare as script
from overheard.errors import FixRecording
from overheard.evaluation.compare import HITS, about, hits_json, read_hits
from overheard.evaluation.record import read_audit
from overheard.evaluation.scoring import Scored

pytestmark = pytest.mark.slow

FEW = ("--attack", "max_entropy", "--attack", "majority", "--target", "s")


def test_they_are_kept_where_asked_for_and_pair_records(workplace: Any) -> None:
    workplace.overheard("simulate", "federation.toml", "--out", "run")
    done = workplace.overheard("audit", "run", "--out", "one", "--keep-hits", *FEW)
    assert done.returncode == 0, done.stderr
    assert "hits.json: which records were guessed right" in done.stdout
    one = workplace.path / "one"
    assert sorted(p.name for p in one.iterdir()) == ["audit.json", HITS, "report.html"]
    assert (one / HITS).stat().st_mode & 0o777 == 0o600
    audit = read_audit(one / "audit.json")
    hits = read_hits(one / HITS, audit)
    assert len(hits) == len(audit.findings)
    for found in audit.findings:
        guessed = hits[about(found)]
        assert guessed.right.mean() == pytest.approx(found.value)
    assert len({guessed.records for guessed in hits.values()}) == 3  # one for each client
    done = workplace.overheard("compare", "one/audit.json", "one/audit.json", "--json")
    assert done.returncode == 0
    (row,) = json.loads(done.stdout)["rows"]
    assert row["paired"] == "records"
    assert (row["difference"], row["low"] < 0 < row["high"]) == (0.0, True)
    # without asking there are none, and clients are paired
    done = workplace.overheard("audit", "run", "--out", "two", *FEW)
    assert done.returncode == 0, done.stderr
    assert {p.name for p in (workplace.path / "two").iterdir()} == {"audit.json", "report.html"}
    done = workplace.overheard("compare", "one/audit.json", "two/audit.json")
    assert done.returncode == 0
    assert "records could not be paired: no hits.json (after)" in " ".join(done.stdout.split())
    # what learned most before must run again
    done = workplace.overheard("audit", "run", "--out", "three", *FEW[2:])
    assert done.returncode == 0, done.stderr
    done = workplace.overheard("compare", "one/audit.json", "three/audit.json")
    assert done.returncode == 1
    assert "not measured now: max_entropy, which learned most about s before" in done.stderr


@pytest.fixture
def kept(workplace: Any) -> Any:
    """``one/``: an audit of two clients of 30 records, made by hand, with its hits."""
    world = replace(script.RISEN[0], clients=2, records=30)
    (audit, hits), _ = script.drawn(world, np.random.default_rng(0))
    folder = workplace.path / "one"
    folder.mkdir()
    (folder / "audit.json").write_text(audit.to_json())
    scored = [
        Scored(f, hits[about(f)].right.astype(np.float64), None, None, "the same")
        for f in audit.findings
    ]
    (folder / HITS).write_text(hits_json(scored))
    return workplace


def damaged(folder: Path, **changes: Any) -> None:
    content = json.loads((folder / HITS).read_text())
    content["lines"][0] |= changes
    (folder / HITS).write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"about": ["other", "attribute", "s", "0"]}, "line 0 is not what the audit beside it"),
        ({"right": "1"}, "line 0 is not what the audit beside it found"),
        ({"right": "0" * 30}, "line 0 is not what the audit beside it found"),
        ({"right": ""}, "lines.0.right: String should match"),
        ({"right": "AAAAAA=="}, "lines.0.right: String should match"),
        ({"extra": 1}, "lines.0.extra: Extra inputs"),
    ],
)
def test_a_file_that_lies_is_refused_in_a_line(kept: Any, changes: Any, complaint: str) -> None:
    one = kept.path / "one"
    damaged(one, **changes)
    with pytest.raises(FixRecording, match=complaint):
        read_hits(one / HITS, read_audit(one / "audit.json"))
    done = kept.overheard("compare", "one/audit.json", "one/audit.json")
    assert done.returncode in (1, 2)
    assert len(done.stderr.splitlines()) == 1


def test_there_may_be_none_but_not_a_trap(kept: Any) -> None:
    audit = read_audit(kept.path / "one" / "audit.json")
    assert read_hits(kept.path / HITS, audit) == {}
    (kept.path / HITS).symlink_to(kept.path / "nowhere")
    with pytest.raises(FixRecording, match="cannot be read"):
        read_hits(kept.path / HITS, audit)
