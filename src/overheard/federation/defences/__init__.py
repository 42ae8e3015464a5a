"""Every defence by its name in a config: ``[[defence]]`` with ``name = "clip"``, ``norm = 1.0``.

A new defence is one new file in this folder, with one class. It is found here by itself. One in a
package of its own is announced by an entry point of the group ``overheard.defences``; one in a file
of the user's own is named ``package.module:Class`` in the config, and imported only if the user
says so: ``overheard --trust package.module:Class``.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from inspect import isabstract, isclass
from typing import Any

from overheard.errors import FixConfig
from overheard.federation.defences.contract import Defence
from overheard.federation.reading import parse_named
from overheard.programs.trusted import granted

GROUP = "overheard.defences"
"""The group of entry points under which other packages announce defences."""


@cache
def all_defences() -> dict[str, type[Defence]]:
    """Every defence by its name, sorted; trusted ones come to them."""
    found: dict[str, type[Defence]] = {}
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        import_module(module.name)
    for ours in Defence.__subclasses__():
        if ours.__module__.startswith(__name__):
            _add(found, ours, ours.__module__)
    for point in entry_points(group=GROUP):
        _add(found, point.load(), point.value)
    return dict(sorted(found.items()))


def parse_defence(content: Any) -> Any:
    """The checked settings of one defence, from what a config file says."""
    known = all_defences()
    name = content.get("name") if isinstance(content, Mapping) else None
    if isinstance(name, str) and ":" in name:
        defence = granted(name, "the defence is")
        _add(known, defence, name)
        content = {**content, "name": defence.model_fields["name"].default}
    return parse_named("defence", "name", known, content)


def _add(found: dict[str, type[Defence]], defence: Any, where: str) -> None:
    if not (isclass(defence) and issubclass(defence, Defence)):
        raise FixConfig(f"{where}: is no defence; derive it from {Defence.__module__}.Defence")
    if isabstract(defence):
        return
    name = defence.model_fields["name"].default
    other = found.setdefault(name, defence)
    if other is not defence:
        both = f"{other.__module__} and {where}"
        raise FixConfig(f"two defences are called {name!r}, in {both}; rename one")
