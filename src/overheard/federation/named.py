"""Tables of a config that name a kind and give its settings: ``name = "clip"``, ``norm = 1.0``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from overheard.errors import FixConfig
from overheard.programs.records import Spec
from overheard.transcript.threat import nearest


def parse_named(what: str, key: str, known: Mapping[str, type[Spec]], content: Any) -> Any:
    """The settings as the kind that ``content[key]`` names, checked; ``what``: of kinds, in errors.

    What is no table is handed on, for who checks the rest of the config.
    """
    if not isinstance(content, Mapping):
        return content
    name = content.get(key)
    if not isinstance(name, str) or name not in known:
        raise FixConfig(f"unknown {what} {name!r}; {nearest(str(name), known, 0.6)}")
    fields = known[name].model_fields
    for given in content:
        if given not in fields:
            raise FixConfig(f"{what} {name!r}: unknown key {given!r}; {nearest(given, fields)}")
    return known[name].model_validate(dict(content))
