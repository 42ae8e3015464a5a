"""Parquet tables come back as they were written, whoever wrote them, and bombs do not go off.

``tests/transcript/attempts/parquet-*`` are hostile tables.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overheard.errors import FixData
from overheard.foreign.tables import read_parquet

TABLE = pa.table(
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
    pq.write_table(TABLE, tmp_path / "table.parquet")
    return tmp_path / "table.parquet"


@pytest.mark.parametrize(
    ("compression", "version", "dictionary"),
    [
        ("none", "1.0", True),
        ("none", "2.0", False),
        ("snappy", "1.0", False),
        ("gzip", "2.0", True),
        ("zstd", "1.0", True),
        ("lz4", "2.0", False),
        ("brotli", "1.0", False),
    ],
)
def test_tables_come_back(file: Path, compression: str, version: str, dictionary: bool) -> None:
    how: dict[str, Any] = {"compression": compression, "data_page_version": version}
    small = {"row_group_size": 60, "data_page_size": 200, "use_dictionary": dictionary}
    pq.write_table(TABLE, file, **how, **small)
    read = read_parquet(file)
    assert list(read) == TABLE.column_names
    for name, column in read.items():
        assert column.tolist() == TABLE.column(name).to_pylist(), name


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
def test_every_bound_bites(
    file: Path, limit: str, most: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_parquet(file)
    monkeypatch.setenv(f"OVERHEARD_MAX_{limit}", most)
    with pytest.raises(FixData, match=f"OVERHEARD_MAX_{limit}"):
        read_parquet(file)


@pytest.mark.parametrize("cut", [slice(0, 0), slice(4), slice(-9), slice(8, None)])
@pytest.mark.parametrize("tail", [b"", b"\xff\xff\xff\xffPAR1"])
def test_what_is_no_table(file: Path, cut: slice, tail: bytes) -> None:
    file.write_bytes(file.read_bytes()[cut] + tail)
    with pytest.raises(FixData, match=r"table\.parquet: cannot be read as a Parquet") as caught:
        read_parquet(file)
    assert "\n" not in str(caught.value)
