"""Opening a file by a name that may be a trap: a device, a pipe, a link, a hole of a petabyte; and
reading foreign JSON and TOML: bounded in bytes, values and depth, with finite numbers only."""

from __future__ import annotations

import json
import math
import os
import re
import stat
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader, FileIO
from pathlib import Path
from typing import Any

from overheard.errors import FixConfig, FixRecording, OverheardError
from overheard.foreign.limits import beyond, check

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


@contextmanager
def opened(
    path: Path, follow: bool = False, error: type[OverheardError] = FixRecording
) -> Iterator[tuple[FileIO, int]]:
    """A plain file, unbuffered, and its size; anything else is refused and never waited for.

    ``follow``: a symbolic link is taken for what it leads to, as for a path that the user named.
    """
    try:
        handle = os.open(path, _FLAGS | (0 if follow else os.O_NOFOLLOW))
    except (OSError, ValueError) as problem:
        raise error(f"{path}: cannot be read ({_why(path, problem)})") from problem
    try:
        state = os.fstat(handle)
        if not stat.S_ISREG(state.st_mode):
            raise error(f"{path}: is not a plain file; only plain files are read")
        with FileIO(handle, closefd=False) as file:
            yield file, state.st_size
    finally:
        os.close(handle)


def read_bounded(
    path: Path, bound: str, follow: bool = False, error: type[OverheardError] = FixRecording
) -> bytes:
    """The bytes of a plain file no larger than the limit of this name."""
    with opened(path, follow, error) as (file, size):
        check(bound, size, path, error)
        try:
            raw = BufferedReader(file).read(size + 1)
        except OSError as problem:
            raise error(f"{path}: cannot be read ({problem.strerror})") from problem
        if len(raw) > size:
            raise beyond(bound, path, error)  # it grows while it is read
    return raw


def inside(root: Path, path: Path) -> bool:
    """Whether a path, every link resolved, is the folder or lies in it."""
    try:
        return path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError, ValueError):  # a loop of links; a NUL in the name
        return False


def _why(path: Path, problem: Exception) -> str:
    if isinstance(problem, OSError) and path.is_symlink():
        return "it is a symbolic link, and these are not followed here"
    return (problem.strerror if isinstance(problem, OSError) else None) or str(problem)


# ------------------------------------------------------------------------------ JSON and TOML

# A key of TOML, or a text in quotes, and the dots that join several. The standard library's parser
# takes time with the square of the parts of one key: for a megabyte of "a.a.a..." it takes days.
_PART = re.compile(r"""[A-Za-z0-9_-]++|"(?:\\.|[^"\\\n])*+"?|'[^'\n]*+'?""")
_KEY = re.compile(rf"(?:{_PART.pattern})(?:[ \t]*+\.[ \t]*+(?:{_PART.pattern}))*+")
_HALVES = re.compile(r"\\u[dD][89a-fA-F]")
_LARGEST = 1 << 63  # of a whole number: more no field of ours holds, and numpy refuses


def parse_json(raw: bytes | str, where: object, error: type[OverheardError] = FixRecording) -> Any:
    """What a JSON text says; NaN, infinity and what is beyond the limits are refused."""
    try:
        text = raw.decode("utf-8") if isinstance(raw, bytes) else raw
    except UnicodeDecodeError as problem:
        raise error(f"{where}: is not JSON: it is not UTF-8") from problem
    values = text.count("[") + text.count("{") + text.count(",")
    check("json_values", values, where, error)
    try:
        content = json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError as problem:
        raise beyond("depth", where, error) from problem
    except ValueError as problem:
        raise error(f"{where}: is not JSON: {str(problem).partition(';')[0]}") from problem
    _check_content(content, where, error)
    if _HALVES.search(text):
        try:
            json.dumps(content, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as problem:
            raise error(f"{where}: is not JSON: half a pair of surrogates is no text") from problem
    return content


def read_json(path: Path) -> Any:
    """What a JSON file says."""
    return parse_json(read_bounded(path, "json_bytes", follow=True), path)


def read_toml(path: str | Path, error: type[OverheardError] = FixConfig) -> dict[str, Any]:
    """What a TOML file says."""
    file = Path(path)
    raw = read_bounded(file, "toml_bytes", True, error)
    try:
        text = raw.decode("utf-8")
        for key in _KEY.finditer(text):
            if key[0].count(".") > 8:
                check("depth", len(_PART.findall(key[0])), file, error)
        content = tomllib.loads(text)
    except RecursionError as problem:
        raise beyond("depth", file, error) from problem
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValueError) as problem:
        raise error(f"{file}: is not TOML: {problem}") from problem
    _check_content(content, file, error)
    return content


def _check_content(content: Any, where: object, error: type[OverheardError]) -> None:
    """Refuse what is nested too deeply, and values that are neither text, truth nor a number of
    ordinary size; whether a number is finite, the settings that take one say themselves."""
    level, depth = [content], 0
    while level:
        check("depth", depth, where, error)
        below: list[Any] = []
        for value in level:
            kind = type(value)  # parsers make no subclasses; most values are texts and numbers
            if kind is str or kind is float or kind is bool or value is None:
                continue
            if kind is int:
                if abs(value) > _LARGEST:
                    raise error(f"{where}: a whole number beyond 2^63; give a smaller one")
            elif kind is dict:
                below += value.values()
            elif kind is list:
                below += value
            else:
                raise error(f"{where}: {value} is a date or time; write it as text, in quotes")
        level, depth = below, depth + 1


def _finite(text: str) -> float:
    """The number of a text; what is infinite or none at all JSON does not know."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:40]} is no number of JSON, or too large for one")
    return number
