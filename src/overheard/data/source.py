"""What is a data source? Those that come with overheard, the user's own file, and others' packages.

To add a source: a function ``load(seed=0, ...) -> Dataset`` in a module of its name, and its table
in the ``sources.toml`` beside it; ``loader = "module:function"`` there names another. Another
package's sources are known once it was named to `add_sources`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module, resources
from typing import Any, TypeVar

from overheard.data.dataset import Dataset
from overheard.errors import FixConfig
from overheard.programs.records import Records
from overheard.transcript.threat import nearest

_CALLED = re.compile(r"^[\w.]+\(\) ")
_PACKAGES: list[str] = []


@dataclass(frozen=True)
class Source:
    """What it is, in words; ``note``: what to print beside a paper's number; ``bundled``: where its
    records come from; ``loader``: "package.module:function", which loads them."""

    name: str
    loader: str
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
        return Dataset(self.name, records, origin=self.origin, **roles)


Kind = TypeVar("Kind", bound=Source)


def read_sources(package: str, make: Callable[..., Kind]) -> dict[str, Kind]:
    """The sources of a package, as its ``sources.toml`` has them."""
    facts = tomllib.loads((resources.files(package) / "sources.toml").read_text("utf-8"))
    loaders = {n: f"{package}.{fact.pop('loader', f'{n}:load')}" for n, fact in facts.items()}
    return {n: make(name=n, loader=loaders[n], **fact) for n, fact in facts.items()}


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
    raise FixConfig(f"unknown data source {name!r}; {nearest(name, known, 0.6)}")


def load(source: str, **options: Any) -> Dataset:
    """The dataset of a source's name; ``options`` go to the source."""
    module, _, function = source_named(source).loader.partition(":")
    loader = getattr(import_module(module), function)
    try:
        dataset: Dataset = loader(**options)
    except (TypeError, ValueError, OverflowError, MemoryError) as error:  # options are anybody's
        words = _CALLED.sub("", str(error)) or type(error).__name__
        raise FixConfig(f"data source {source!r}: {words}; correct data.options") from error
    return dataset
