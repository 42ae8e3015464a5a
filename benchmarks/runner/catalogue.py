"""Every comparison and every growth curve, by name."""

from __future__ import annotations

from functools import cache

from benchmarks.entries import (
    attribute,
    growing,
    local_model,
    recordings,
    simulation,
    startup,
    sums,
)
from benchmarks.runner.entry import Entry, Growth, Side
from overheard.errors import FixConfig

THEMES = (simulation, local_model, attribute, sums, recordings, startup)


@cache
def entries() -> dict[str, Entry]:
    """The comparisons, in the order of the table."""
    return {entry.name: entry for theme in THEMES for entry in theme.ENTRIES}


@cache
def growths() -> dict[str, Growth]:
    """The growth curves."""
    return {growth.name: growth for growth in growing.GROWTHS}


def side_named(entry: str, side: str) -> Side:
    """A party of a comparison, or what a growth curve runs."""
    if entry in growths():
        return growths()[entry].side
    return entries()[entry].sides()[side]


def chosen(names: list[str]) -> tuple[list[Entry], list[Growth]]:
    """What is asked for; everything if nothing is."""
    unknown = [name for name in names if name not in entries() and name not in growths()]
    if unknown:
        known = ", ".join([*entries(), *growths()])
        raise FixConfig(f"no comparison {unknown[0]!r}; choose from {known}")
    return (
        [e for n, e in entries().items() if not names or n in names],
        [g for n, g in growths().items() if not names or n in names],
    )
