"""UBJSON from strangers (XGBoost's binary models): bounded in bytes, values and depth.

Only what XGBoost writes is read: objects, texts, whole numbers, float32 and float64, truth values,
null, and arrays that begin with their length, typed or not. Typed arrays of numbers become numpy
arrays, everything else what JSON would give. Nothing is executed, and no length is believed before
the bytes are there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from overheard.errors import FixRecording
from overheard.foreign.limits import check

_NUMBERS = {
    b"i": ">i1", b"U": ">u1", b"I": ">i2", b"l": ">i4", b"L": ">i8", b"d": ">f4", b"D": ">f8",
}  # fmt: skip
_CONSTANTS = {b"T": True, b"F": False, b"Z": None}


def parse_ubjson(raw: bytes, where: object) -> Any:
    """What a UBJSON text says; what is cut short, unknown or beyond the limits is refused."""
    reader = _Reader(raw, where)
    content = reader.value(0)
    if reader.at != len(raw):
        raise reader.wrong("more follows the end")
    return content


class _Reader:
    def __init__(self, raw: bytes, where: object) -> None:
        self.raw, self.where, self.at, self.values = raw, where, 0, 0

    def wrong(self, what: str) -> FixRecording:
        return FixRecording(f"{self.where}: UBJSON that is broken at byte {self.at}: {what}")

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self.raw) - self.at:
            raise self.wrong("it is cut short")
        self.at += count
        return self.raw[self.at - count : self.at]

    def numbers(self, kind: bytes, count: int) -> Any:
        dtype = np.dtype(_NUMBERS[kind])
        found = np.frombuffer(self.take(count * dtype.itemsize), dtype)
        self.values += count
        check("json_values", self.values, self.where)
        return found.astype(dtype.newbyteorder("="))

    def count(self) -> int:
        """A length: a whole number of any size."""
        kind = self.take(1)
        if kind not in _NUMBERS or kind in b"dD":
            raise self.wrong("no length, where one belongs")
        return int(self.numbers(kind, 1)[0])

    def text(self) -> str:
        try:
            return self.take(self.count()).decode("utf-8")
        except UnicodeDecodeError as problem:
            raise self.wrong("a text that is not UTF-8") from problem

    def value(self, depth: int) -> Any:
        self.values += 1
        check("json_values", self.values, self.where)
        check("depth", depth, self.where)
        kind = self.take(1)
        if kind in _NUMBERS:
            return self.numbers(kind, 1)[0].item()
        if kind in _CONSTANTS:
            return _CONSTANTS[kind]
        if kind == b"S":
            return self.text()
        if kind == b"{":
            found = {}
            while self.raw[self.at : self.at + 1] != b"}":
                key = self.text()
                found[key] = self.value(depth + 1)
            self.at += 1
            return found
        if kind != b"[":
            raise self.wrong("no value, where one belongs")
        typed = self.take(1)
        if typed == b"$":
            number, typed = self.take(1), self.take(1)
            if number in _NUMBERS and typed == b"#":
                return self.numbers(number, self.count())
        if typed != b"#":
            raise self.wrong("an array of an unknown type or length")
        count = self.count()
        if count > len(self.raw) - self.at:  # every value takes a byte
            raise self.wrong("it is cut short")
        return [self.value(depth + 1) for _ in range(count)]
