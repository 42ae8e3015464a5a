"""What a run.sh of examples/recipes does, without a process for every line of it."""

from __future__ import annotations

import json
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments import recipes
from overheard.cli import app

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "examples" / "recipes"


def commands(recipe: str, out: Path) -> list[list[str]]:
    """The lines that do something, word by word."""
    text = (RECIPES / recipe / "run.sh").read_text().replace("$OUT", str(out / recipe))
    doing = ("python", "cp", "cd", "overheard")
    return [shlex.split(line) for line in text.splitlines() if line.startswith(doing)]


def path(recipe: str) -> list[str]:
    """Where its Python looks for modules."""
    found = re.search(r'PYTHONPATH="(.*)"', (RECIPES / recipe / "run.sh").read_text())
    named = found[1].replace("$PWD", str(RECIPES / recipe)).split(":") if found else []
    return [str(Path(name).resolve()) for name in named]


def audited(recipe: str, out: Path, federation: bool = True) -> None:
    """Run it, or, where its federation was run before, the rest; what its audits find is what is
    written down."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(RECIPES / recipe)
        for place in path(recipe):
            patch.syspath_prepend(place)
        for program, *words in commands(recipe, out):
            if program == "python" and federation:
                patch.setattr(sys, "argv", words)
                runpy.run_path(words[0], run_name="__main__")
            elif program == "cp":
                shutil.copy(*words)
            elif program == "cd":
                patch.chdir(*words)
            elif program == "overheard":
                done = CliRunner().invoke(app, words)
                assert done.exit_code == 0, (recipe, done.output, done.exception)
    expected = json.loads((RECIPES / recipe / "expected.json").read_text())
    found = recipes.figures(out / recipe)
    assert found.keys() == expected.keys(), recipe
    for name, figure in found.items():
        assert set(figure["replays"]) == {"fits"}, (recipe, name)
        written, n = expected[name], figure["n"]
        same = ("secret", "attack", "n", "rounds")
        assert [figure[k] for k in same] == [written[k] for k in same], (recipe, name)
        shares = np.array([figure["value"], written["value"]])
        # orders of batches are drawn anew: the two agree as two draws do, to four deviations
        apart = 4 * np.sqrt((shares * (1 - shares)).sum() / n) + 1 / n
        assert abs(np.diff(shares)[0]) <= apart, (recipe, name, figure)
        assert (out / recipe / "audit" / "report.html").read_text().count(figure["secret"])
