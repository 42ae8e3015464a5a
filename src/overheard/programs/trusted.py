"""Code that a description names: imported only where whoever runs overheard said so.

To import a module is to run it. A recording may name a factory ("package.module:function"); it is
called only after `trust` was called for exactly this name in this process, which the command line
does where it is given ``overheard --trust package.module:function``, and a script does by itself.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from overheard.errors import FixConfig, GrantKnowledge
from overheard.foreign.shown import short, visible

_TRUSTED: set[str] = set()


def trust(factory: str) -> None:
    """Let this factory be called from now on, in this process."""
    _TRUSTED.add(factory)


def trusted() -> tuple[str, ...]:
    """What this process trusts, for those that it starts."""
    return tuple(sorted(_TRUSTED))


def made_by(factory: str) -> Any:
    """What the factory makes, a torch module in float64."""
    make = granted(factory, "the model is made by")
    import torch

    try:
        module = make()
    except Exception as error:
        raise FixConfig(
            f"model.factory {factory!r}, called without arguments, failed: {type(error).__name__}: "
            f"{error}"
        ) from error
    if not isinstance(module, torch.nn.Module):
        raise FixConfig(
            f"model.factory {factory!r} makes a {type(module).__name__}, not a torch module"
        )
    return module


def trained(module: Any) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Names and shapes of the parameters of a torch module that are not frozen."""
    named = module.named_parameters()
    return tuple((name, tuple(p.shape)) for name, p in named if p.requires_grad)


def granted(name: str, what: str) -> Any:
    """The function or class of this name, if it is trusted; ``what``: before it, in the refusal."""
    if name not in _TRUSTED:
        raise GrantKnowledge(
            f"{what} {short(name)}, which is code, and importing it runs it; if you trust whoever "
            f"wrote it: overheard --trust {visible(name)} ... (or, for a description that you give "
            "by --with, --trust-code)"
        )
    return imported(name)


def imported(name: str) -> Any:
    """The same of who asked for trust already."""
    where, _, what = name.partition(":")
    if not where or not what:
        raise FixConfig(f'{name!r} must be "package.module:name"')
    sys.path.insert(0, "")  # the working directory, from which `python -m` imports, too
    try:
        made = getattr(importlib.import_module(where), what)
    except (ImportError, AttributeError) as error:
        raise FixConfig(
            f"{name!r} cannot be found ({error}); start overheard from the folder of your code, or "
            "install it"
        ) from error
    except Exception as error:
        raise FixConfig(
            f"{name!r}: its module cannot be imported: {type(error).__name__}: {error}"
        ) from error
    finally:
        sys.path.remove("")
    if not callable(made):
        raise FixConfig(f"{name!r} is a {type(made).__name__}, not a function or class")
    return made
