"""Tables come back as they were written, whoever wrote them, and bombs go off elsewhere."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overheard.errors import FixData, FixRecording
from overheard.foreign import parquet
from overheard.foreign.parquet import read_parquet

TABLE = pa.table(
    {
        "text": ["a", "bb", "Grüße", ""] * 50,
        "number": np.arange(200.0),
        "whole": pa.array(np.arange(200), pa.int16()),
        "large": pa.array(2**53 + np.arange(200), pa.int64()),
        "yes": [True, False] * 100,
    }
)


def packed(table: Any, **how: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **how)
    return out.getvalue()


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
def test_tables_come_back(compression: str, version: str, dictionary: bool) -> None:
    raw = packed(
        TABLE,
        compression=compression,
        data_page_version=version,
        use_dictionary=dictionary,
        row_group_size=60,
        data_page_size=200,
    )
    read = read_parquet(raw, "table")
    assert list(read) == TABLE.column_names
    for name, column in read.items():
        assert column.tolist() == TABLE.column(name).to_pylist(), name


def test_a_file_is_read_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "t.parquet").write_bytes(packed(TABLE))
    read = read_parquet(tmp_path / "t.parquet", "t.parquet")
    assert read["number"].tolist() == TABLE.column("number").to_pylist()


def test_a_category_is_text_and_columns_can_be_left_out() -> None:
    raw = packed(pa.table({"c": pa.array(["x", "y"]).dictionary_encode(), "d": [b"1", b"2"]}))
    assert read_parquet(raw, "table", drop=("d",))["c"].tolist() == ["x", "y"]
    with pytest.raises(FixRecording, match="column 'd' has the type binary"):
        read_parquet(raw, "table")


def test_every_bound_bites(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = packed(TABLE)
    for name, most in {"ROWS": "199", "COLUMNS": "3", "TABLE_BYTES": "1000"}.items():
        with monkeypatch.context() as patch:
            patch.setenv(f"OVERHEARD_MAX_{name}", most)
            with pytest.raises(FixRecording, match=f"OVERHEARD_MAX_{name}"):
                read_parquet(raw, "table")
    read_parquet(raw, "table")


@pytest.mark.parametrize("cut", [slice(0, 0), slice(4), slice(-9), slice(8, None)])
def test_what_is_no_table(cut: slice) -> None:
    with pytest.raises(FixRecording, match=r"^table: cannot be read as a Parquet table") as caught:
        read_parquet(packed(TABLE)[cut], "table")
    assert "\n" not in str(caught.value)


def test_a_footer_that_claims_too_much() -> None:
    raw = packed(TABLE)[:-8] + b"\xff\xff\xff\xffPAR1"
    with pytest.raises(FixData, match="cannot be read as a Parquet table"):
        read_parquet(raw, "table", FixData)


LIMITED = (
    "import json, os, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from overheard.foreign import parquet; from overheard.foreign.limits import limit; "
)


@pytest.mark.parametrize(
    ("deed", "words"),
    [
        ("lambda *a: os.abort()", r"the process that reads it ended \(status -6\)"),
        ("lambda *a: [] .append(bytearray(2 << 30))", "OVERHEARD_MAX_TABLE_BYTES"),
        ("lambda *a: any(iter(int, 1))", "OVERHEARD_MAX_TABLE_SECONDS"),
        ("lambda *a: open('/etc/hostname').read()", "cannot be read as a Parquet table"),
        ("lambda *a: __import__('socket').socket()", "cannot be read as a Parquet table"),
    ],
)
def test_whatever_reading_does_it_does_elsewhere(
    deed: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that crashes, takes all memory or all time, or reaches out is ended in one line."""
    script = f"{LIMITED}parquet._columns_of = {deed}; parquet.child(*sys.argv[2:])"
    monkeypatch.setattr(parquet, "_CHILD", script)
    monkeypatch.setenv("OVERHEARD_MAX_TABLE_BYTES", "300e6")
    monkeypatch.setenv("OVERHEARD_MAX_TABLE_SECONDS", "5")
    with pytest.raises(FixRecording, match=words) as caught:
        read_parquet(packed(TABLE), "table")
    assert "\n" not in str(caught.value)
