"""What the package imports is what it declares: a plain `pip install` brings all of it.

`make wheel` tries the same in an empty environment, with the newest versions of everything.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

OUTSIDE = ("papers", "benchmarks")
"""Not in the package, and yet nobody should have to find out what they need."""
USERS = ("flower", "nvflare", "dp", "ray", "xgboost", "papers")
"""Extras that are not for whoever changes the package."""


def named(requirements: list[str]) -> set[str]:
    return {_plain(re.split(r"[^A-Za-z0-9._-]", line)[0]) for line in requirements}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported() -> dict[str, str]:
    """Modules of others and one file each that imports them, wherever in the file."""
    found = {}
    places = [ROOT / name for name in ("src", *OUTSIDE)]
    for path in sorted(path for place in places for path in place.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            found |= {name.partition(".")[0]: path.relative_to(ROOT).as_posix() for name in names}
    ours = {*sys.stdlib_module_names, *OUTSIDE, "overheard"}
    return {name: at for name, at in found.items() if name not in ours}


def test_every_import_is_of_something_declared() -> None:
    extras = PROJECT["optional-dependencies"]
    users = named(PROJECT["dependencies"]) | named(
        [line for extra in USERS for line in extras[extra]]
    )
    installed, modules = packages_distributions(), imported()
    assert {"numpy", "scipy", "torch"} <= modules.keys()
    for module, file in modules.items():
        homes = {_plain(name) for name in installed.get(module, [module])}
        assert homes & users, f"{file} imports {module} of {sorted(homes)}: it is not declared"


def test_no_upper_caps() -> None:
    """A cap keeps a user's other software from being brought up to date; with a reason, beside it
    in pyproject.toml, it may be added here."""
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    declared = [line for group in groups for line in group]
    assert [line for line in declared if re.search(r"[<~]|==|!=", line)] == []
