"""Digests of this package's code: what other code found is not what this one would find.

`own_code` is about the whole package, `code_of` about some modules, such as those that one of them
stands on: which it imports, which these import, and so on, read from the source and never by
running it. Words do not count there: comments and docstrings have no part in the digest.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import tokenize
from collections.abc import Collection, Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.util import resolve_name
from typing import Any, Literal

PACKAGE = __name__.partition(".")[0]
Apart = Mapping[str, frozenset[str]]
Age = Literal["current", "older", "unknown"]
MAKES_NO_NUMBER = frozenset({f"{PACKAGE}.errors", f"{PACKAGE}.own_code"})
"""On these every module stands, and no result depends on them."""


@cache
def own_code() -> str:
    """By the content of every source file; read once a process."""
    total = hashlib.sha256()
    for name in sorted(sources()):
        total.update(hashlib.sha256(sources()[name].encode()).digest())
    return total.hexdigest()


def code_of(modules: Collection[str]) -> str:
    """A digest of the code of these modules; `stands_on` says which ones somebody depends on."""
    total = hashlib.sha256()
    for name in sorted(modules):
        for part in (name, bare(sources()[name])):
            total.update(hashlib.sha256(part.encode()).digest())
    return total.hexdigest()[:32]


def seal(row: Mapping[str, Any]) -> str:
    """A digest of all that a result says, but for the seal itself: who edits one breaks it."""
    content = {name: value for name, value in row.items() if name != "seal"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def age_of(code: str | None, today: str | None) -> Age:
    """Of a result, by the code that it was measured by and that which would measure it today.

    None is a result that does not say, and something that nobody measures any more.
    """
    if code is None:
        return "unknown"
    return "current" if code == today else "older"


def stands_on(
    *modules: str, apart: Apart | None = None, without: Collection[str] = ()
) -> frozenset[str]:
    """The modules, and those of this package that they import, directly or through others.

    Imports inside functions count, those for type checkers alone do not; a string that is the full
    name of a module counts as an import of it, and one that ends in ``.*`` of all in that folder.
    ``apart``: names by module; who imports nothing but such names from there is not taken to stand
    on that module. ``without``: modules left out.

    Not seen: what is imported by a name that is put together at run time, and the ``__init__`` of
    the packages on the way to a module (they hold no code that a number could depend on).
    """
    apart = apart or {}
    found: set[str] = set()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in found or name in without:
            continue
        found.add(name)
        waiting += [
            target
            for target, names in imports(name).items()
            if not (names and names <= apart.get(target, frozenset()))
        ]
    return frozenset(found)


@cache
def sources() -> dict[str, str]:
    """The source of every module of this package, by its full name."""
    found = {}
    with resources.as_file(resources.files(PACKAGE)) as folder:
        for path in folder.rglob("*.py"):
            parts = [PACKAGE, *path.relative_to(folder).with_suffix("").parts]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = path.read_text(encoding="utf-8")
    return found


@cache
def imports(module: str) -> dict[str, frozenset[str]]:
    """Which modules of this package a module imports, and what from them; whole: nothing named."""
    found: dict[str, frozenset[str]] = {}
    known = sources()
    is_package = any(other.startswith(f"{module}.") for other in known)
    package = module if is_package else module.rpartition(".")[0]
    for target, name in _imported(ast.parse(known[module]), package):
        if target.endswith(".*"):
            found |= {other: frozenset() for other in known if other.startswith(target[:-1])}
        whole, part = (f"{target}.{name}", "") if f"{target}.{name}" in known else (target, name)
        if whole in known:
            before = found.get(whole)
            named = frozenset([part]) if part else frozenset[str]()
            found[whole] = named if before is None else before | named if before and part else named
    return found


def _imported(tree: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    """(module, name) of everything that is imported when the code is run."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=otherwise):
                yield from _imported(ast.Module(otherwise, []), package)
                continue
            case ast.Import(names=names):
                yield from ((alias.name, "") for alias in names)
            case ast.ImportFrom(module=base, names=names, level=level):
                where = "." * level + (base or "")
                where = resolve_name(where, package) if level else where
                yield from ((where, alias.name) for alias in names)
            case ast.Constant(value=str(text)) if text.startswith(f"{PACKAGE}."):
                yield text, ""
        yield from _imported(node, package)


@cache
def bare(source: str) -> str:
    """The source without comments, docstrings (any string that nobody uses) and empty lines."""
    lines = source.splitlines()
    cuts = [
        ((token.start[0], token.start[1]), (token.end[0], token.end[1]))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str()), end_lineno=int(last)):
                start = len(lines[node.lineno - 1].encode()[: node.col_offset].decode())
                end = len(lines[last - 1].encode()[: node.end_col_offset].decode())
                cuts.append(((node.lineno, start), (last, end)))
    for (first, start), (last, end) in sorted(cuts, reverse=True):
        lines[first - 1 : last] = [lines[first - 1][:start] + lines[last - 1][end:]]
    return "\n".join(line.rstrip() for line in lines if line.strip())
