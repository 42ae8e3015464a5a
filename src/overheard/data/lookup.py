"""Where a source's files are: the folder given, ``$OVERHEARD_DATA``, or the cache, in this order.

Nothing is downloaded here. A file that is nowhere raises an error that says, in one line,
what to do.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from overheard.errors import FixData

VARIABLE = "OVERHEARD_DATA"

# The files that a source needs, relative to the place ("adult/adult.data"), and the other sets
# of files that would do instead, best first.
Alternatives = Sequence[Sequence[str]]


def cache_dir() -> Path:
    """Where ``overheard data fetch`` puts files: ``$XDG_CACHE_HOME/overheard``."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "overheard"


def places(folder: str | Path | None = None) -> tuple[Path, ...]:
    """Where to look, in order."""
    named = [folder, os.environ.get(VARIABLE)]
    return (*(Path(place).expanduser() for place in named if place), cache_dir())


def find(files: Alternatives, folder: str | Path | None = None) -> tuple[Path, ...] | None:
    """Paths of the first set of files that one place holds in full, or None.

    A place that is itself the source's subfolder is understood too.
    """
    for place in places(folder):
        for names in files:
            for paths in ([place / n for n in names], [place / Path(n).name for n in names]):
                if all(path.is_file() for path in paths):
                    return tuple(paths)
    return None


def locate(
    source: str, files: Alternatives, remedy: str, folder: str | Path | None = None
) -> tuple[Path, ...]:
    """As `find`, but a missing file is an error that ends in ``remedy``."""
    found = find(files, folder)
    if found is None:
        wanted = " or ".join(" and ".join(names) for names in files)
        where = ", ".join(str(place) for place in places(folder))
        raise FixData(f"data source {source!r} needs {wanted}, not found in {where}; {remedy}")
    return found
