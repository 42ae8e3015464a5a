"""The cells on tables that nobody had used: what was asked, what counts as a fault, what came."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from reliability import unseen

pytestmark = pytest.mark.slow

CELLS = unseen.cells()


def found(**changes: Any) -> dict[str, Any]:
    """An answer that is as sure as right, about 100 records."""
    good = {"n": 100, "accuracy": 0.9, "confidence": 0.9, "promised": 0.0009, "majority": 0.5}
    return {**good, "certain": 40, "certain_wrong": 0.0, "flag": "", **changes}


def faults(*answers: dict[str, Any]) -> dict[str, int]:
    done = [{**cell, "result": answer} for cell, answer in zip(CELLS, answers, strict=False)]
    return {row["what"]: row["faults"] for row in unseen.summary(done) if row["faults"]}


def test_what_is_surer_than_right_without_a_flag_is_a_fault() -> None:
    assert faults(found(), found()) == {}
    sure = found(accuracy=0.7, confidence=0.9)
    assert faults(sure, found(accuracy=0.7)) == {
        "fair, yes or no": 1,
        "recoded from x to 1 - x": 1,
        "distance of confidence from accuracy, mean over answers without a flag": 1,
    }
    assert faults({**sure, "flag": "poor fit"}, found(accuracy=0.72, flag="poor fit")) == {}
    # five points, of which three standard errors make too little, are none
    assert not unseen.collapsed(found(n=30, promised=0.003, accuracy=0.8, confidence=0.9))


def test_recoding_and_certain_answers_are_judged() -> None:
    changed = {"recoding changes the accuracy beyond noise": 1}
    assert faults(found(), found(accuracy=0.7, confidence=0.7)) == changed
    assert faults(found(), found(accuracy=0.85, confidence=0.85)) == {}
    (certain,) = faults(found(certain_wrong=2.0), found())
    assert certain.startswith("wrong among the values")
    assert faults(found(certain_wrong=1.0), found()) == {}


@pytest.mark.parametrize("version", ["0.15.0", "0.1", None])
def test_tables_are_read_from_the_version_that_is_named(
    tmp_path: Path, version: str | None
) -> None:
    """Rows that lack a value are left out."""
    if version:
        about = tmp_path / f"statsmodels-{version}.dist-info" / "METADATA"
        about.parent.mkdir()
        about.write_text(f"Metadata-Version: 2.1\nName: statsmodels\nVersion: {version}\n")
        columns = [*unseen.COLUMNS["fair"].split(), "affairs"]
        path = tmp_path / unseen.PACKAGES["fair"][2]
        path.parent.mkdir(parents=True)
        path.write_text(f'"{",".join(columns)}"\n'.replace(",", '","') + "1,2,3,4,5,6,7,8,9\n,2\n")
    if version != "0.15.0":
        with pytest.raises(FileNotFoundError, match=r"pip download .*statsmodels==0\.15\.0"):
            unseen.read("fair", [str(tmp_path)])
        return
    table = unseen.read("fair", [str(tmp_path)])
    assert {key: values.tolist() for key, values in table.items()} == {
        column: [number + 1.0] for number, column in enumerate(columns)
    }


def test_a_cell_is_measured_once_and_the_secret_is_not_left_beside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    table = {name: rng.integers(0, 8, 100) + 0.0 for name in unseen.COLUMNS["fair"].split()}
    table["affairs"] = rng.integers(0, 2, 100) + 0.0
    cell = next(c for c in CELLS if c["table"] == "fair" and len(c["cuts"]) == 1)
    cell = {**cell, "records": 20, "rounds": 1, "epochs": 1, "told": 1.25}
    data = unseen.dataset(cell, table)
    assert cell["column"] not in data.records.columns
    again = unseen.dataset({**cell, "recoded": True}, table)
    assert np.array_equal(data.records["s"], 1 - again.records["s"])
    given = SimpleNamespace(out=tmp_path / "x.json", only=[], command="the command")
    for _ in range(2):
        (row,) = unseen.measured(given, [cell], lambda one: data)
        monkeypatch.setattr(unseen, "decoded", lambda *given: pytest.fail("it was there"))
    (row,) = unseen.summary([row])
    assert (row["what"], row["trials"]) == ("told a learning rate that is 25% off", 1)
    with pytest.raises(pytest.fail.Exception, match="it was there"):
        unseen.measured(given, [{**cell, "told": 1.1}], lambda one: data)
