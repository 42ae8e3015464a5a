"""overheard: what can somebody who only listens learn about each client's data?

The public names stand in ``__init__.pyi``, each with its home, for type checkers and for this file:
it loads them when they are first used, so that ``import overheard`` is quick and imports no heavy
library.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

_HOMES = {
    name.name: str(line.module)
    for line in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(line, ast.ImportFrom)
    for name in line.names
}
__version__ = "1.0.0"
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'overheard' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
