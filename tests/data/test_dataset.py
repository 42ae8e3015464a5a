"""A user's own table, from CSV or Parquet, and what its columns may and may not hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overheard.data.dataset import Dataset, domain_of
from overheard.data.file import load
from overheard.errors import FixData
from overheard.programs.records import Records

CSV = "site,age,job,sick,y\n10,30,cook,true,1.5\n2,65,smith,false,2\n10,41,cook,true,-3\n"
COLUMNS = {
    "site": [10, 2, 10],
    "age": [30, 65, 41],
    "job": ["cook", "smith", "cook"],
    "sick": [True, False, True],
    "y": [1.5, 2.0, -3.0],
}


def saved(folder: Path, kind: str) -> Path:
    path = folder / f"people.{kind}"
    if kind == "csv":
        path.write_text(CSV)
    else:
        pq.write_table(pa.table(COLUMNS), path)
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_is_read_with_its_roles(tmp_path: Path, kind: str) -> None:
    data = load(str(saved(tmp_path, kind)), "site", "y", sensitive=("sick",), drop=("age",))
    assert data.name == "people"
    assert data.origin == f"people.{kind}"  # the file's name, not where it lies
    assert data.inputs() == ("job", "sick")
    assert data.task == "regression"
    assert data.sensitive == ("sick",)
    assert data.records["sick"].tolist() == [1.0, 0.0, 1.0]
    clients = data.by_client()
    assert list(clients) == ["2", "10"]  # numbers in their order, and whole ones written so
    assert clients["10"]["job"].tolist() == ["cook", "cook"]
    assert "site" not in clients["10"].columns


def test_csv_and_parquet_give_the_same_records(tmp_path: Path) -> None:
    one, other = (load(str(saved(tmp_path, k)), "site", "y") for k in ("csv", "parquet"))
    assert list(one.records.columns) == list(other.records.columns)
    for name, values in one.records.columns.items():
        assert np.array_equal(values, other.records[name])
        assert values.dtype.kind == other.records[name].dtype.kind


def test_a_text_target_means_classification(tmp_path: Path) -> None:
    path = str(saved(tmp_path, "csv"))
    assert load(path, "site", "job").task == "classification"
    assert load(path, "site", "sick", task="classification").task == "classification"
    assert list(load(path, "job", "y").by_client()) == ["cook", "smith"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"client": "place"}, "client column 'place' is not in the data: site, age"),
        ({"target": "z"}, "target column 'z' is not in the data"),
        ({"target": "site"}, "'site' cannot be both client and target"),
        ({"sensitive": ("sex",)}, r"people\.csv: no column 'sex'; columns: site, age"),
        ({"drop": ("sex",)}, r"people\.csv: no column 'sex'"),
        ({"drop": ("y",)}, "target column 'y' is not in the data"),
        ({"drop": ("age", "job", "sick")}, "people: no column is left to predict 'y' from"),
    ],
)
def test_roles_must_fit_the_table(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    wish = {"client": "site", "target": "y", **changes}
    with pytest.raises(FixData, match=complaint):
        load(str(saved(tmp_path, "csv")), **wish)


@pytest.mark.parametrize(
    ("kind", "column"),
    [  # an empty cell of text is a word like others in a CSV file
        *(("csv", column) for column in ("site", "age", "sick", "y")),
        *(("parquet", column) for column in ("site", "age", "job", "sick", "y")),
    ],
)
def test_missing_values_are_named(tmp_path: Path, kind: str, column: str) -> None:
    path = tmp_path / f"holes.{kind}"
    holes: dict[str, list[Any]] = {k: list(v) for k, v in COLUMNS.items()}
    holes[column][1] = None
    if kind == "parquet":
        pq.write_table(pa.table(holes), path)
    else:
        rows = zip(*holes.values(), strict=True)
        lines = [",".join("" if v is None else str(v) for v in row) for row in rows]
        path.write_text("\n".join([",".join(holes), *lines]))
    with pytest.raises(FixData, match=rf"column '{column}' has a missing value \(row 1\).*`drop`"):
        load(str(path), "site", "y")
    if column not in ("site", "y"):
        assert column not in load(str(path), "site", "y", drop=(column,)).records.columns


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", ["site", "age", "y"])
def test_numbers_must_be_finite(column: str, bad: float) -> None:
    columns = {k: np.array(COLUMNS[k], dtype=np.float64) for k in ("site", "age", "y")}
    columns[column][2] = bad
    with pytest.raises(FixData, match=rf"column '{column}' .*infinite value \(row 2\); impute"):
        Dataset("d", Records(columns), "site", "y", "regression", (), "here", "none")


def test_a_truncated_parquet_file_is_named(tmp_path: Path) -> None:
    path = saved(tmp_path, "parquet")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(FixData, match=r"people\.parquet: cannot be read"):
        load(str(path), "site", "y")
    with pytest.raises(FixData, match=r"nowhere\.csv: no such file"):
        load(str(tmp_path / "nowhere.csv"), "site", "y")


def test_domains_are_small_and_vary() -> None:
    records = Records({"flat": np.zeros(40), "many": np.arange(40.0), "two": np.arange(40.0) % 2})
    assert domain_of(records, "two") == (0.0, 1.0)
    with pytest.raises(FixData, match=r"'flat' is constant \(0\.0\).*audit another column"):
        domain_of(records, "flat")
    with pytest.raises(FixData, match=r"'many' takes 40 values.*at most 32; bin it first"):
        domain_of(records, "many")
