"""PNG files: every filter is undone, and what is not promised is not unpacked."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pngs import chunk, filtered, head, png

from overheard.foreign.png import SIGNATURE, pixels, size_of

END = chunk(b"IEND", b"")


def drawn(high: int, wide: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (high, wide, 3)).astype(np.uint8)


@given(st.integers(1, 6), st.lists(st.integers(0, 4), min_size=1, max_size=6), st.integers(0, 99))
def test_every_filter_is_undone(wide: int, kinds: list[int], seed: int) -> None:
    picture = drawn(len(kinds), wide, seed)
    raw = png(picture, kinds)
    assert size_of(raw) == (wide, len(kinds))
    assert np.array_equal(pixels(raw), picture)


def test_somebody_elses_file_is_read() -> None:
    image = pytest.importorskip("PIL.Image", reason="Pillow, which writes the file, is not here")
    import io

    smooth = np.add.outer(np.arange(40), np.arange(60))[:, :, None] * [1, 2, 3]
    picture = (smooth % 256).astype(np.uint8)
    out = io.BytesIO()
    image.fromarray(picture).save(out, "png")
    assert np.array_equal(pixels(out.getvalue()), picture)


def packed(content: bytes, wide: int = 2, high: int = 2, form: bytes = b"\x08\x02\0\0\0") -> bytes:
    return SIGNATURE + head(wide, high, form) + chunk(b"IDAT", zlib.compress(content)) + END


SOUND = filtered(drawn(2, 2), [1, 2])
BROKEN = {
    "begin": b"GIF89a" + b"\0" * 40,
    "begin as a PNG": SIGNATURE,
    "cut off": packed(SOUND)[:-5],
    "damaged": packed(SOUND).replace(b"IDAT", b"IDAT\0", 1),
    "three colours": packed(SOUND, form=b"\x10\x02\0\0\0"),
    "with 8 bits each": packed(SOUND, form=b"\x08\x06\0\0\0"),
    "one row after the other": packed(SOUND, form=b"\x08\x02\0\0\x01"),
    "not of three colours": SIGNATURE + chunk(b"IDAT", b"") + head(2, 2) + END,
    "as its head says": packed(SOUND + b"\0"),
    "does not hold 2 x 3": packed(SOUND, high=3),
    "does not hold 2 x 2": packed(b"\0" * (1 << 24)),  # unpacks to more than was promised
    "its content is damaged": SIGNATURE + head(2, 2) + chunk(b"IDAT", b"xx") + END,
    "does not hold 2 x 2 pixels": SIGNATURE + head(2, 2) + END,
    "a filter 5": packed(filtered(drawn(2, 2), [0, 0]).replace(b"\0", b"\x05", 1)),
    "no pixels": packed(b"", wide=0),
}


@pytest.mark.parametrize("words", BROKEN)
def test_what_is_no_such_file_is_refused(words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pixels(BROKEN[words])


def test_two_heads_are_refused() -> None:
    raw = SIGNATURE + head(2, 2) + head(2, 2) + chunk(b"IDAT", zlib.compress(SOUND)) + END
    with pytest.raises(ValueError, match="not of three colours"):
        pixels(raw)
