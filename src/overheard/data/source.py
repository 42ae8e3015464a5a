"""What is a data source, and where are its files?

The facts of every source stand in ``sources.toml``. Its files are looked for in the folder given,
in ``$OVERHEARD_DATA`` and in the cache, in this order; nothing is downloaded here.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from overheard.data.dataset import Dataset
from overheard.data.fetch import Member, Package
from overheard.errors import FixData
from overheard.programs.records import Records

VARIABLE = "OVERHEARD_DATA"


@dataclass(frozen=True)
class Source:
    """``note``: what to print beside a paper's number. ``files``: those that it needs, relative to
    the place ("adult/adult.data"), and the other sets that would do instead, best first; ``remedy``
    says how to get them, ``package`` where a registry has them. ``bundled``: where it comes from
    without a file.
    """

    name: str
    what: str
    licence: str
    origin: str
    note: str = ""
    files: tuple[tuple[str, ...], ...] = ()
    remedy: str = ""
    bundled: str = ""
    package: Package | None = None

    def find(self, folder: str | Path | None = None) -> tuple[Path, ...] | None:
        """Paths of the first set of files that one place holds in full, or None.

        A place that is itself the source's subfolder is understood too.
        """
        for place in places(folder):
            for names in self.files:
                for paths in ([place / n for n in names], [place / Path(n).name for n in names]):
                    if all(path.is_file() for path in paths):
                        return tuple(paths)
        return None

    def locate(self, folder: str | Path | None = None) -> tuple[Path, ...]:
        """As `find`, but a missing file is an error that says in one line what to do."""
        found = self.find(folder)
        if found is None:
            wanted = " or ".join(" and ".join(names) for names in self.files)
            where = ", ".join(str(place) for place in places(folder))
            raise FixData(
                f"data source {self.name!r} needs {wanted}, not found in {where}; {self.remedy}"
            )
        return found

    def dataset(self, records: Records, **roles: Any) -> Dataset:
        """These records of the source; ``roles``: the other fields of a `Dataset`."""
        return Dataset(self.name, records, origin=self.origin, licence=self.licence, **roles)


def cache_dir() -> Path:
    """Where ``overheard data fetch`` puts files: ``$XDG_CACHE_HOME/overheard``."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "overheard"


def places(folder: str | Path | None = None) -> tuple[Path, ...]:
    """Where to look, in order."""
    named = [folder, os.environ.get(VARIABLE)]
    return (*(Path(place).expanduser() for place in named if place), cache_dir())


@cache
def sources() -> dict[str, Source]:
    """Every source by its name."""
    text = (resources.files("overheard.data") / "sources.toml").read_text("utf-8")
    return {name: _source(name, facts) for name, facts in tomllib.loads(text).items()}


def _source(name: str, facts: dict[str, Any]) -> Source:
    if package := facts.pop("package", None):
        members = tuple(Member(**member) for member in package.pop("members"))
        facts["package"] = Package(**package, members=members)
    files = tuple(map(tuple, facts.pop("files", ())))
    return Source(name, files=files, **facts)
