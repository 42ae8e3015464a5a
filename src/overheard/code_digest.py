"""Digests of this package's code: what other code found is not what this one would find.

`package_digest` is about the whole package, `code_of` about some modules, such as those that one of
them stands on: which it imports, which these import, and so on, read from the source and never by
running it. Neither words nor places count there: comments and docstrings have no part in the
digest, and a module that is moved or renamed is the same code. The modules may be of a package
beside this one (the repository's papers/ and benchmarks/), which stands on this one.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import tokenize
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache
from importlib import resources
from importlib.util import resolve_name
from typing import Any, Literal

PACKAGE = __name__.partition(".")[0]
Apart = Mapping[str, frozenset[str]]
Age = Literal["current", "older", "unknown"]
MAKES_NO_NUMBER = frozenset({f"{PACKAGE}.errors", f"{PACKAGE}.code_digest"})
"""On these every module stands, and no result depends on them."""


@cache
def package_digest() -> str:
    """By the content of every source file; read once a process."""
    total = hashlib.sha256()
    for name in sorted(sources()):
        total.update(hashlib.sha256(sources()[name].encode()).digest())
    return total.hexdigest()


def code_of(modules: Collection[str]) -> str:
    """A digest of the code of these modules; `stands_on` says which ones somebody depends on.

    A module counts by its text, without its own name. What it imports from another one of
    ``modules`` counts by that one's text, what it imports from the rest of ours by nothing, and
    what it imports from others by its name; in which order the imports stand is left out.
    """
    digests = []
    for name in modules:
        text, imported = body(name), []
        for target, taken, bound in _bindings(name):
            ours = _digest(body(target)) if target in modules else ""
            imported.append(f"{ours if is_ours(target, name) else target} {taken} {bound}")
        digests.append(_digest("\n".join([text, *sorted(imported)])))
    return _digest("\n".join(sorted(digests)))[:32]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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
    """The modules, and those of ours that they import, directly or through others.

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
def sources(package: str = PACKAGE) -> dict[str, str]:
    """The source of every module of a package, by its full name."""
    found = {}
    with resources.as_file(resources.files(package)) as folder:
        for path in folder.rglob("*.py"):
            parts = [package, *path.relative_to(folder).with_suffix("").parts]
            name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found[name] = path.read_text(encoding="utf-8")
    return found


def is_ours(name: str, by: str) -> bool:
    """Is it a module of this package, or of the one that the module ``by`` is in?"""
    top = name.partition(".")[0]
    return top in (PACKAGE, by.partition(".")[0]) and name in sources(top)


def _source(module: str) -> str:
    return sources(module.partition(".")[0])[module]


@cache
def imports(module: str) -> dict[str, frozenset[str]]:
    """Which modules of ours a module imports, and what from them; whole: nothing named."""
    found: dict[str, frozenset[str]] = {}
    for target, taken, _ in _bindings(module):
        if target.endswith(".*"):
            known = sources(target.partition(".")[0])
            found |= {other: frozenset() for other in known if other.startswith(target[:-1])}
        if is_ours(target, module):
            before = found.get(target)
            named = frozenset([taken]) if taken else frozenset[str]()
            found[target] = (
                named if before is None else before | named if before and taken else named
            )
    return found


@cache
def _bindings(module: str) -> tuple[tuple[str, str, str], ...]:
    """(module, what is taken from it or nothing if it is the whole, how that is called here)."""
    package = module if _is_package(module) else module.rpartition(".")[0]
    found = []
    for target, taken, bound in _imported(ast.parse(_source(module)), package):
        below = f"{target}.{taken}"
        whole = bool(taken) and is_ours(below, module)
        found.append((below, "", bound) if whole else (target, taken, bound))
    return tuple(found)


def _is_package(module: str) -> bool:
    known = sources(module.partition(".")[0])
    return any(other.startswith(f"{module}.") for other in known)


def _imported(tree: ast.AST, package: str) -> Iterator[tuple[str, str, str]]:
    """(module, name, bound to) of everything that is imported when the code is run."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING"), orelse=otherwise):
                yield from _imported(ast.Module(otherwise, []), package)
                continue
            case ast.Import(names=names):
                yield from ((alias.name, "", alias.asname or "") for alias in names)
            case ast.ImportFrom(module=base, names=names, level=level):
                where = "." * level + (base or "")
                where = resolve_name(where, package) if level else where
                yield from ((where, a.name, a.asname or a.name) for a in names)
            case ast.Constant(value=str(text)) if _names_ours(text, package):
                yield text, "", ""
        yield from _imported(node, package)


def _names_ours(text: str, by: str) -> bool:
    if text.endswith(".*"):
        return text.startswith(f"{PACKAGE}.") and " " not in text
    return "." in text and is_ours(text, by)


@cache
def body(module: str) -> str:
    """What a module says apart from its imports and from strings that name a module of ours."""

    def imports_something(node: ast.AST) -> bool:
        match node:
            case ast.Constant(value=str(text)):
                return _names_ours(text, module)
            case _:
                return isinstance(node, ast.Import | ast.ImportFrom)

    return bare(_source(module), imports_something)


def bare(source: str, left_out: Callable[[ast.AST], bool] = lambda node: False) -> str:
    """The source without comments, docstrings (any string that nobody uses) and empty lines.

    ``left_out``: which pieces of the code go too.
    """
    lines = source.splitlines()
    cuts = [
        ((token.start[0], token.start[1]), (token.end[0], token.end[1]))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                cuts.append(_span(node, lines))
            case ast.stmt() | ast.expr() if left_out(node):
                cuts.append(_span(node, lines))
    for (first, start), (last, end) in sorted(set(cuts), reverse=True):
        lines[first - 1 : last] = [lines[first - 1][:start] + lines[last - 1][end:]]
    return "\n".join(line.rstrip() for line in lines if line.strip())


Place = tuple[int, int]


def _span(node: ast.stmt | ast.expr, lines: list[str]) -> tuple[Place, Place]:
    """Where a piece of code begins and ends: the line, and the letter in it."""
    last = node.end_lineno or node.lineno
    start = len(lines[node.lineno - 1].encode()[: node.col_offset].decode())
    end = len(lines[last - 1].encode()[: node.end_col_offset].decode())
    return (node.lineno, start), (last, end)
