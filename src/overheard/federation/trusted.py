"""Code of the user's own, by ``package.module:name``. Importing runs it: callers ask first."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from overheard.errors import FixConfig


def imported(name: str, what: str) -> Any:
    """What ``package.module:name`` is; ``what`` names the setting in errors."""
    where, _, thing = name.partition(":")
    if not where or not thing:
        raise FixConfig(f'{what} {name!r} must be "package.module:name"')
    try:
        with _from_here():
            return getattr(importlib.import_module(where), thing)
    except (ImportError, AttributeError) as error:
        raise FixConfig(
            f"{what} {name!r} cannot be found ({error}); start overheard from the folder of your "
            "code, or install it"
        ) from error
    except Exception as error:
        raise FixConfig(
            f"{what} {name!r}: its module cannot be imported: {type(error).__name__}: {error}"
        ) from error


@contextmanager
def _from_here() -> Iterator[None]:
    """The working directory as a place to import from, as `python -m` has it."""
    sys.path.insert(0, "")
    try:
        yield
    finally:
        sys.path.remove("")
