"""Code that a description names: imported only where whoever runs overheard said so.

To import a module is to run it. A recording may name a factory ("package.module:function"); it is
called only after `trust` was called for exactly this name in this process, which the command line
does where it is told ``overheard --trust package.module:function``, and a script does by itself.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from overheard.errors import FixConfig, GrantKnowledge
from overheard.foreign.shown import short, visible

_TRUSTED: set[str] = set()


def trust(factory: str) -> None:
    """Let this factory be called from now on, in this process."""
    _TRUSTED.add(factory)


def made_by(factory: str) -> Any:
    """What the factory makes, a torch module in float64."""
    if factory not in _TRUSTED:
        raise GrantKnowledge(
            f"the model is made by {short(factory)}, which is code, and importing it runs it; if "
            f"you trust whoever wrote it: overheard --trust {visible(factory)} ..."
        )
    make = _imported(factory)
    import torch

    try:
        module = make()
    except TypeError as error:
        raise FixConfig(
            f"model.factory {factory!r} cannot be called without arguments: {error}"
        ) from error
    except Exception as error:
        raise FixConfig(
            f"model.factory {factory!r} failed: {type(error).__name__}: {error}"
        ) from error
    if not isinstance(module, torch.nn.Module):
        raise FixConfig(
            f"model.factory {factory!r} makes a {type(module).__name__}, not a torch module"
        )
    return module


def _imported(factory: str) -> Any:
    where, _, what = factory.partition(":")
    if not where or not what:
        raise FixConfig(f'model.factory {factory!r} must be "package.module:function"')
    try:
        with _from_here():
            make = getattr(importlib.import_module(where), what)
    except (ImportError, AttributeError) as error:
        raise FixConfig(
            f"model.factory {factory!r} cannot be found ({error}); start overheard from the "
            "folder of your code, or install it"
        ) from error
    except Exception as error:
        raise FixConfig(
            f"model.factory {factory!r}: its module cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not callable(make):
        raise FixConfig(f"model.factory {factory!r} is a {type(make).__name__}, not a function")
    return make


@contextmanager
def _from_here() -> Iterator[None]:
    """The working directory as a place to import from, as `python -m` has it."""
    sys.path.insert(0, "")
    try:
        yield
    finally:
        sys.path.remove("")
