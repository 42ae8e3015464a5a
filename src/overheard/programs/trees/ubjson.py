"""UBJSON from strangers (XGBoost's binary models): bounded in bytes, values and depth.

Only what XGBoost writes is read: objects, texts, whole numbers, float32 and float64, truth values,
null and arrays, typed or not. Typed arrays of numbers become numpy arrays, everything else what
JSON would give. Nothing is executed, and no length is believed before the bytes are there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from overheard.errors import FixRecording, OverheardError
from overheard.foreign.limits import beyond, check

_NUMBERS = {
    b"i": ">i1", b"U": ">u1", b"I": ">i2", b"l": ">i4", b"L": ">i8", b"d": ">f4", b"D": ">f8",
}  # fmt: skip
_CONSTANTS = {b"T": True, b"F": False, b"Z": None}


def parse_ubjson(raw: bytes, where: object, error: type[OverheardError] = FixRecording) -> Any:
    """What a UBJSON text says; what is cut short, unknown or beyond the limits is refused."""
    reader = _Reader(raw, where, error)
    content = reader.value(reader.marker(), 0)
    if reader.at != len(raw):
        raise error(f"{where}: {len(raw) - reader.at} bytes follow the end of the UBJSON model")
    return content


class _Reader:
    def __init__(self, raw: bytes, where: object, error: type[OverheardError]) -> None:
        self.raw, self.where, self.error = raw, where, error
        self.at, self.values = 0, 0

    def take(self, count: int) -> bytes:
        if count < 0 or count > len(self.raw) - self.at:
            raise self.error(f"{self.where}: the UBJSON model is cut short at byte {self.at}")
        self.at += count
        return self.raw[self.at - count : self.at]

    def marker(self) -> bytes:
        return self.take(1)

    def count(self) -> int:
        """A length: a whole number of any size, not negative."""
        kind = self.marker()
        if kind not in _NUMBERS or kind in b"dD":
            raise self.error(f"{self.where}: byte {self.at - 1} should begin a length in UBJSON")
        found = int(np.frombuffer(self.take(np.dtype(_NUMBERS[kind]).itemsize), _NUMBERS[kind])[0])
        if found < 0:
            raise self.error(f"{self.where}: a length of {found} in the UBJSON model")
        return found

    def text(self) -> str:
        try:
            return self.take(self.count()).decode("utf-8")
        except UnicodeDecodeError as problem:
            raise self.error(f"{self.where}: a text of the UBJSON model is not UTF-8") from problem

    def value(self, kind: bytes, depth: int) -> Any:
        self.values += 1
        check("json_values", self.values, self.where, self.error)
        if kind in _NUMBERS:
            return self.numbers(kind, 1)[0].item()
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind == b"S":
            return self.text()
        if kind not in (b"{", b"["):
            raise self.error(f"{self.where}: byte {self.at - 1} is no value of UBJSON")
        check("depth", depth, self.where, self.error)
        return self.object(depth) if kind == b"{" else self.array(depth)

    def object(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.raw[self.at : self.at + 1] != b"}":
            key = self.text()
            if key in found:
                raise self.error(f"{self.where}: {key[:40]!r} stands twice in the UBJSON model")
            found[key] = self.value(self.marker(), depth + 1)
        self.at += 1
        return found

    def array(self, depth: int) -> Any:
        kind = self.marker()
        if kind == b"$":
            typed = self.marker()
            if typed not in _NUMBERS or self.marker() != b"#":
                raise self.error(f"{self.where}: an array of UBJSON with an unknown type")
            return self.numbers(typed, self.count())
        if kind == b"#":
            count = self.count()
            if count > len(self.raw) - self.at:  # every value takes a byte
                raise self.error(f"{self.where}: the UBJSON model is cut short at byte {self.at}")
            return [self.value(self.marker(), depth + 1) for _ in range(count)]
        found = []
        while kind != b"]":
            found.append(self.value(kind, depth + 1))
            kind = self.marker()
        return found

    def numbers(self, kind: bytes, count: int) -> Any:
        self.values += count
        if self.values > 1 << 62:
            raise beyond("json_values", self.where, self.error)
        check("json_values", self.values, self.where, self.error)
        dtype = np.dtype(_NUMBERS[kind])
        return np.frombuffer(self.take(count * dtype.itemsize), dtype).astype(
            dtype.newbyteorder("=")
        )
