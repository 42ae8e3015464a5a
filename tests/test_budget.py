"""The code stays within the budget of docs/architecture.md, so that one person can know all of it.

Lines of code are counted without blank lines, comments and docstrings: explaining costs nothing. A
change that needs room makes it first.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "overheard"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
TABLE = PAGE.partition("<!-- test: budget -->")[2]
BUDGET = {
    name: int(bound.replace(",", ""))
    for name, bound in re.findall(r"^\| `(.+?)` \| ([\d,]+) \|", TABLE, re.MULTILINE)
}
LONGEST = 600
"""Lines of a module, with everything: more than that holds two ideas."""
NUMBERED = ("attacks", "decoding", "programs", "questions", "identify", "guard")
LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(source: str) -> int:
    """Lines that hold a token, less those of strings that stand alone: they document something."""
    documentation = {
        line
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = {
        line
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type not in LAYOUT
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - documentation)


def is_number(node: ast.expr | None) -> bool:
    """A number, or an expression of numbers alone."""
    if node is None or any(isinstance(part, ast.Name | ast.Attribute) for part in ast.walk(node)):
        return False
    values = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
    return bool(values) and all(type(value) in (int, float) for value in values)


def tuning_numbers(source: str) -> int:
    """Numbers that have a name at the top of a module."""
    found = 0
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and is_number(node.value):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            found += len(target.elts) if isinstance(target, ast.Tuple) else 1
    return found


def sources(name: str) -> list[str]:
    """The files of a row: a package, the modules beside the packages, or a folder of the root."""
    if name == "modules":
        paths = list(PACKAGE.glob("*.py"))
    else:
        place = PACKAGE / name if (PACKAGE / name).is_dir() else ROOT / name
        paths = list(place.rglob("*.py"))
    return [path.read_text(encoding="utf-8") for path in paths]


def test_every_package_has_a_budget() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert packages <= set(BUDGET)


@pytest.mark.parametrize("name", [name for name in BUDGET if name != "tuning numbers"])
def test_lines_of_code_stay_within_the_budget(name: str) -> None:
    found = sum(map(code_lines, sources(name)))
    assert 0 < found <= BUDGET[name], f"{name}: {found} lines of code; make room first"


def test_tuning_numbers_do_not_multiply() -> None:
    found = sum(tuning_numbers(source) for name in NUMBERED for source in sources(name))
    assert found <= BUDGET["tuning numbers"], (
        f"{found}: pass settings as a frozen Options dataclass"
    )


def test_no_module_is_too_long_to_be_read() -> None:
    lengths = {path: path.read_text("utf-8").count("\n") for path in PACKAGE.rglob("*.py")}
    assert {path.name: n for path, n in lengths.items() if n > LONGEST} == {}


def test_what_documents_is_free_and_what_runs_counts() -> None:
    source = (
        '"""Says why."""\n\nA, B = 1, -2.5  # two\n'
        'C = (\n    "text"\n)\n\n\ndef f():\n    """Says what."""\n'
    )
    assert (code_lines(source), tuning_numbers(source)) == (5, 2)
