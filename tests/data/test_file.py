"""A user's own table: what columns may hold; nothing is rounded or guessed without being said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from generated import write_csv

from overheard.data import file
from overheard.data.dataset import Data, Dataset, domain_of
from overheard.errors import FixConfig, FixData
from overheard.federation.federation import parse_config
from overheard.federation.plan import load_data, plan
from overheard.programs.records import Records

CSV = "site,age,job,sick,y\n10,30,cook,true,1.5\n2,65,smith,false,2\n10,41,cook,true,-3\n"
COLUMNS = {
    "site": [10, 2, 10],
    "age": [30, 65, 41],
    "job": ["cook", "smith", "cook"],
    "sick": [True, False, True],
    "y": [1.5, 2.0, -3.0],
}


def load(path: str, client: str, target: str, of: tuple[str, ...] = (), **how: Any) -> Dataset:
    return file.load(Data(source="file", path=path, client=client, target=target, **how), of)


def saved(folder: Path, kind: str) -> Path:
    path = folder / f"people.{kind}"
    if kind == "csv":
        path.write_text(CSV)
    else:
        pq.write_table(pa.table(COLUMNS), path)
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_table_is_read_with_its_roles(tmp_path: Path, kind: str) -> None:
    data = load(str(saved(tmp_path, kind)), "site", "y", of=("sick",), drop=("age",))
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
        ({"of": ("sex",)}, r"people\.csv: no column 'sex'; columns: site, age"),
        ({"drop": ("sex",)}, r"people\.csv: no column 'sex'"),
        ({"drop": ("y",)}, "target column 'y' is not in the data"),
        ({"drop": ("age", "job", "sick")}, "people: no column is left to predict 'y' from"),
    ],
)
def test_roles_must_fit_the_table(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    wish = {"client": "site", "target": "y", **changes}
    with pytest.raises(FixData, match=complaint):
        load(str(saved(tmp_path, "csv")), **wish)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("column", ["at", "age", "sick", "y"])
def test_missing_values_are_named(tmp_path: Path, kind: str, column: str) -> None:
    holes = people(sick=[True, False] * 6)
    holes[column][1] = "" if kind == "csv" else None
    path = table(tmp_path / "t.csv", **holes)
    if kind == "parquet":
        pq.write_table(pa.table(holes), path := str(tmp_path / "t.parquet"))
    with pytest.raises(FixData, match=rf"column '{column}' has a missing value \(row 1\).*`drop`"):
        read(path)
    if column not in ("at", "y"):
        assert column not in read(path, drop=(column,)).records.columns


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("column", ["site", "age", "y"])
def test_numbers_must_be_finite(column: str, bad: float) -> None:
    columns = {k: np.array(COLUMNS[k], dtype=np.float64) for k in ("site", "age", "y")}
    columns[column][2] = bad
    with pytest.raises(FixData, match=rf"column '{column}' .*infinite value \(row 2\); impute"):
        Dataset("d", Records(columns), "site", "y", "regression", (), "here")


def test_domains_are_small_and_vary() -> None:
    records = Records({"flat": np.zeros(40), "many": np.arange(40.0), "two": np.arange(40.0) % 2})
    assert domain_of(records, "two") == (0.0, 1.0)
    with pytest.raises(FixData, match=r"'flat' is constant \(0\.0\).*audit another column"):
        domain_of(records, "flat")
    with pytest.raises(FixData, match=r"'many' takes 40 values.*at most 32; bin it first"):
        domain_of(records, "many")


IDS = [9_007_199_254_740_993, 9_007_199_254_740_992, 18_446_744_073_709_551_615]
"""Two that float64 takes for one, and the last one of 64 bits, where Arrow gives up on integers."""


def table(path: Path, **columns: list[Any]) -> str:
    return write_csv(path, columns)


def people(**more: list[Any]) -> dict[str, list[Any]]:
    return {"at": [1, 2] * 6, "age": list(range(30, 42)), "y": [0.5, 1.5, 2.5] * 4} | more


def read(path: str, **more: Any) -> Dataset:
    return load(path, "at", "y", **more)


@pytest.mark.parametrize("ids", [IDS[:2], IDS[1:], IDS])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_names_of_clients_are_exact_however_large(
    tmp_path: Path, ids: list[int], kind: str
) -> None:
    columns = people(at=(ids * 6)[:12])
    path = table(tmp_path / "t.csv", **columns)
    if kind == "parquet":
        path = str(tmp_path / "t.parquet")
        whole = pa.array(columns["at"], pa.uint64())
        pq.write_table(pa.table(columns | {"at": whole}), path)
    assert set(read(path).by_client()) == {str(i) for i in ids}


@pytest.mark.parametrize("ids", [IDS[:2], IDS[2:]])
def test_numbers_that_would_be_rounded_are_refused(tmp_path: Path, ids: list[int]) -> None:
    path = table(tmp_path / "t.csv", **people(key=(ids * 12)[:12]))
    with pytest.raises(
        FixData, match=r"'key' holds whole numbers beyond 2\^53.*`drop`.*`categorie"
    ):
        read(path)
    assert read(path, drop=("key",)).inputs() == ("age",)
    assert set(read(path, categories=("key",)).records["key"]) == {str(i) for i in ids}


def test_large_numbers_with_a_point_are_numbers(tmp_path: Path) -> None:
    found = read(table(tmp_path / "t.csv", **people(key=["1e20", "2.5e30"] * 6))).records["key"]
    assert set(found.tolist()) == {1e20, 2.5e30}


@pytest.mark.parametrize("mark", ["?", "unknown", "-", "n.a."])
def test_a_gap_in_a_column_of_numbers_is_no_category(tmp_path: Path, mark: str) -> None:
    """Read as text, every number would be an input of its own."""
    ages = [mark, *range(31, 41), mark]
    path = table(tmp_path / "t.csv", **people(age=ages, job=[mark, *"abcabcabcab"]))
    with pytest.raises(FixData) as refused:
        read(path)
    for part in ("column 'age' is a number in 10 of 12 rows", repr(mark), "row 0", "11 inputs"):
        assert part in str(refused.value)
    assert f"missing = {mark!r}" in str(refused.value)
    told = read(path, missing=(mark,))
    assert told.records["age"].tolist() == list(range(31, 41))
    assert told.origin == "t.csv (2 of its rows left out: a value is missing)"
    assert mark not in told.records["job"].tolist()
    as_text = read(path, categories=("age",)).records["age"]
    assert as_text.tolist() == list(map(str, ages))
    assert read(path, drop=("age",)).records["job"].tolist()[0] == mark  # a value among texts


@pytest.mark.parametrize("mark", ["", "NA", "NaN", "null"])
def test_an_empty_cell_is_refused_or_left_out(tmp_path: Path, mark: str) -> None:
    path = table(tmp_path / "t.csv", **people(age=[*range(30, 41), mark]))
    with pytest.raises(FixData, match=r"'age' has a missing value \(row 11\).*missing = \["):
        read(path)
    assert len(read(path, missing=(mark,)).records) == 11
    with pytest.raises(FixData, match="'age'"):
        read(path, missing=("?",))  # which says nothing about the other mark
    with pytest.raises(FixData, match="every row holds a missing value"):
        read(table(tmp_path / "u.csv", **people(age=["?"] * 12)), missing=("?",))


def test_numbers_as_text_in_parquet_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table(people(age=list(map(str, range(12))))), path)
    with pytest.raises(FixData, match="'age' holds numbers as text"):
        read(path)
    assert read(path, categories=("age",)).records["age"].dtype.kind == "U"
    with pytest.raises(FixConfig, match="missing, encoding and separator are about CSV"):
        read(path, missing=("?",))


@pytest.mark.parametrize("separator", [";", "\t", "|"])
@pytest.mark.parametrize("point", [".", ","])
def test_other_separators_and_decimal_commas_are_found(
    tmp_path: Path, separator: str, point: str
) -> None:
    path = Path(table(tmp_path / "t.csv", **people(code=["1", "2", "A1", "B2"] * 3)))
    path.write_text(path.read_text().replace(",", separator).replace(".", point))
    found = read(str(path)).records
    assert set(found["y"].tolist()) == {0.5, 1.5, 2.5}
    assert set(found["code"].tolist()) == {"1", "2", "A1", "B2"}  # mostly text


def test_quotes_lines_and_rows_of_another_length(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('at,note,y\n1,"a, b",0.5\n2,"c\nd",1.5\n\n')
    assert read(str(path)).records["note"].tolist() == ["a, b", "c\nd"]
    path.write_text("at,note,y\n1,a,0.5\n2,b\n")
    with pytest.raises(FixData, match=r"cannot be read.*expected 3 columns, got 2: 2,b"):
        read(str(path))


def test_what_cannot_be_split_says_what_was_looked_for(tmp_path: Path) -> None:
    path = Path(table(tmp_path / "t.csv", **people()))
    path.write_text(path.read_text().replace(",", "#"))
    with pytest.raises(
        FixData, match=r"one column only, 'at#age#y'.*';'.*give separator in \[data"
    ):
        read(str(path))
    assert read(str(path), separator="#").inputs() == ("age",)


def test_other_encodings_are_found_or_named(tmp_path: Path) -> None:
    path = Path(table(tmp_path / "t.csv", **people(town=["Köln", "Brno"] * 6)))
    text = path.read_text()
    path.write_text(text, encoding="latin-1")
    with pytest.raises(FixData, match=r"is not UTF-8 \(byte 0xf6 in line 2\).*\"latin-1\""):
        read(str(path))
    with pytest.raises(FixConfig, match="'klingon' is not known"):
        read(str(path), encoding="klingon")
    towns = [set(read(str(path), encoding="latin-1").records["town"].tolist())]
    for encoding in ("utf-16", "utf-8-sig", "utf-8"):
        path.write_text(text, encoding=encoding)
        towns.append(set(read(str(path)).records["town"].tolist()))
    assert towns == [{"Köln", "Brno"}] * 4
    path.write_text(text, encoding="utf-16-le")
    with pytest.raises(FixData, match="utf-16-le"):
        read(str(path))
    assert len(read(str(path), encoding="utf-16-le").records) == 12


def config(path: str, **data: Any) -> Any:
    roles = {"source": "file", "path": path, "client": "at", "target": "y"}
    model, training = {"name": "logistic"}, {"rounds": 1, "learning_rate": 0.1}
    content = {"data": roles | data, "model": model, "training": training}
    return parse_config(content | {"audit": {"attributes": []}})


def test_a_target_of_zeros_and_ones_says_what_to_set(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", **people(y=[0, 1] * 6))
    with pytest.raises(FixConfig, match=r'\'y\' is a number.*task = "classification" in \[data\]'):
        plan(config(path))
    assert plan(config(path, task="classification")).recipe.target.classes == (0.0, 1.0)


def test_the_config_carries_it(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", **people(age=["?", *range(11)]))
    assert len(load_data(config(path, missing="?")).records) == 11
    assert len(load_data(config(path, missing=["?", "NA"])).records) == 11
    assert np.unique(load_data(config(path, categories=["age"])).records["age"]).size == 12
    with pytest.raises(FixConfig, match=r"data\.missing belongs to source = 'file'"):
        load_data(config("", source="randhie", client="", target="", missing="?"))
