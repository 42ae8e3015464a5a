"""What is a data source? Those that come with overheard, the user's own file, and others' packages.

To add a source: a module of its name with ``load(seed=0, ...) -> Dataset``, and its table in the
``sources.toml`` beside it. Another package's sources are known once it was named to `add_sources`.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, resources
from typing import Any, TypeVar

from overheard.data.dataset import Dataset
from overheard.errors import FixConfig
from overheard.programs.records import Records

_CALLED = re.compile(r"^[\w.]*(load|__init__)\(\) ")
_PACKAGES: list[str] = []


@dataclass(frozen=True)
class Source:
    """What it is, in words; ``note``: what to print beside a paper's number; ``bundled``: where its
    records come from; ``module``: what loads them."""

    name: str
    module: str
    what: str
    licence: str
    origin: str
    note: str = ""
    bundled: str = ""

    @property
    def where(self) -> str:
        """Where its records are, or that they are missing."""
        return self.bundled

    def dataset(self, records: Records, **roles: Any) -> Dataset:
        """These records of the source; ``roles``: the other fields of a `Dataset`."""
        return Dataset(self.name, records, origin=self.origin, licence=self.licence, **roles)


Kind = TypeVar("Kind", bound=Source)


def read_sources(package: str, make: Callable[..., Kind]) -> dict[str, Kind]:
    """The sources of a package, as its ``sources.toml`` has them."""
    facts = tomllib.loads((resources.files(package) / "sources.toml").read_text("utf-8"))
    return {n: make(name=n, module=f"{package}.{n}", **told) for n, told in facts.items()}


BUNDLED = read_sources("overheard.data", Source)


def add_sources(package: str) -> None:
    """Know the ``SOURCES`` of this package too, in this process and the workers that it starts."""
    if package not in _PACKAGES:
        _PACKAGES.append(package)


def added() -> tuple[str, ...]:
    """What was named to `add_sources`."""
    return tuple(_PACKAGES)


def sources() -> dict[str, Source]:
    """Every source by its name."""
    others = (import_module(package).SOURCES for package in _PACKAGES)
    return dict(item for known in (BUNDLED, *others) for item in known.items())


def source_named(name: str) -> Source:
    """The source of this name."""
    known = sources()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise FixConfig(f"unknown data source {name!r}; known: {', '.join(known)}{hint}")


def load(source: str, **options: Any) -> Dataset:
    """The dataset of a source's name; ``options`` go to the source."""
    module = import_module(source_named(source).module)
    try:
        dataset: Dataset = module.load(**options)
    except (TypeError, ValueError, OverflowError, MemoryError) as error:  # options are anybody's
        words = _CALLED.sub("", str(error)) or type(error).__name__
        raise FixConfig(f"data source {source!r}: {words}; correct data.options") from error
    return dataset
