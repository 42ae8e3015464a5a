"""Hours of an experiment's work, kept in a folder and taken from there when it is run again.

What is kept is addressed by everything that it was made from: what the adversary heard and knows,
the settings, and the source of the code that made it. Nothing old can be taken for something new.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from overheard.code_digest import code_of
from overheard.errors import FixRecording
from overheard.files import write_durably
from overheard.foreign.archives import DAMAGE
from overheard.foreign.files import opened
from overheard.foreign.limits import check

Made = TypeVar("Made")


def address(parts: Iterable[NDArray[Any] | ModuleType | object]) -> str:
    """A digest of arrays by their bytes, of modules by their code, of the rest by its repr."""
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            words = f"{part.dtype} {part.shape}".encode()
            content = np.ascontiguousarray(part).tobytes()
        elif isinstance(part, ModuleType):
            words, content = b"module", code_of((part.__name__,)).encode()
        else:
            words, content = b"value", repr(part).encode()
        for piece in (words, content):
            total.update(len(piece).to_bytes(8, "big"))
            total.update(piece)
    return total.hexdigest()[:32]


def kept(folder: Path | None, name: str, kind: type[Made], make: Callable[[], Made]) -> Made:
    """A dataclass of arrays: read from ``folder/name.npz``, or made and written there.

    Without a folder it is made each time.
    """
    if folder is None:
        return make()
    path = folder / f"{name}.npz"
    columns = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    if path.exists():
        with opened(path) as (_, size):
            check("table_bytes", size, path)
        try:
            with np.load(path, allow_pickle=False) as held:
                return kind(**{column: held[column] for column in columns})
        except (*DAMAGE, KeyError, MemoryError, TypeError) as error:
            raise FixRecording(f"{path}: is not what was kept ({error}); remove it") from error
    made = make()
    folder.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {column: np.asarray(getattr(made, column)) for column in columns}
    np.savez(buffer, **arrays)
    if not path.exists():  # another run may have made the same meanwhile
        write_durably(path, [buffer.getvalue()])
    return made
