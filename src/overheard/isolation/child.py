"""The child: reads a view from stdin, runs one attack on it, writes the guess. Nothing else.

Run as a script, isolated from the environment (``python -I -S``). It first gives up what `jail`
takes, and only then imports anything that is not in the standard library: the stranger's module
runs behind the walls from its first line on.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import runpy
import sys
import tempfile
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, BinaryIO


class Roots(importlib.abc.MetaPathFinder):
    """Top-level modules by file: the folders around them cannot be listed."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self.files = files

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        file = self.files.get(fullname)
        if file is None:
            return None
        package = os.path.basename(file) == "__init__.py"
        return importlib.util.spec_from_file_location(
            fullname, file, submodule_search_locations=[os.path.dirname(file)] if package else None
        )


def main() -> None:
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the attack prints is not its answer
    source: BinaryIO = sys.stdin.buffer
    head: dict[str, Any] = json.loads(source.readline())
    jail = runpy.run_path(head["jail"])
    held = jail["enter"](head["readable"], head["limits"], head["parent"])
    if not head["partial"] and not all(held.values()):
        raise SystemExit("this system cannot isolate")
    tempfile.tempdir = os.getcwd()  # else libraries try to write before they are content with one
    sys.path += head["path"]
    sys.meta_path.insert(0, Roots(head["roots"]))
    from overheard.isolation.envelope import pack, pack_failure, unpack_call

    try:
        attack, view, rng = unpack_call(source.read())
        packed = pack(attack(view, rng))
    except Exception as error:
        answer.write(pack_failure(error))
        answer.flush()
        raise SystemExit(3) from error
    answer.write(packed)
    answer.flush()


if __name__ == "__main__":
    main()
