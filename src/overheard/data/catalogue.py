"""The named sources, one file each, and the user's own file."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from overheard.data.dataset import Dataset
from overheard.errors import FixConfig

SOURCES: Mapping[str, str] = {
    "randhie": "overheard.data.randhie",
    "adult": "overheard.data.adult",
    "leaf_synthetic": "overheard.data.leaf_synthetic",
    "file": "overheard.data.file",
}


def load(source: str, **options: Any) -> Dataset:
    """The dataset of a source's name; ``options`` go to the source."""
    if source not in SOURCES:
        near = difflib.get_close_matches(source, SOURCES, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise FixConfig(f"unknown data source {source!r}; known: {', '.join(SOURCES)}{hint}")
    try:
        dataset: Dataset = import_module(SOURCES[source]).load(**options)
    except TypeError as error:
        if "load()" not in str(error):
            raise
        raise FixConfig(f"data source {source!r}: {str(error).replace('load() ', '')}") from error
    return dataset
