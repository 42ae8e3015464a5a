"""What a question or a metric is called is compared in one place only: in questions/."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from overheard.questions.question import all_metrics, all_questions

SRC = Path(__file__).parents[1] / "src" / "overheard"
ASKED = frozenset({"question", "metric"})
TEMPLATE = re.compile(r"\b(question|metric)\b\s*(==|!=|(not\s+)?in\s+[\[(])")


def named(node: ast.expr) -> bool:
    """Is it something.question, metric, or row["metric"]?"""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in ASKED
        case ast.Subscript(slice=ast.Constant(value=str(name))):
            return name in ASKED
        case ast.Call(func=ast.Attribute(attr="get"), args=[ast.Constant(value=str(name)), *_]):
            return name in ASKED
    return False


def comparisons(tree: ast.AST, names: frozenset[str]) -> list[int]:
    """Lines that compare a name of a question or metric, or look something up by one."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, ops=ops, comparators=others):
                sides = [left, *others]
                equal = any(isinstance(op, ast.Eq | ast.NotEq) for op in ops)
                literal = any(
                    isinstance(op, ast.In | ast.NotIn)
                    and isinstance(side, ast.Tuple | ast.List | ast.Set)
                    for op, side in zip(ops, others, strict=True)
                )
                if (equal or literal) and any(map(named, sides)):
                    found.append(node.lineno)
            case ast.Dict(keys=keys):
                texts = {k.value for k in keys if isinstance(k, ast.Constant)}
                if len(texts & names) > 1:
                    found.append(node.lineno)
            case ast.Match(subject=subject) if named(subject):
                found.append(node.lineno)
    return found


@pytest.fixture(scope="module")
def names() -> frozenset[str]:
    return frozenset(all_questions()) | frozenset(all_metrics())


def test_nobody_else_compares_their_names(names: frozenset[str]) -> None:
    found = [
        f"{path.relative_to(SRC)}:{line}"
        for path in sorted(SRC.rglob("*.py"))
        if path.relative_to(SRC).parts[0] != "questions"
        for line in comparisons(ast.parse(path.read_text(encoding="utf-8")), names)
    ]
    assert found == []


def test_no_template_does() -> None:
    for path in SRC.rglob("*.j2"):
        assert not TEMPLATE.search(path.read_text(encoding="utf-8")), path.name


@pytest.mark.parametrize(
    "source",
    [
        "if found.metric == 'f1': pass",
        "x = [a for a in b if a.question != c.question]",
        "share = row.metric in ('accuracy', 'f1')",
        "row.get('metric') != 'accuracy'",
        "key['question'] == 'label'",
        "{'attribute': 1, 'label': 2}[x]",
        "match found.metric:\n    case 'f1': pass",
    ],
)
def test_the_checker_sees_what_is_wrong(source: str, names: frozenset[str]) -> None:
    assert comparisons(ast.parse(source), names)


@pytest.mark.parametrize(
    "source",
    [
        "if found.measure.share: pass",
        "metric is None",
        "{'label': 2, 'client': 3}",
        "all_metrics().get(row.get('metric'))",
    ],
)
def test_the_checker_leaves_the_rest_alone(source: str, names: frozenset[str]) -> None:
    assert comparisons(ast.parse(source), names) == []
