"""A client's real messages, from a file that it wrote: safetensors or npz, bounded.

One file a round. ``sent/NAME`` are the arrays of the model that the client was sent, and
``returned/NAME`` what it is about to return, under the names of the recipe's model.
"""

from __future__ import annotations

import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from overheard.errors import FixData
from overheard.foreign.files import opened
from overheard.foreign.limits import check
from overheard.foreign.shown import short
from overheard.programs.recipe import Recipe

Array = NDArray[np.floating[Any]]
WAYS = ("sent", "returned")


def read_update(file: Path, recipe: Recipe) -> tuple[Array, Array]:
    """The model that was sent and what is returned, flat, in the precision of the file."""
    with opened(file, True, FixData) as (_, size):
        check("message_bytes", size, file, FixData)
    arrays = _npz(file) if file.suffix == ".npz" else _safetensors(file)
    flat = []
    for way in WAYS:
        wanted = {f"{way}/{name}": tuple(shape) for name, shape in recipe.model.layout()}
        there = {n: a.shape for n, a in arrays.items() if n.startswith(f"{way}/")}
        if there != wanted:
            raise FixData(
                f"{file}: holds {short(there or sorted(arrays))} where the config's model has "
                f"{short(wanted)}; write each array of the model as '{way}/NAME'"
            )
        pieces = [arrays[name] for name in wanted]
        kinds = {str(piece.dtype) for piece in pieces}
        if not kinds <= {"float32", "float64"} or len(kinds) > 1:
            raise FixData(
                f"{file}: '{way}/' is of {', '.join(sorted(kinds))}; give float32 or float64, as "
                "it goes over the wire"
            )
        one = np.concatenate([piece.reshape(-1) for piece in pieces])
        if not np.isfinite(one).all():
            raise FixData(f"{file}: '{way}/' holds NaN or infinity; nothing can be said of that")
        flat.append(one)
    return flat[0], flat[1]


def _safetensors(file: Path) -> dict[str, Array]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        return dict(load_file(file))
    except (SafetensorError, OSError, TypeError, KeyError, ValueError, AttributeError) as error:
        raise FixData(
            f"{file}: cannot be read as safetensors ({short(str(error))}); give that, or a file "
            "named .npz"
        ) from error


def _npz(file: Path) -> dict[str, Array]:
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            check("arrays", len(members), file, FixData)
            check("message_bytes", sum(m.file_size for m in members), file, FixData)
            files = {m.filename.removesuffix(".npy"): BytesIO(archive.read(m)) for m in members}
            return {name: npy.read_array(one, allow_pickle=False) for name, one in files.items()}
    except (zipfile.BadZipFile, RuntimeError, EOFError, OSError, ValueError, MemoryError) as error:
        raise FixData(f"{file}: cannot be read as npz ({short(str(error))})") from error
