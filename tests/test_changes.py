"""Three changes of docs/architecture.md's table, made in a copy of the package: each touches the
files that its line names and no other, and works from the command line."""

from __future__ import annotations

import filecmp
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import ended

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "overheard"
TABLE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
DEFENCE = '''"""Updates are sent at half their size."""

from typing import Literal

from overheard.federation.defences.contract import Claim, Defence, Stage


class Halved(Defence):
    """Every update is halved."""

    name: Literal["halved"] = "halved"

    @property
    def claim(self):
        return Claim(self.name, Stage.COMPRESSION, "updates are half as long", effects=())

    def upload(self, updates, context):
        return updates / 2
'''
LOSS = """        Loss(
            "log_cosh",
            lambda outputs, labels: np.log(np.cosh(outputs[..., 0] - labels)),
            lambda outputs, labels: np.tanh(outputs - labels[..., None]),
            lambda outputs, labels: (outputs[..., 0] - labels).cosh().log(),
        ),
    )
}
"""


def named(change: str) -> list[str]:
    """The paths that the table names for a change, below the package."""
    line = re.search(rf"^\| {change} \| (.+) \|$", TABLE, re.MULTILINE)
    assert line, change
    return [path for path in re.findall(r"`([\w./]+)`", line[1]) if "/" in path]


def changed(copy: Path) -> set[str]:
    """Files of the copy that are new or other than ours."""
    files = (path.relative_to(copy) for path in copy.rglob("*") if path.is_file())
    return {
        path.as_posix()
        for path in files
        if path.suffix in (".py", ".toml")
        if not (PACKAGE / path).exists() or not filecmp.cmp(copy / path, PACKAGE / path, False)
    }


def test_a_defence_a_loss_and_an_attack(workplace: Any) -> None:
    """The attack is the one that docs/add-an-attack.md shows: audited, listed and explained."""
    copy = workplace.path / "src" / "overheard"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "federation" / "defences" / "halved.py").write_text(DEFENCE)
    losses = copy / "programs" / "losses.py"
    losses.write_text(losses.read_text().replace("    )\n}\n", LOSS, 1))
    shutil.copy(ROOT / "examples" / "share_of_values.py", copy / "attacks")
    said = [path for change in ("a defence", "a loss", "an attack") for path in named(change)]
    assert all(any(path.startswith(one) for one in said) for path in changed(copy))
    assert len(changed(copy)) == 3

    def overheard(*arguments: str) -> str:
        words = [sys.executable, "-m", "overheard", *arguments]
        done = ended(words, workplace.path, PYTHONPATH=str(copy.parent))
        assert done.returncode == 0, done.stderr
        return done.stdout

    config = workplace.CONFIG.replace("[training]", '[training]\nloss = "log_cosh"')
    (workplace.path / "changed.toml").write_text(config + '[[defence]]\nname = "halved"\n')
    overheard("simulate", "changed.toml", "--out", "new")
    overheard("audit", "new", "--attack", "share_of_values", "--out", "audit")
    audit = json.loads((workplace.path / "audit" / "audit.json").read_text())
    assert "the defence halved" in json.dumps(audit)
    assert {finding["attack"] for finding in audit["findings"]} == {"share_of_values"}
    assert audit["attacks"][0]["equation"].startswith("(θ − θ′)")
    assert "share_of_values" in overheard("attacks")
    assert "how common each value is" in overheard("attacks", "share_of_values")
    training = next((workplace.path / "new" / "side").glob("*-clientprogram.json"))
    assert "log_cosh" in training.read_text()
