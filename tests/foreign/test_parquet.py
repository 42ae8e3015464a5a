"""Tables come back as they were written, whoever wrote them, and bombs do not go off."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overheard.errors import FixRecording
from overheard.foreign.parquet import read_parquet
from overheard.foreign.thrift import decode

TABLE = pa.table(
    {
        "text": ["a", "bb", "Grüße", ""] * 50,
        "number": np.arange(200.0),
        "whole": pa.array(np.arange(200), pa.int16()),
        "yes": [True, False] * 100,
    }
)


def packed(table: Any, **how: Any) -> bytes:
    out = io.BytesIO()
    pq.write_table(table, out, **how)
    return out.getvalue()


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("dictionary", [True, False])
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


def test_what_is_no_table() -> None:
    raw = packed(TABLE)
    for wrong in (b"", b"PAR1", b"PAR1PAR1", raw[:-9], raw[8:], raw[:-8] + b"\xff\xff\xff\xffPAR1"):
        with pytest.raises(FixRecording, match="cannot be read as a Parquet table"):
            read_parquet(wrong, "table")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x15",
        b"\x15\xff\xff",
        b"\x1c" * 40,
        b"\x19\xff\xff\xff\xff\x0f",
        b"\x18\x7f",
        b"\x1e",
    ],
)
def test_what_is_no_struct(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode(raw)


def test_a_struct_of_everything() -> None:
    raw = bytes([0x15, 3, 0x11, 0x18, 2]) + b"hi" + bytes([0x19, 0x25, 2, 4, 0x1C, 0x16, 1, 0, 0])
    assert decode(raw) == ({1: -2, 2: True, 3: "text", 4: [1, 2], 5: {1: -1}}, len(raw))
