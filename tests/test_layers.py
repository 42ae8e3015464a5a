"""Imports go one way, and strangers' files are never executed.

The rules are the table below. A new layer, or a new arrow between two, is a change of design:
change the table in the same commit and say why.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "overheard"
OUTSIDE = frozenset({"papers", "benchmarks"})
"""Packages of the repository that stand on this one: they may import all of it."""

BASE = frozenset({"errors", "files", "foreign", "randomness"})

# layer -> what it may import of ours; "a.b" admits that module only, "a" everything below a.
# A layer is a folder or a file under src/overheard, the innermost that is named here. Every layer
# may import itself.
RULES: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "files": frozenset({"errors"}),  # how everybody writes: whole or not at all
    "foreign": frozenset({"errors"}),  # how strangers' files are opened
    "origin": frozenset(),  # which commit this is, for files of results
    "randomness": frozenset({"errors"}),
    "workers": frozenset({"errors"}),  # processes for sweeps and audits of many
    "plot": frozenset({"foreign"}),  # whoever draws: the report, sweeps, and what is outside
    # what a client does; a network is computed by the kernel of its architecture; what a program
    # releases is a measurement of its records
    "programs": BASE | {"decoding.measurement", "decoding.sparse_equations"},
    "decoding": frozenset({"errors"}),
    "data": BASE | {"programs.recipe", "programs.records"},
    # and these without torch (how a seed becomes an order is a part of what is known of it); what
    # may be asked is found by its name, not imported
    "transcript": BASE
    | {"programs.program", "programs.recipe", "programs.records", "programs.orders"}
    | {"questions.question"},
    # the types of questions and metrics, and how their files are found: asked by everybody
    "questions.question": frozenset({"errors"}),
    # a question's own file knows how it is scored and what it is called; nobody imports it
    "questions": BASE | {"programs", "transcript", "evaluation", "report", "questions.question"},
    "federation": BASE | {"programs", "transcript", "data"},
    "attacks": BASE | {"programs", "transcript", "decoding"},
    "evaluation": BASE | {"programs", "transcript", "decoding", "attacks"} | {"questions.question"},
    "report": frozenset({"errors", "files", "foreign", "plot", "evaluation.record"})
    | {"evaluation.suspected", "evaluation.decision", "questions.question"},
    # a client's own rehearsal: it trains, attacks itself and scores the guess
    "guard": BASE
    | {"programs", "transcript", "federation", "attacks", "evaluation"}
    | {"questions.question"},
    # a sweep drives the chain from data to audit, and draws what comes of it
    "sweep": BASE
    | {"programs", "transcript", "data", "federation", "attacks", "evaluation"}
    | {"plot", "questions.question", "workers"},
    # what a stranger's recording shows: descriptions of it are tried as an audit would be told
    "identify": BASE
    | {"data", "programs", "transcript", "federation", "attacks.wire", "evaluation"},
}
# The entry points see everything, and nothing sees them.
ENTRY_POINTS = frozenset({"__init__", "__main__", "cli", "flower", "nvflare", "terminal"})

# layer -> third parties that it must not import, not even inside a function
FOREIGN: dict[str, frozenset[str]] = {
    "transcript": frozenset({"torch", "safetensors.torch", "sklearn", "scipy"}),
    "decoding": frozenset({"torch", "pyarrow", "safetensors"}),
    "report": frozenset({"torch", "sklearn", "scipy", "numpy.linalg", "pyarrow"}),
}
# What an attack raises becomes a part of the audit's record here, and nowhere else.
CATCHES = frozenset({"evaluation.attempt"})
# Loading any of these can run code that somebody else wrote.
UNSAFE_MODULES = frozenset({"pickle", "cloudpickle", "dill", "marshal", "shelve"})
UNSAFE_CALLS = frozenset(
    {"eval", "exec", "__import__", "torch.load", "joblib.load", "joblib.dump", "yaml.load"}
)


def within(name: str, prefixes: frozenset[str]) -> bool:
    """Is the dotted name one of the prefixes, or below one?"""
    return any(name == p or name.startswith(p + ".") for p in prefixes)


def layer_of(module: str) -> str:
    """The innermost layer of the table that holds the module."""
    inside = [layer for layer in RULES if within(module, frozenset({layer}))]
    return max(inside, key=len, default=module.split(".")[0])


def imports(tree: ast.Module, package: str) -> Iterator[tuple[int, str]]:
    """(line, absolute dotted name) of everything imported, wherever in the file it is."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: package.count(".") + 2 - node.level]
            base = ".".join([*parents, node.module or ""]) if node.level else node.module or ""
            yield from ((node.lineno, f"{base.rstrip('.')}.{a.name}") for a in node.names)


