"""Every recipe ends, with its real framework, in a report in which a question was measured."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import exact_training
import pytest
from patience import PATIENCE, ended
from run_recipes import RECIPES, ROOT, audited, commands, path
from scripts import load

from experiments.recipes import ROWS
from overheard.transcript.store import Recording

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
RECORDERS = ROOT / "tests" / "recorders"
PLAIN = ("sgd_classifier", "ridge")
FLARE = ("column_statistics", "hello_pt", "newton", "survival")
FLOWER = ("boosted_trees", "clipped", "cnn", "frozen", "norm", "secure_sum", "tabular")


def needed(*packages: str) -> None:
    for package in packages:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install 'overheard[flower,nvflare]'")


def test_every_recipe_is_run_here_and_in_the_table() -> None:
    there = {file.parent.name for file in RECIPES.glob("*/run.sh")}
    assert there == {*PLAIN, *FLARE, *FLOWER}
    assert there == {folder for folders in ROWS.values() for folder in folders}


@pytest.mark.parametrize("recipe", PLAIN)
def test_loops(recipe: str, tmp_path: Path) -> None:
    audited(recipe, tmp_path)


OWN = {"exact": "flare_job.py", "trees": "flare_trees.py"}
"""Jobs of the recorders' own tests."""
Jobs = tuple[Path, dict[str, subprocess.Popen[bytes]]]


@pytest.fixture(scope="module")
def flare_jobs(
    tmp_path_factory: pytest.TempPathFactory, loopback_only: tuple[str, ...]
) -> Iterator[Jobs]:
    """All jobs at once, and beside Flower: a simulator mostly waits. Where they record, and they;
    none without FLARE."""
    place = tmp_path_factory.mktemp("flare")
    jobs = {name: [str(RECORDERS / file), str(place / name)] for name, file in OWN.items()}
    running: dict[str, subprocess.Popen[bytes]] = {}
    if importlib.util.find_spec("nvflare") and importlib.util.find_spec("xgboost"):
        for recipe in FLARE:
            (_, *data), (_, *jobs[recipe]) = python(recipe, place)
            words = [sys.executable, *data]
            subprocess.run(words, cwd=RECIPES / recipe, check=True, timeout=PATIENCE)
        for name, words in jobs.items():
            where = (RECORDERS, [str(RECORDERS)]) if name in OWN else (RECIPES / name, path(name))
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*where[1], *sys.path])}
            with (place / f"{name}.log").open("w") as log:
                running[name] = subprocess.Popen(
                    [*loopback_only, sys.executable, *words],
                    cwd=where[0], env=environment, stdout=log, stderr=subprocess.STDOUT,
                )  # fmt: skip
    yield place, running
    for process in running.values():
        process.kill()
        process.wait()


def test_flare(flare_jobs: Jobs) -> None:
    needed("nvflare", "xgboost")
    place, running = flare_jobs
    for name, process in running.items():
        assert process.wait(PATIENCE) == 0, (place / f"{name}.log").read_text()[-3000:]
    load(RECORDERS / "flare_job.py").check(place / "exact")
    load(RECORDERS / "flare_trees.py").check(place / "trees")
    for recipe in FLARE:
        audited(recipe, place, federation=False)


@pytest.mark.usefixtures("flare_jobs")
def test_flower(tmp_path: Path, loopback_only: tuple[str, ...]) -> None:
    needed("flwr", "ray", "xgboost")
    lines = [(r, words) for r in FLOWER for _, *words in python(r, tmp_path)]
    words = [sys.executable, str(HERE / "one_simulation.py"), str(tmp_path)]
    done = ended([*loopback_only, *words, json.dumps(lines)])
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    exact_training.check(tmp_path / "exact", 2, (2, 2, 4, 8))
    load(ROOT / "tests" / "guard" / "guarded_app.py").check(tmp_path / "guarded")
    trees = list(Recording.open(tmp_path / "boosted_trees/run").releases("0"))
    assert trees[0][1]["0"].tobytes() == b""
    assert trees[1][1]["0"].tobytes().count(b'"tree_param"') == 4  # everybody's tree
    for recipe in FLOWER:
        audited(recipe, tmp_path, federation=False)


def python(recipe: str, out: Path) -> list[list[str]]:
    return [words for words in commands(recipe, out) if words[0] == "python"]
