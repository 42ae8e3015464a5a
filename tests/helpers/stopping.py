"""Work that is kept piece by piece, and stopped between two of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from overheard.evaluation import checkpoint


@contextmanager
def stopped_after(pieces: int, error: BaseException | None = None) -> Iterator[None]:
    """An audit or a sweep keeps so many pieces, and then ends."""
    real = checkpoint.replace_durably  # type: ignore[attr-defined]
    written: list[Path] = []

    def write(path: Path, content: bytes) -> None:
        if len(written) == pieces:
            raise error or KeyboardInterrupt
        written.append(path)
        real(path, content)

    with mock.patch.object(checkpoint, "replace_durably", write):
        yield
