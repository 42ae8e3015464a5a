"""Where a source's files are: the folder given, ``$OVERHEARD_DATA``, or the cache.

Nothing is downloaded here. A file that is nowhere raises an error that says, in one line,
what to do.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from overheard.errors import FixData

VARIABLE = "OVERHEARD_DATA"


def cache_dir() -> Path:
    """Where ``overheard data fetch`` puts files: ``$XDG_CACHE_HOME/overheard``."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "overheard"


def places(folder: str | Path | None = None) -> tuple[Path, ...]:
    """Where to look, in order. A folder that the user names is the only place."""
    if folder is not None:
        return (Path(folder).expanduser(),)
    named = os.environ.get(VARIABLE)
    return (*((Path(named).expanduser(),) if named else ()), cache_dir())


def find(files: Sequence[str], folder: str | Path | None = None) -> tuple[Path, ...] | None:
    """Paths of the files, all from one place, or None. ``files`` are relative: "adult/adult.data".

    A folder that is itself the source's subfolder is understood too.
    """
    for place in places(folder):
        for paths in ([place / f for f in files], [place / Path(f).name for f in files]):
            if all(path.is_file() for path in paths):
                return tuple(paths)
    return None


def locate(
    source: str, files: Sequence[str], remedy: str, folder: str | Path | None = None
) -> tuple[Path, ...]:
    """As `find`, but a missing file is an error that ends in ``remedy``."""
    found = find(files, folder)
    if found is None:
        where = ", ".join(str(place) for place in places(folder))
        raise FixData(
            f"data source {source!r}: {' and '.join(files)} not found in {where}; {remedy}"
        )
    return found
