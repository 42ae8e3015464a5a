"""Nothing in the package is too large to be read: parameters of a function, lines of a module; and
what is still too large as a whole does not grow: the package, and the numbers that somebody chose.

Whoever makes something smaller lowers its bound here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[1] / "src" / "overheard"
PARAMETERS, LINES = 7, 450
PACKAGE_LINES = 48_468
"""Of all modules together; 26,000 are wanted."""
CONSTANTS, UNEXPLAINED = 225, 0
"""Numbers in attacks/ and decoding/ that have a name at the top of a module (60 are wanted), and
how many of them have no word beside them that says where they come from."""
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


def is_number(node: ast.expr | None) -> bool:
    """A number, or what is made of numbers: a power, a pair, ``float("inf")`` is none."""
    match node:
        case ast.Constant(value=bool()):
            return False
        case ast.Constant(value=int() | float()):
            return True
        case ast.UnaryOp(operand=inner):
            return is_number(inner)
        case ast.BinOp(left=left, right=right):
            return is_number(left) and is_number(right)
        case ast.Tuple(elts=[_, *_] as parts):
            return all(map(is_number, parts))
        case ast.Call(args=given):
            return any(map(is_number, given))
    return False


def constants(source: str) -> Iterator[tuple[str, bool]]:
    """The numbers that have a name in capitals, and whether there is a word about each: a comment
    on its line or above it, or a string below."""
    lines, body = source.splitlines(), ast.parse(source).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or not is_number(node.value):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        below = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
        above = lines[node.lineno - 2].startswith("#") if node.lineno > 1 else False
        told = below or above or "#" in lines[(node.end_lineno or node.lineno) - 1]
        for target in targets:
            for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(name, ast.Name) and name.id == name.id.upper():
                    yield name.id, told


def test_the_package_does_not_grow() -> None:
    assert sum(source.count("\n") for source in MODULES.values()) <= PACKAGE_LINES


def test_numbers_that_somebody_chose_do_not_multiply() -> None:
    found = {
        f"{module} {name}": told
        for module, source in MODULES.items()
        if module.startswith(("attacks/", "decoding/"))
        for name, told in constants(source)
    }
    silent = [name for name, told in found.items() if not told]
    assert len(found) <= CONSTANTS
    assert len(silent) <= UNEXPLAINED, f"say beside these where they come from: {silent}"


def test_every_named_number_counts() -> None:
    source = (
        'A, B = 1, 2.5\nC = 1 << 3  # room\nD: float = -1e-3\n"why"\n# why\nE = frozenset((1, 2))\n'
        "f = 3\nG = 'text'\nH = True\nI = ()\n"
    )
    found = dict(constants(source))
    assert found == {"A": False, "B": False, "C": True, "D": True, "E": True}
