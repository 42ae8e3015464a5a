"""The experiments by name; each lives in the folder of its paper, in a list ``EXPERIMENTS``."""

from __future__ import annotations

import difflib
import pkgutil
from functools import cache
from importlib import import_module

import papers
from overheard.errors import FixConfig
from papers.common.rows import Experiment


@cache
def experiments() -> dict[str, Experiment]:
    """Every experiment; a module of a paper's folder that has ``EXPERIMENTS`` contributes them."""
    found: dict[str, Experiment] = {}
    for module in pkgutil.walk_packages(papers.__path__, "papers."):
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
    raise FixConfig(f"unknown experiment {name!r}; `python -m papers` lists them{hint}")
