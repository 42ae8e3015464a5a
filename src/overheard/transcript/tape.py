"""Rounds that are read one at a time, from a file without a name.

What an adversary hears of a long federation need not fit in memory, but a view must not lead back
to the recording. So the rounds that it may hear, and nothing else, are copied once onto a
temporary file that has no path; each reading gives fresh arrays.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixData

Array = NDArray[np.floating[Any]]


class Tape:
    """Rows of two vectors of one length: (sent, in the precision of the wire; total, float64)."""

    def __init__(self, rows: Iterable[tuple[Array, Array]]) -> None:
        self._count = self._size = 0
        self._dtype: np.dtype[Any] = np.dtype(np.float64)
        with tempfile.TemporaryFile() as file:
            for sent, total in rows:
                if not self._count:
                    self._size, self._dtype = len(sent), np.asarray(sent).dtype
                if sent.shape != (self._size,) or total.shape != sent.shape:
                    raise FixData(
                        f"round {self._count} has {sent.shape} and {total.shape} numbers where "
                        f"the first has {self._size}"
                    )
                file.write(np.ascontiguousarray(sent, self._dtype).tobytes())
                file.write(np.ascontiguousarray(total, np.float64).tobytes())
                self._count += 1
            file.flush()
            self._file = os.dup(file.fileno())

    def __len__(self) -> int:
        return self._count

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    def read(self, row: int) -> tuple[Array, NDArray[np.float64]]:
        """One row; the arrays are read-only and the reader's own."""
        first = self._size * self._dtype.itemsize
        length = first + self._size * 8
        raw = bytearray()
        while len(raw) < length:
            piece = os.pread(self._file, length - len(raw), row * length + len(raw))
            if not piece:
                raise FixData(f"row {row} is not on the tape, which has {self._count}")
            raw += piece
        kept = bytes(raw)
        return np.frombuffer(kept, self._dtype, self._size), np.frombuffer(
            kept, np.float64, self._size, first
        )
