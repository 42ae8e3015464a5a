"""Tables come back as they were written, whoever wrote them; a stranger's are refused in one line.

``tests/transcript/attempts/columns-*`` and ``parquet-*`` are hostile tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import save

from overheard.errors import FixData, FixRecording
from overheard.foreign.tables import pack_columns, read_parquet, unpack_columns

TABLE = {
    "age": np.array([1.5, np.nan, -np.inf]),
    "job: or not": np.array(["Bäcker", "", "a\nb"]),
    "seen": np.array([True, False, True]),
    "id": np.array([2**53 + 1, -1, 0]),
    "far": np.array([2**64 - 1, 0, 1], np.uint64),
    "image": np.arange(12, dtype=np.uint8).reshape(3, 4),
    "film": np.ones((3, 2), np.float32),
}


def test_columns_come_back() -> None:
    back = unpack_columns(pack_columns(TABLE), "table")
    assert list(back) == list(TABLE)
    for name, values in TABLE.items():
        assert back[name].dtype.kind == values.dtype.kind
        np.testing.assert_array_equal(back[name], values)
    narrow = {"a": np.arange(3, dtype=np.int16), "b": np.ones(3, np.float32)}
    back = unpack_columns(pack_columns(narrow), "table")
    assert [back[name].dtype for name in narrow] == [np.int64, np.float64]
    nobody = {"a": np.zeros(0), "b": np.zeros(0, "<U1")}
    assert {n: len(v) for n, v in unpack_columns(pack_columns(nobody), "table").items()} == {
        "a": 0,
        "b": 0,
    }


def test_what_cannot_be_written_is_refused() -> None:
    with pytest.raises(FixData, match="an image is a row of"):
        pack_columns({"a": np.zeros((2, 2, 2))})
    with pytest.raises(FixData, match="half a pair of surrogates"):
        pack_columns({"a": np.array(["\ud800"])})


def test_every_bound_bites(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = pack_columns({f"{k}": np.array(["a", "b"]) for k in range(8)})
    for name, most in {"ROWS": "1", "COLUMNS": "3", "TABLE_BYTES": "40", "JSON_BYTES": "9"}.items():
        with monkeypatch.context() as patch:
            patch.setenv(f"OVERHEARD_MAX_{name}", most)
            with pytest.raises(FixRecording, match=f"OVERHEARD_MAX_{name}"):
                unpack_columns(raw, "table")
    unpack_columns(raw, "table")


@pytest.mark.parametrize(
    "arrays",
    [
        {"0:text:a": np.frombuffer(b"\xff\xfe\xfd", np.uint8).reshape(1, 3)},
        {"0:text:a": np.zeros((2, 0), np.uint8)},
        {"0:text:a": np.ones((2, 2))},
        {"0:number:a": np.zeros((2, 2))},
        {"0:number:a": np.ones(3, np.float16)},
        {"0:image:a": np.zeros((2, 2), np.int64)},
        {"0:number:a": np.ones(3), "1:number:b": np.ones(2)},
        {"0:number:a": np.ones(3), "2:number:b": np.ones(3)},
        {"0:number:a": np.ones(3), "1:number:a": np.ones(3)},
        {"00:number:a": np.ones(3)},
        {"٣:number:a": np.ones(3)},
        {"0:other:a": np.ones(3)},
        {"a": np.ones(3)},
    ],
)
def test_what_is_no_table(arrays: dict[str, Any]) -> None:
    with pytest.raises(FixRecording, match=r"^table: cannot be read as a table") as caught:
        unpack_columns(save(arrays), "table")
    assert "\n" not in str(caught.value)


PEOPLE = pa.table(
    {
        "text": ["a", "bb", "Grüße", ""] * 50,
        "number": np.arange(200.0),
        "whole": pa.array(np.arange(200), pa.int16()),
        "large": pa.array(2**53 + np.arange(200), pa.int64()),
        "yes": [True, False] * 100,
    }
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    pq.write_table(PEOPLE, tmp_path / "table.parquet")
    return tmp_path / "table.parquet"


@pytest.mark.parametrize(
    ("compression", "version", "dictionary"),
    [("none", "1.0", True), ("snappy", "2.0", False), ("zstd", "1.0", True)],
)
def test_parquet_tables_come_back(
    file: Path, compression: str, version: str, dictionary: bool
) -> None:
    how: dict[str, Any] = {"compression": compression, "data_page_version": version}
    small = {"row_group_size": 60, "data_page_size": 200, "use_dictionary": dictionary}
    pq.write_table(PEOPLE, file, **how, **small)
    read = read_parquet(file)
    assert list(read) == PEOPLE.column_names
    for name, column in read.items():
        assert column.tolist() == PEOPLE.column(name).to_pylist(), name


def test_a_category_is_text_and_columns_can_be_left_out(file: Path) -> None:
    columns = {"c": pa.array(["x", "y"]).dictionary_encode(), "d": [b"1", b"2"]}
    pq.write_table(pa.table(columns), file)
    assert read_parquet(file, drop=("d",))["c"].tolist() == ["x", "y"]
    with pytest.raises(FixData, match="column 'd' has the type binary"):
        read_parquet(file)


@pytest.mark.parametrize(
    ("limit", "most"),
    [("ROWS", "199"), ("COLUMNS", "3"), ("TABLE_BYTES", "1000"), ("TABLE_BYTES", "7999")],
)
def test_every_bound_of_parquet_bites(
    file: Path, limit: str, most: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_parquet(file)
    monkeypatch.setenv(f"OVERHEARD_MAX_{limit}", most)
    with pytest.raises(FixData, match=f"OVERHEARD_MAX_{limit}"):
        read_parquet(file)
