"""The experiments by name; each lives in the file of its paper as ``EXPERIMENTS``."""

from __future__ import annotations

import difflib
import pkgutil
from functools import cache
from importlib import import_module

import overheard.reproduce
from overheard.errors import FixConfig
from overheard.reproduce.rows import Experiment


@cache
def experiments() -> dict[str, Experiment]:
    """Every experiment; a module of this package that has ``EXPERIMENTS`` contributes them."""
    found: dict[str, Experiment] = {}
    for module in pkgutil.iter_modules(overheard.reproduce.__path__, "overheard.reproduce."):
        for experiment in getattr(import_module(module.name), "EXPERIMENTS", ()):
            found[experiment.name] = experiment
    return dict(sorted(found.items()))


def experiment_named(name: str) -> Experiment:
    """The experiment of this name."""
    known = experiments()
    if name in known:
        return known[name]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise FixConfig(f"unknown experiment {name!r}; `overheard reproduce` lists them{hint}")
