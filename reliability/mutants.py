"""Would the tests notice? The decoders and the scores are broken on purpose, a little at a time.

    python reliability/mutants.py [--sample 200] [--seed 0] [--only decoding/ridge.py]
    python reliability/mutants.py --scores --sample 0

A mutant is one change in the body of one function: a comparison, an arithmetic operator, a number,
a condition, a minimum for a maximum. For each of a random sample (``--sample 0``: for every one)
the tests of that file are run until one fails. What survives is listed with a judgement from
``judged/mutants.json``: "equivalent" (no input tells it from the original beyond rounding),
"tuning" (a heuristic's constant or safety margin, about which no test should be exact) or what is
missing. Written to ``mutants.json``; ``--scores``, of the files that make intervals and scores, to
``mutants_scores.json``.

Everything is imported once. Each mutant is a fork in which the function's code object is replaced,
so that every module that holds the function sees the change.
"""

from __future__ import annotations

import argparse
import ast
import copy
import importlib
import json
import os
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SOURCE = ROOT / "src" / "overheard"
FOLDERS = ("decoding", "evaluation")
SHARED = ("test_slow_twins", "test_high_precision", "test_edges")
# where a file's tests do not have its name
TESTS = {
    "decoding/batch_noise.py": ("test_surrogate",),
    "decoding/counts.py": ("test_counts",),
    "decoding/logistic_surrogate.py": ("test_surrogate",),
    "decoding/matrix_free.py": ("test_counts",),
    "decoding/mixed_chains.py": ("test_mixed_model",),
    "decoding/noisy.py": ("test_noisy",),
    "decoding/successive.py": ("test_successive", "test_ladder"),
    "evaluation/audit.py": ("test_audit", "test_properties", "../numbers/test_edges"),
    "evaluation/baselines.py": ("test_baselines", "test_audit"),
    "evaluation/detection.py": ("test_properties", "../cli/test_detect"),
    "evaluation/complete.py": ("test_complete", "test_listening", "test_coverage"),
    "evaluation/resume.py": ("test_resume", "../reliability/test_resume"),
    "evaluation/record.py": ("test_record", "test_audit"),
    "evaluation/scoring.py": ("test_scoring", "test_audit", "test_properties"),
}
# files whose tests take a second or two: a sample of these is judged while one waits
QUICK = (
    "decoding/ridge.py", "decoding/measurement.py", "programs/gradient_rows.py",
    "decoding/certainty.py", "decoding/enumeration.py", "decoding/contribution.py",
    "decoding/moments.py", "decoding/label_solve.py", "decoding/update_scale.py",
    "evaluation/metrics.py", "evaluation/sureness.py",
)  # fmt: skip
# small files whose every mistake would be a wrong number in a report: all of theirs are tried
SCORES = (
    "evaluation/intervals.py", "evaluation/metrics.py", "evaluation/sureness.py",
    "evaluation/compare.py",
)  # fmt: skip
SPEED = ("check_finite", "overwrite_a", "overwrite_c", "keepdims", "optimize", "driver")
TOO_LONG = 300.0  # seconds of processor time


@dataclass(frozen=True)
class Mutant:
    """``place`` counts the changes in a file, in the order of its syntax tree."""

    file: str
    function: str
    line: int
    place: int
    before: str
    after: str

    @property
    def key(self) -> str:
        """What the judgement is filed under: it survives lines that move."""
        return f"{self.file} {self.function}: {self.before} -> {self.after}"


SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.Pow: ast.Mult, ast.FloorDiv: ast.Div, ast.Mod: ast.Mult,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
NAMES = {
    "maximum": "minimum", "minimum": "maximum", "argmax": "argmin", "argmin": "argmax",
    "any": "all", "all": "any", "max": "min", "min": "max", "sum": "mean", "mean": "sum",
}  # fmt: skip


