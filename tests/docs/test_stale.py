"""What is listed as older than its code is so, and nothing else."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import stale

from benchmarks.runner import provenance as benches
from benchmarks.runner.catalogue import entries, growths
from overheard.sweep.grid import cell_code
from papers.common import provenance
from papers.common.catalogue import experiment_named
from papers.common.rows import Reproduction, Row

BEFORE = 3620
"""Rows measured before any said by which code; there can only be fewer."""
PROP1 = experiment_named("driouich2022-prop1")
HOW = "overheard reproduce driouich2022-prop1 --seeds 1"
SWEEP: dict[str, Any] = {"base": {"data": {"source": "randhie"}}, "attacks": ["majority"]}


@pytest.fixture
def put(tmp_path: Path) -> Any:
    def write(name: str, content: Any) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content), encoding="utf-8")

    return write


def ages(root: Path) -> dict[str, str]:
    return {result.what: result.age for result in stale.results(root)}


def test_rows_of_experiments(tmp_path: Path, put: Any) -> None:
    rows = tuple(Row("s", "c", m, "accuracy", 0.5) for m in ("local", "max_entropy", "gumbel"))
    outcome = Reproduction(PROP1.name, PROP1.paper, rows, "made", (), False, 1)
    local, ours, gumbel = provenance.stamped(PROP1, outcome, HOW).rows
    changed = (local, replace(ours, code="of last year"), replace(gumbel, code=None, command=None))
    put("papers/x/a.json", asdict(replace(outcome, rows=changed)))
    assert ages(tmp_path) == {"local": "current", "max_entropy": "older", "gumbel": "unknown"}
    lines = stale.listing(list(stale.results(tmp_path))).splitlines()
    assert lines == [
        f"papers/x/a.json: 1 rows older than their code (max_entropy): {HOW} --out papers/x "
        "--again",
        "papers/x/a.json: 1 rows of unknown age (gumbel)",
        "3 rows: 1 current, 1 older, 1 unknown",
    ]


def test_rows_of_an_experiment_that_is_gone_are_older(tmp_path: Path, put: Any) -> None:
    row = Row("s", "c", "local", "accuracy", 0.5, code=provenance.code_behind(PROP1, "local"))
    put("papers/x/part/a.json", asdict(Reproduction("gone", "x", (row,), "d", (), False, 1)))
    assert ages(tmp_path) == {"local": "older"}


def test_measured_times(tmp_path: Path, put: Any) -> None:
    name, entry = next(iter(entries().items()))
    curve = next(iter(growths()))
    rows = [{"entry": name, "opponent": o.side.name} for o in entry.opponents]
    new = benches.stamped(rows, "how")
    grown = [{"growth": curve, "code": "of last year"}]
    lost = [{"entry": "gone", "opponent": "x", "code": "c"}, {"entry": "bare", "opponent": "x"}]
    put("benchmarks/results.json", {"comparisons": [*new, *lost], "growth": grown})
    wanted = {name: "current", curve: "older", "gone": "older", "bare": "unknown"}
    assert ages(tmp_path) == wanted
    content = json.loads((tmp_path / "benchmarks" / "results.json").read_text())
    known = [entries()[name], growths()[curve], list(entries().values())[-1]]
    assert benches.outdated(content, known) == {curve, known[-1].name}  # type: ignore[attr-defined]


def test_points_of_a_sweep(tmp_path: Path, put: Any) -> None:
    points = [
        {"attack": "new", "code": cell_code(("majority",)), "command": "overheard sweep a.toml"},
        {"attack": "old", "code": "of last year", "command": "overheard sweep a.toml"},
        {"attack": "who knows"},
    ]
    put("papers/frontier/a.json", {"picture": "a.svg", "sweep": SWEEP, "points": points})
    assert ages(tmp_path) == {"new": "current", "old": "older", "who knows": "unknown"}


def test_a_file_of_another_form_is_listed(tmp_path: Path, put: Any) -> None:
    put("benchmarks/more.json", {"anything": 1})
    assert ages(tmp_path) == {"all": "unknown"}


def test_everything_committed_is_listed() -> None:
    """Reported, not refused: what is old stays until somebody measures it again."""
    found = list(stale.results())
    files = {result.file for result in found}
    root = stale.ROOT
    assert files == {
        str(path.relative_to(root))
        for path in [*root.glob("papers/**/*.json"), *root.glob("benchmarks/*.json")]
    }
    assert f"{len(found)} rows: " in stale.listing(found)
    unknown = [result for result in found if result.age == "unknown"]
    assert len(unknown) <= BEFORE, "a new row must say by which code it was measured: use --again"
