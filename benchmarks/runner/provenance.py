"""Which code a measurement depends on, and whether it is the code of today."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.runner.catalogue import entries, growths
from benchmarks.runner.entry import Entry, Growth, Side
from overheard.code_digest import MAKES_NO_NUMBER, Age, age_of, code_of, seal, stands_on

Row = dict[str, Any]
MEASURES = ("benchmarks.runner.child", "benchmarks.runner.run")
WITHOUT = MAKES_NO_NUMBER | {"benchmarks.runner.catalogue"}
"""The catalogue knows all the other measurements."""


def code_behind(sides: Iterable[Side]) -> str:
    """The digest of the code of some parties: what prepares them, and all that this imports."""
    modules = {side.prepare.__module__ for side in sides}
    return code_of(stands_on(*MEASURES, *modules, without=WITHOUT))


def stamped(rows: Sequence[Row], how: str) -> list[Row]:
    """The rows with the code of today and the command that measured them, sealed."""
    told = [row | {"code": today(row), "command": how} for row in rows]
    return [row | {"seal": seal(row)} for row in told]


def today(row: Row) -> str | None:
    """The digest of the code that would measure a row today; None if nothing would."""
    if "growth" in row:
        growth = growths().get(row["growth"])
        return None if growth is None else code_behind([growth.side])
    entry = entries().get(row["entry"])
    if entry is None or row["opponent"] not in entry.sides():
        return None
    parties = [entry.ours, entry.sides()[row["opponent"]], *([entry.limit] if entry.limit else [])]
    return code_behind(parties)


def age(row: Row) -> Age:
    """Whether the code of today measured a row."""
    return age_of(row.get("code"), today(row))


def outdated(committed: Row, wanted: Iterable[Entry | Growth]) -> set[str]:
    """Names, of those wanted, that have a row of other code or lack one."""
    rows = [*committed["comparisons"], *committed["growth"]]
    ages: dict[str, list[Age]] = {}
    for row in rows:
        ages.setdefault(row.get("growth") or row["entry"], []).append(age(row))
    return {one.name for one in wanted if set(ages.get(one.name, ["unknown"])) != {"current"}}
