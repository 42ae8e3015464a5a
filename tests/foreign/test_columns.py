"""Columns come back as they were, and a stranger's bytes are refused in one line."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save

from overheard.errors import FixData, FixRecording
from overheard.foreign.tables import pack_columns, unpack_columns

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


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00" * 8,
        b"\xff" * 8,
        (2).to_bytes(8, "little") + b"[]",
        (4).to_bytes(8, "little") + b"null",
        (100).to_bytes(8, "little") + b"{}",
        pack_columns(TABLE)[:-1],
        pack_columns(TABLE) + b"x",
    ],
)
def test_bytes_that_are_no_safetensors(raw: bytes) -> None:
    with pytest.raises(FixRecording, match=r"^table: "):
        unpack_columns(raw, "table")


@pytest.mark.parametrize("dtype", ["BF16", "object", 5])
def test_a_head_of_types_that_no_column_has(dtype: Any) -> None:
    """Other heads that lie are among the attempts on recordings."""
    head = json.dumps(
        {"0:number:a": {"dtype": dtype, "shape": [4], "data_offsets": [0, 8]}}
    ).encode()
    with pytest.raises(FixRecording, match="cannot be read as a table"):
        unpack_columns(len(head).to_bytes(8, "little") + head + bytes(8), "table")