def dotted(node: ast.expr) -> str:
    """The name that is called: torch.load, eval, x.y.z."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return f"{dotted(node.value)}.{node.attr}"
    return ""


def swallows(handler: ast.ExceptHandler) -> bool:
    """Does it catch everything and let nobody know?"""
    if handler.type is None:
        return True
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    broad = any(dotted(c) in {"Exception", "BaseException"} for c in caught)
    return broad and not any(isinstance(n, ast.Raise) for n in ast.walk(handler))


def refuses(keyword: ast.keyword) -> bool:
    """Is it keyword=False, written out?"""
    return isinstance(keyword.value, ast.Constant) and keyword.value.value is False


def violations(source: str, module: str, *, is_package: bool = False) -> list[str]:
    """Every rule that the source of the module (dotted, below overheard) breaks."""
    layer = layer_of(module)
    if layer not in RULES and layer not in ENTRY_POINTS:
        return [f"{module}: no layer of this name in tests/test_layers.py; add a rule for it"]
    tree = ast.parse(source)
    full = f"overheard.{module}"
    found = []
    for line, name in imports(tree, full if is_package else full.rpartition(".")[0]):
        where = f"{module}:{line}: imports {name}"
        if within(name, OUTSIDE):
            found.append(f"{where}, which is not in the package")
        if within(name, UNSAFE_MODULES):
            found.append(f"{where}, which can run code from a file")
        if name in UNSAFE_CALLS:
            found.append(f"{where}, which runs code from its input")
        if within(name, FOREIGN.get(layer, frozenset())):
            found.append(f"{where}; {layer} must not")
        if within(name, frozenset({"overheard"})) and layer in RULES:
            ours = name.removeprefix("overheard").removeprefix(".")
            if not within(ours, RULES[layer] | {layer}):
                allowed = ", ".join(sorted(RULES[layer])) or "nothing of ours"
                found.append(f"{where}; {layer} may import {allowed}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and dotted(node.func) in UNSAFE_CALLS:
            found.append(f"{module}:{node.lineno}: {dotted(node.func)} runs code from its input")
        if isinstance(node, ast.keyword) and node.arg == "allow_pickle" and not refuses(node):
            found.append(f"{module}:{node.value.lineno}: allow_pickle must be False")
        if isinstance(node, ast.ExceptHandler) and swallows(node) and module not in CATCHES:
            found.append(f"{module}:{node.lineno}: catches everything and does not raise")
    return found


def modules() -> list[Path]:
    return sorted(SRC.rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda p: p.relative_to(SRC).as_posix())
def test_module_keeps_the_rules(path: Path) -> None:
    parts = list(path.relative_to(SRC).with_suffix("").parts)
    is_package = parts[-1] == "__init__" and len(parts) > 1
    module = ".".join(parts[:-1] if is_package else parts)
    assert violations(path.read_text(encoding="utf-8"), module, is_package=is_package) == []


@pytest.mark.parametrize(
    "path",
    sorted(path for package in OUTSIDE for path in (ROOT / package).rglob("*.py")),
    ids=lambda p: p.relative_to(ROOT).as_posix(),
)
def test_what_is_outside_runs_no_strangers_code_either(path: Path) -> None:
    found = violations(path.read_text(encoding="utf-8"), "cli")
    assert [line for line in found if "not in the package" not in line] == []


def test_every_name_in_the_table_exists() -> None:
    """A rule about something that was renamed away would keep nothing."""
    names = set(RULES) | set(FOREIGN) | frozenset[str]().union(*RULES.values())
    paths = [SRC.joinpath(*name.split(".")) for name in names]
    assert [p for p in paths if not (p.is_dir() or p.with_suffix(".py").is_file())] == []


def test_the_rules_have_no_cycle() -> None:
    arrows = {a: {layer_of(target) for target in bs} - {a} for a, bs in RULES.items()}
    while arrows:
        leaves = {a for a, bs in arrows.items() if not bs & arrows.keys()}
        assert leaves, f"these layers import each other: {sorted(arrows)}"
        arrows = {a: bs for a, bs in arrows.items() if a not in leaves}


@pytest.mark.parametrize(
    ("module", "source", "complaint"),
    [
        ("attacks.label.x", "from overheard.evaluation import metrics", "attacks may import"),
        ("attacks.label.x", "from ...evaluation.metrics import accuracy", "attacks may import"),
        ("attacks.label.x", "def f():\n    import overheard.data", "attacks may import"),
        ("attacks.label.x", "from overheard import Recording", "attacks may import"),
        ("attacks.label.x", "import overheard", "attacks may import"),
        ("programs.x", "from .. import transcript", "programs may import"),
        ("errors", "from .learning import x", "nothing of ours"),
        ("transcript.x", "from overheard.programs import sgd", "transcript may import"),
        ("transcript.x", "def f():\n    import torch.nn", "transcript must not"),
        ("transcript.x", "from safetensors.torch import save_file", "transcript must not"),
        ("report.html", "from numpy import linalg", "report must not"),
        ("report.html", "from overheard.evaluation.metrics import accuracy", "report may import"),
        ("utils", "", "no layer of this name"),
        ("cli", "def f():\n    from papers.common import rows", "not in the package"),
        ("cli", "import pickle", "can run code"),
        ("cli", "from torch import load", "runs code"),
        ("cli", "import torch\ntorch.load('x')", "torch.load runs code"),
        ("cli", "eval('1')", "eval runs code"),
        ("cli", "import numpy as np\nnp.load('x', allow_pickle=True)", "allow_pickle"),
        ("cli", "try:\n    f()\nexcept:\n    raise", "catches everything"),
        ("cli", "try:\n    f()\nexcept Exception:\n    pass", "catches everything"),
        ("cli", "try:\n    f()\nexcept (ValueError, Exception):\n    log()", "catches everything"),
    ],
)
def test_the_checker_sees_what_is_wrong(module: str, source: str, complaint: str) -> None:
    found = violations(source, module)
    assert len(found) == 1
    assert complaint in found[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("attacks.label.x", "from overheard.transcript import View\nfrom ... import errors"),
        ("attacks.label.x", "from .baseline import guess\nimport torch\nmodel.eval()"),
        ("transcript.x", "from overheard.programs.recipe import Recipe\nimport numpy"),
        ("report.html", "from overheard.evaluation.record import Audit\nimport numpy"),
        ("cli", "from overheard import data, federation, report"),
        ("cli", "try:\n    f()\nexcept BaseException:\n    undo()\n    raise"),
        ("cli", "try:\n    f()\nexcept OverheardError:\n    pass"),
    ],
)
def test_the_checker_leaves_the_rest_alone(module: str, source: str) -> None:
    assert violations(source, module) == []


def test_relative_imports_of_a_package_start_at_the_package() -> None:
    assert violations("from .view import View", "transcript", is_package=True) == []
    assert violations("from ..errors import FixData", "transcript", is_package=True) == []
    assert violations("from ..report import html", "transcript", is_package=True)
