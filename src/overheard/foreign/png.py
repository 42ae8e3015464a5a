"""The pixels of a PNG of three colours: no more of the format, and no more memory than it says.

8 bits a colour, not interlaced, as photographs are kept in rows of one tall image. Anything else is
an error before it is unpacked, and so is a file whose content is not what its head promised.
(Portable Network Graphics, third edition, W3C: section 5 is the chunks, section 9 the filters.)
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

SIGNATURE = b"\x89PNG\r\n\x1a\n"
_CHANNELS = 3
_KINDS = 5


def size_of(raw: bytes) -> tuple[int, int]:
    """Width and height, as the first bytes of a file say; ValueError if they are of no PNG."""
    if not raw.startswith(SIGNATURE) or len(raw) < 24:
        raise ValueError("it does not begin as a PNG does")
    return int.from_bytes(raw[16:20], "big"), int.from_bytes(raw[20:24], "big")


def pixels(raw: bytes) -> NDArray[np.uint8]:
    """Pixels (height, width, 3); ValueError says what is wrong. Who calls has looked at `size_of`.

    A damaged file fails by its checksums, one that unpacks to more than its head promises by that.
    """
    wide, high = size_of(raw)
    if not (wide and high):
        raise ValueError("it has no pixels")
    packed, first = [], True
    for kind, content in _chunks(raw):
        if first != (kind == b"IHDR") or (first and content[8:] != b"\x08\x02\0\0\0"):
            raise ValueError("it is not of three colours with 8 bits each, one row after the other")
        packed += [content] if kind == b"IDAT" else []
        first = False
    row = 1 + _CHANNELS * wide
    unpack = zlib.decompressobj()
    try:
        flat = unpack.decompress(b"".join(packed), high * row)
    except zlib.error as error:
        raise ValueError(f"its content is damaged ({error})") from error
    if len(flat) != high * row or unpack.decompress(unpack.unconsumed_tail, 1):
        raise ValueError(f"it does not hold {wide} x {high} pixels, as its head says")
    lines = np.frombuffer(flat, np.uint8).reshape(high, row)
    if lines[:, 0].max(initial=0) >= _KINDS:
        raise ValueError(f"it has a filter {lines[:, 0].max()}, and there are {_KINDS}")
    return _unfiltered(lines[:, 0], lines[:, 1:].reshape(high, wide, _CHANNELS))


def _chunks(raw: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = len(SIGNATURE)
    while True:
        length = int.from_bytes(raw[at : at + 4], "big")
        kind, content = raw[at + 4 : at + 8], raw[at + 8 : at + 8 + length]
        check = raw[at + 8 + length : at + 12 + length]
        if len(check) < 4 or zlib.crc32(content, zlib.crc32(kind)) != int.from_bytes(check, "big"):
            raise ValueError("a part of it is cut off or damaged")
        yield kind, content
        if kind == b"IEND":
            return
        at += 12 + length


def _unfiltered(kinds: NDArray[np.uint8], lines: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Each pixel plus what its row's filter foretells of it from those to the left and above.

    A diagonal depends on the two before it alone, so that all of its pixels are made at once: in
    the flat image with an empty row above and an empty column to the left, they are a slice.
    """
    high, wide, _ = lines.shape
    across = wide + 1
    made = np.zeros(((high + 1) * across, _CHANNELS), np.int16)
    whole = made.reshape(high + 1, across, _CHANNELS)
    whole[1:, 1:] = lines
    for diagonal in range(high + wide - 1):
        top, end = max(0, diagonal - wide + 1), min(high, diagonal + 1)
        begin = (top + 1) * across + diagonal - top + 1
        stop = begin + (end - top - 1) * (across - 1) + 1
        left, above, corner = (
            made[begin - back : stop - back : across - 1] for back in (1, across, across + 1)
        )
        kind = kinds[top:end, None]
        foretold = np.select(
            [kind == 1, kind == 2, kind == 3, kind == 4],
            [left, above, (left + above) // 2, _paeth(left, above, corner)],
            np.int16(0),
        )
        here = made[begin : stop : across - 1]
        here += foretold
        here &= 255
    return whole[1:, 1:].astype(np.uint8)


def _paeth(
    left: NDArray[np.int16], above: NDArray[np.int16], corner: NDArray[np.int16]
) -> NDArray[np.int16]:
    """Whichever of the three is nearest to left + above - corner, in this order."""
    guess = left + above - corner
    a, b, c = np.abs(guess - left), np.abs(guess - above), np.abs(guess - corner)
    nearest: NDArray[np.int16] = np.where(
        (a <= b) & (a <= c), left, np.where(b <= c, above, corner)
    )
    return nearest
