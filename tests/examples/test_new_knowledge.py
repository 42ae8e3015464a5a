"""A new kind of knowledge is one file: it is disclosed, recorded, granted and shared."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest
from federations import simulated
from scripts import load

from overheard import AuditOptions, Recording, audit, launch, observe, share, threat_named
from overheard.transcript import kind as kinds_of
from overheard.transcript.target import Target
from overheard.transcript.threat import EAVESDROPPER

pytestmark = pytest.mark.slow

FILE = Path(__file__).parents[2] / "examples" / "new_knowledge.py"
TARGET = Target("attribute", "female")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The file, imported as whoever wrote it would; what it registers is forgotten after it."""
    monkeypatch.setattr(kinds_of, "_REGISTRY", dict(kinds_of._REGISTRY))
    monkeypatch.delitem(sys.modules, "new_knowledge", raising=False)
    return load(FILE)


@pytest.fixture
def run(example: ModuleType, tmp_path: Path) -> Recording:
    return simulated(tmp_path / "run", example.CONFIG)


def test_it_is_granted_to_an_attack_in_an_audit(
    example: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = example.main(str(tmp_path))
    assert {row.attack for row in record.pooled} == {"max_entropy", "published_mean"}
    assert "published_mean: " in capsys.readouterr().out
    run = Recording.open(tmp_path / "run")
    view = observe(run, threat_named("eavesdropper", ["column mean"]), TARGET, "site 4")
    women = run.truth()["site 4"]["female"]
    assert launch(example.PublishedMean(), view, 0).choice().sum() == women.sum()
    poorer = threat_named("eavesdropper")
    without = audit(
        Recording.open(tmp_path / "run"),
        poorer,
        [example.PublishedMean(), "majority"],
        ["site 3"],
        options=AuditOptions(rounds=False),
    )
    assert {s.attack for s in without.skipped} == {"published_mean"}
    assert all("needs ColumnMean" in s.reason for s in without.skipped)


def test_of_the_clients_that_are_not_shared_nothing_is(
    example: ModuleType, run: Recording, tmp_path: Path
) -> None:
    one = run.clients[0]
    knowing = EAVESDROPPER.granting(example.ColumnMean)
    shared = share(run, "female", knowing, tmp_path / "shared", [one])
    assert "ColumnMean" in shared.kinds
    assert set(Recording.open(tmp_path / "shared").side("ColumnMean", TARGET.key)) == {one}
    poorer = share(run, "female", EAVESDROPPER, tmp_path / "less", [one])
    assert "ColumnMean" not in poorer.kinds