def changes(node: ast.AST) -> Iterator[Any]:
    """Functions that break a node in place."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SWAPS:
        yield lambda n: n.ops.__setitem__(0, SWAPS[type(n.ops[0])]())
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPS:
        yield lambda n: setattr(n, "op", SWAPS[type(n.op)]())
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield lambda n: setattr(n, "op", ast.UAdd())
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        yield lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test))
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield lambda n: setattr(
            n, "value", n.value + 1 if type(n.value) is int else 2 * n.value + 1
        )
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield lambda n: setattr(n, "value", not n.value)
    if isinstance(node, ast.Attribute) and node.attr in NAMES:
        yield lambda n: setattr(n, "attr", NAMES[n.attr])
    if isinstance(node, ast.Name) and node.id in ("min", "max", "any", "all"):
        yield lambda n: setattr(n, "id", NAMES[n.id])
    if isinstance(node, ast.Return) and node.value is not None:
        yield lambda n: setattr(n, "value", ast.Constant(None))


def _breakable(tree: ast.Module) -> Iterator[tuple[str, ast.AST, ast.stmt]]:
    """Nodes in the bodies of functions, with the function's name and the statement around them.

    Not the words of errors, annotations, docstrings, nor what only changes the speed.
    """

    def inside(node: ast.AST, name: str, statement: ast.stmt) -> Iterator[Any]:
        if isinstance(node, ast.Raise | ast.JoinedStr | ast.arguments):
            return
        if isinstance(node, ast.keyword) and node.arg in SPEED:
            return
        if isinstance(node, ast.FunctionDef) and node.returns is not None:
            node.returns = None
        if isinstance(node, ast.AnnAssign):
            if node.value is not None:
                yield from inside(node.value, name, node)
            return
        yield name, node, statement
        for child in ast.iter_child_nodes(node):
            yield from inside(child, name, child if isinstance(child, ast.stmt) else statement)

    def functions(body: list[ast.stmt], prefix: str) -> Iterator[Any]:
        for node in body:
            if isinstance(node, ast.FunctionDef):
                for statement in node.body:
                    yield from inside(statement, prefix + node.name, statement)
            elif isinstance(node, ast.ClassDef):
                yield from functions(node.body, f"{prefix}{node.name}.")

    yield from functions(tree.body, "")


def mutants_of(file: str) -> list[Mutant]:
    tree = ast.parse((SOURCE / file).read_text())
    found = []
    place = 0
    for function, node, statement in _breakable(tree):
        for change in changes(node):
            kept = copy.copy(node)
            before = _first_line(statement)
            fields = {k: copy.copy(v) for k, v in vars(node).items()}
            change(node)
            after = _first_line(statement)
            vars(node).update(fields)
            line = getattr(kept, "lineno", statement.lineno)
            found.append(Mutant(file, function, line, place, before, after))
            place += 1
    return found


def _first_line(statement: ast.stmt) -> str:
    """The statement without the block that it opens."""
    shown = copy.copy(statement)
    for field in ("body", "orelse", "finalbody", "handlers"):
        if isinstance(getattr(shown, field, None), list):
            setattr(shown, field, [ast.Pass()] if field == "body" else [])
    return ast.unparse(ast.fix_missing_locations(shown)).split(":\n")[0].replace("\n", " ")


def mutated(mutant: Mutant) -> CodeType:
    """The code of the whole module, broken in one place."""
    tree = ast.parse((SOURCE / mutant.file).read_text())
    place = 0
    for _, node, _ in _breakable(tree):
        for change in list(changes(node)):
            if place == mutant.place:
                change(node)
                tree = ast.fix_missing_locations(tree)
                return compile(tree, str(SOURCE / mutant.file), "exec")
            place += 1
    raise LookupError(mutant.key)


def install(mutant: Mutant) -> None:
    """Give the loaded function the broken code."""
    name = "overheard." + mutant.file.removesuffix(".py").replace("/", ".")
    module = importlib.import_module(name)
    code: Any = mutated(mutant)
    target: Any = module
    for part in mutant.function.split("."):
        code = next(c for c in code.co_consts if isinstance(c, CodeType) and c.co_name == part)
        target = vars(target)[part] if isinstance(target, type) else getattr(target, part)
        for unwrapped in ("fget", "__func__", "func", "__wrapped__"):
            target = getattr(target, unwrapped, None) or target
    assert isinstance(target, FunctionType)
    target.__code__ = code


def tests_of(file: str) -> list[str]:
    folder = ROOT / "tests" / file.split("/")[0]
    names = list(TESTS.get(file, ("test_" + Path(file).stem,)))
    paths = [(folder / f"{name}.py").resolve() for name in names]
    if file.startswith("decoding"):
        shared = [folder / f"{name}.py" for name in SHARED]
        paths += [path for path in shared if f".{Path(file).stem} import" in path.read_text()]
    return [str(path) for path in paths if path.exists()]


def run_tests(file: str, mutant: Mutant | None, most: float) -> tuple[str, float]:
    """ "killed" or "survived", and seconds of processor time; in a fork.

    A mutant that runs on for ever is ended by the kernel, after ``most`` seconds of its own time,
    and counts as noticed: so would it be by whoever waits for the tests.
    """
    child = os.fork()
    if child == 0:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        os.chdir(ROOT)
        resource.setrlimit(resource.RLIMIT_CPU, (int(most) + 1, int(most) + 2))
        import pytest

        if mutant is not None:
            install(mutant)
        words = ["-x", "-q", "-p", "no:cacheprovider", *tests_of(file)]
        os._exit(0 if pytest.main(words) == 0 else 1)
    _, status, used = os.wait4(child, 0)
    outcome = "survived" if os.waitstatus_to_exitcode(status) == 0 else "killed"
    return outcome, used.ru_utime + used.ru_stime


def all_files() -> list[str]:
    found = [p for folder in FOLDERS for p in sorted((SOURCE / folder).glob("*.py"))]
    return [f"{p.parent.name}/{p.name}" for p in found if p.name != "__init__.py"]


def sampled(files: list[str], sample: int, seed: int) -> list[Mutant]:
    import numpy as np

    every = [mutant for file in files for mutant in mutants_of(file)]
    if not sample or sample >= len(every):
        return every
    chosen = np.random.default_rng(seed).choice(len(every), sample, replace=False)
    return [every[k] for k in sorted(chosen)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sample", type=int, default=200, help="0: every mutant")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", action="append", default=[], help="a file, as decoding/ridge.py")
    parser.add_argument("--quick", action="store_true", help="files whose tests are quick")
    parser.add_argument("--scores", action="store_true", help="files that make scores")
    parser.add_argument("--nice", type=int, default=10)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    given.out = given.out or HERE / ("mutants_scores.json" if given.scores else "mutants.json")
    os.nice(given.nice)
    sys.path.insert(0, str(ROOT / "src"))
    import scipy.stats  # noqa: F401
    import sklearn.ensemble  # noqa: F401

    files = given.only or list(SCORES * given.scores + QUICK * given.quick) or all_files()
    for file in files:
        importlib.import_module("overheard." + file.removesuffix(".py").replace("/", "."))
    importlib.import_module("overheard.cli")
    chosen = sampled(files, given.sample, given.seed)
    path = HERE / "judged/mutants.json"
    judged = json.loads(path.read_text()) if path.exists() else {}
    rows: list[dict[str, object]] = []
    for file in files:
        mine = [mutant for mutant in chosen if mutant.file == file]
        if not mine:
            continue
        outcome, seconds = run_tests(file, None, TOO_LONG)
        if outcome != "survived" or not tests_of(file):
            raise SystemExit(f"{file}: its tests do not pass unbroken ({outcome})")
        left = []
        for mutant in mine:
            outcome, _ = run_tests(file, mutant, 3 * seconds + 10)
            print(f"{outcome:9}{file}:{mutant.line} {mutant.before} -> {mutant.after}", flush=True)
            if outcome == "survived":
                left.append(mutant)
        words = f"{len(mine) - len(left)} of {len(mine)} noticed"
        rows.append({"what": file, "trials": len(mine), "faults": len(left), "outcome": words})
        for mutant in left:
            verdict = judged.get(mutant.key, "not judged")
            rows.append({"what": mutant.key, "trials": 0, "faults": 0, "outcome": verdict})
        _write(given, rows)


def _write(given: argparse.Namespace, rows: list[dict[str, object]]) -> None:
    """After each file: what was found does not wait for what takes long."""
    words = f"python reliability/mutants.py --sample {given.sample} --seed {given.seed}"
    words += " --quick" * given.quick + " --scores" * given.scores
    words += "".join(f" --only {file}" for file in given.only)
    about = ": all of intervals and scores" if given.scores and not given.sample else ""
    title = f"Code broken on purpose, and whether the tests notice{about}"
    content = {"title": title, "command": words, "rows": rows}
    given.out.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
