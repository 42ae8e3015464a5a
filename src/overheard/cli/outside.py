"""``overheard reproduce`` and ``overheard bench``: commands whose code is not in the package.

The papers' experiments and the benchmarks stand in the repository, in papers/ and benchmarks/, with
their results. Where the repository is, their commands are run from here; elsewhere this says so.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from overheard.errors import FixConfig

OPTIONS: dict[str, Any] = {
    "add_help_option": False,  # it is theirs, as all options are
    "context_settings": {"ignore_unknown_options": True, "allow_extra_args": True},
}


def reproduce(context: typer.Context) -> None:
    """Run a paper's experiment again and write claimed beside measured numbers."""
    _run("reproduce", "papers", context.args)


def bench(context: typer.Context) -> None:
    """Time this program against its opponents: ratios, their spread and the peak memory."""
    _run("bench", "benchmarks", context.args)


def _run(command: str, package: str, words: list[str]) -> None:
    root = repository()
    if root is None:
        raise FixConfig(
            f"overheard {command} needs the folder {package}/ of overheard's repository, which an "
            "installed package does not have; run it inside a checkout, or install one with "
            "`pip install --editable`"
        )
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    found = import_module(package)
    if Path(found.__file__ or "").parent != root / package:
        raise FixConfig(
            f"overheard {command} needs the folder {root / package}, but another package of this "
            f"name is in use already ({found.__file__}); start it in a process of its own"
        )
    ended = import_module(f"{package}.command").app(
        words, prog_name=f"overheard {command}", standalone_mode=False
    )
    if isinstance(ended, int) and ended:
        raise typer.Exit(ended)


def repository() -> Path | None:
    """The root of the checkout that this package or the current folder is of; None if neither."""
    return next((root for root in _places() if _is_ours(root)), None)


def _places() -> Iterator[Path]:
    yield Path(__file__).resolve().parents[3]  # src/overheard/cli/ of an editable install
    yield Path.cwd()


def _is_ours(root: Path) -> bool:
    """Does it hold papers/ and benchmarks/ beside a pyproject.toml of this name?"""
    needed = [root / package / "command.py" for package in ("papers", "benchmarks")]
    try:
        with (root / "pyproject.toml").open("rb") as file:
            named = tomllib.load(file)["project"]["name"] == "overheard"
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError):
        return False
    return named and all(path.is_file() for path in needed)
