"""How much is read of a foreign file, at most.

Every bound has a name, a default and an environment variable that raises or lowers it:
``OVERHEARD_MAX_ROWS=1e9 overheard audit ...``. ``overheard doctor`` shows them all. An error that a
bound causes names the bound and the variable.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from overheard.errors import FixConfig, FixRecording, OverheardError

_NUMBER = re.compile(r"[0-9]{1,19}(\.[0-9]+)?(e[0-9]{1,2})?")
_LARGEST = 1 << 62


@dataclass(frozen=True)
class Limit:
    """A bound: its default, what it counts, and what it is about."""

    default: int
    unit: str
    about: str


LIMITS: Mapping[str, Limit] = {
    "toml_bytes": Limit(1 << 20, "bytes", "a config, description or pattern"),
    "json_bytes": Limit(1 << 26, "bytes", "an audit, a cell's result, a JSON file in side/"),
    "json_values": Limit(8_000_000, "values", "numbers, texts, lists and objects in one JSON text"),
    "depth": Limit(64, "levels", "lists and tables within each other in JSON and TOML"),
    "index_bytes": Limit(1 << 27, "bytes", "the index of a recording's folder"),
    "file_bytes": Limit(1 << 34, "bytes", "any one file of a recording"),
    "message_bytes": Limit(1 << 30, "bytes", "the messages of one client that are held at a time"),
    "arrays": Limit(10_000, "arrays", "arrays in a message"),
    "rounds": Limit(1_000_000, "rounds", "rounds of a recording, a config or an imported folder"),
    "clients": Limit(100_000, "clients", "clients of a recording"),
    "participations": Limit(50_000_000, "pairs", "clients times rounds of a recording"),
    "rows": Limit(10_000_000, "rows", "rows of a table"),
    "columns": Limit(10_000, "columns", "columns of a table"),
    "table_bytes": Limit(1 << 30, "bytes", "a table as it lies in memory"),
    "text_bytes": Limit(1 << 28, "bytes", "a text table: CSV and the like"),
    "parameters": Limit(1 << 27, "parameters", "parameters of a model that a config describes"),
    "secrets": Limit(200, "secrets", "different secrets that an audit tells of"),
    "domain_values": Limit(1000, "values", "values that an attribute under audit may take"),
    "candidate_bytes": Limit(1 << 31, "bytes", "every record with every value of an attribute"),
    "tree_visits": Limit(3 * 10**9, "visits", "of every record to the nodes of all trees"),
    "outcomes": Limit(100_000, "outcomes", "secrets times clients times attacks of one audit"),
    "cells": Limit(100_000, "cells", "cells of a sweep"),
}


def variable(name: str) -> str:
    """The environment variable that sets a bound."""
    return f"OVERHEARD_MAX_{name.upper()}"


def limit(name: str) -> int:
    """The bound of this name, as the environment sets it or by default."""
    given = os.environ.get(variable(name), "").strip()
    if not given:
        return LIMITS[name].default
    if not _NUMBER.fullmatch(given) or not 1 <= float(given) <= _LARGEST:
        raise FixConfig(
            f"{variable(name)} is {given!r}; give a whole number of {LIMITS[name].unit} from 1 to "
            "4e18, such as 1000000 or 2e9"
        )
    return int(float(given))


def check(name: str, found: int, where: object, error: type[OverheardError] = FixRecording) -> None:
    """Refuse what is beyond a bound, in words that name it."""
    if found > limit(name):
        raise beyond(name, where, error, found)


def beyond(
    name: str, where: object, error: type[OverheardError] = FixRecording, found: int | None = None
) -> OverheardError:
    """What is raised where a bound is passed; ``found``: by how much, if that is known."""
    known = LIMITS[name]
    many = "more" if found is None else found if found < 10**18 else "10^18 or more"
    return error(
        f"{where}: {many} {known.unit}, and the limit is {limit(name)} ({known.about}); if you "
        f"trust whoever made it, raise {variable(name)}"
    )
