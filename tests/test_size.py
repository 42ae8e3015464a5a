"""Nothing in the package is too large to be read: parameters of a function, lines of a module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "overheard"
PARAMETERS, LINES = 7, 450
MODULES = {str(path.relative_to(SRC)): path.read_text("utf-8") for path in SRC.rglob("*.py")}


def parameters(source: str) -> Iterator[tuple[str, int]]:
    """Every function, however deep, and how many parameters it has; ``self`` is none."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = node.args
            named = [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
            own = named[:1] in (["self"], ["cls"])
            yield (
                node.name,
                len(named) - own + sum(x is not None for x in (given.vararg, given.kwarg)),
            )


def test_functions_take_at_most_seven_parameters() -> None:
    large = {
        f"{module} {name}"
        for module, source in MODULES.items()
        for name, many in parameters(source)
        if many > PARAMETERS
    }
    assert large == set()


def test_modules_have_at_most_450_lines() -> None:
    assert {m for m, source in MODULES.items() if source.count("\n") > LINES} == set()


def test_every_kind_of_parameter_counts() -> None:
    source = "class A:\n def f(self, a, /, b, *c, d=1, **e): pass\nasync def g(): pass\n"
    assert dict(parameters(source)) == {"f": 5, "g": 0}
