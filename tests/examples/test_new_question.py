"""A question that is one file, in a package of its own, shows up everywhere: by entry points."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import ended

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "new_question.py"
POINTS = """[overheard.questions]
share = new_question:QUESTION
[overheard.attacks]
decoded_share = new_question:DecodedShare
population_share = new_question:PopulationShare
"""
COMMANDS = """
import contextlib, io, json, sys
from overheard.cli import main
said = []
for words in json.loads(sys.argv[1]):
    sys.argv = ["overheard", *words]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            main()
        except SystemExit as ended:
            assert not ended.code, words
    said.append(out.getvalue())
print(json.dumps(said))
"""


@pytest.fixture
def stranger(tmp_path: Path, workplace: Any) -> Any:
    """Runs commands where the file is installed as a package of a stranger's."""
    folder = tmp_path / "site-packages"
    about = folder / "new_question-1.0.dist-info"
    about.mkdir(parents=True)
    shutil.copy(EXAMPLE, folder)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: new_question\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(POINTS)
    paths = [str(folder), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = {**workplace.SCREEN, "PYTHONPATH": os.pathsep.join(paths)}

    def run(*commands: list[str]) -> list[str]:
        words = [sys.executable, "-c", COMMANDS, json.dumps(commands)]
        done = ended(words, workplace.path, **environment)
        assert done.returncode == 0, done.stderr
        said: list[str] = json.loads(done.stdout)
        return said

    return run


def test_it_is_listed_audited_reported_and_compared(stranger: Any, workplace: Any) -> None:
    chosen = ["--attack", "decoded_share", "--attack", "population_share", "--target", "share.s"]
    reports = ("report.html", "report.md", "report.json")
    listed, said, *_, compared = stranger(
        ["attacks"],
        ["audit", "run", *chosen, "--out", "a"],
        *(["report", "a/audit.json", "--out", name] for name in reports),
        ["compare", "a/audit.json", "a/audit.json"],
    )
    assert "decoded_share" in listed
    assert "population_share" in listed

    assert "share of s" in said
    audit = json.loads((workplace.path / "a" / "audit.json").read_text())
    assert {f["question"] for f in audit["findings"]} == {"share"}
    assert {f["metric"] for f in audit["findings"]} == {"share_error"}
    pooled = {row["attack"]: row for row in audit["pooled"]}
    assert pooled["decoded_share"]["clients"] == 3
    assert pooled["decoded_share"]["value"] < pooled["population_share"]["value"]
    assert audit["curves"]

    for name in reports:
        text = (workplace.path / name).read_text()
        assert "share of s" in text
    (secret,) = json.loads((workplace.path / "report.json").read_text())["secrets"]
    assert secret["metric"] == "share_error"

    assert "decoded_share" in compared

    without = workplace.refused("report", "a/audit.json", "--out", "again.html")
    assert "unknown metric 'share_error'" in without
