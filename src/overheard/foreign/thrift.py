"""Structs in thrift's compact protocol, in which Parquet writes its footer and heads of pages.

Only what a reader of sizes needs: whole numbers, lists and structs. Texts and numbers with a
fraction are passed over. Nothing is taken on trust: a count is never larger than what is left.
"""

from __future__ import annotations

from typing import Any

_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY = 0, 1, 2, 3, 7, 8
_INTEGERS, _LISTS, _STRUCT = (4, 5, 6), (9, 10), 12
_DEEPEST = 16
TEXT = "text"  # stands for every text: that there is one is all that is known

Fields = dict[int, Any]


def decode(raw: bytes) -> tuple[Fields, int]:
    """The fields of the struct at the start, by number, and its length; or ValueError."""
    reader = _Reader(raw)
    try:
        return reader.fields(0), reader.at
    except IndexError as error:
        raise ValueError("it ends within a struct") from error


class _Reader:
    def __init__(self, raw: bytes) -> None:
        self.raw, self.at = raw, 0

    def byte(self) -> int:
        value = self.raw[self.at]
        self.at += 1
        return value

    def varint(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise ValueError("a number is too long")

    def zigzag(self) -> int:
        value = self.varint()
        return (value >> 1) ^ -(value & 1)

    def skip(self, count: int) -> None:
        if count > len(self.raw) - self.at:
            raise ValueError("it ends within a value")
        self.at += count

    def value(self, kind: int, depth: int) -> Any:
        if kind in _INTEGERS:
            return self.zigzag()
        if kind == _STRUCT:
            return self.fields(depth + 1)
        if kind in _LISTS:
            return self.list(depth + 1)
        if kind == _BINARY:
            self.skip(self.varint())
            return TEXT
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in (_BYTE, _DOUBLE):
            self.skip(1 if kind == _BYTE else 8)
            return None
        raise ValueError(f"a field is of the unknown kind {kind}")

    def list(self, depth: int) -> list[Any]:
        head = self.byte()
        count = head >> 4 if head >> 4 < 15 else self.varint()
        kind = head & 15
        if depth > _DEEPEST or count > len(self.raw) - self.at:
            raise ValueError("a list is too long or too deep")
        if kind in (_TRUE, _FALSE):
            self.skip(count)
            return []
        return [self.value(kind, depth) for _ in range(count)]

    def fields(self, depth: int) -> Fields:
        if depth > _DEEPEST:
            raise ValueError("structs are nested too deeply")
        found: Fields = {}
        number = 0
        while (head := self.byte()) != _STOP:
            number = number + (head >> 4) if head >> 4 else self.zigzag()
            found[number] = self.value(head & 15, depth)
        return found
