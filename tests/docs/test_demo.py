"""The README's table of the demo is what the demo finds: it is run, once, as a user runs it.

On another processor the last digits differ; what is typed or left from older code differs more.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments import documentation
from experiments.documentation import demo_audits
from experiments.pages import ROOT
from overheard.evaluation.record import Audit

pytestmark = pytest.mark.slow

NUMBER = r"\d(?:[\d,.]*\d)?"
POINTS, OF_ALL = 0.3, 0.005
"""How far a percentage may be off, and a count of people as a share of all."""


@pytest.fixture(scope="module")
def audits(tmp_path_factory: pytest.TempPathFactory) -> list[Audit]:
    folder = documentation.run_demo(tmp_path_factory.mktemp("demo") / "out")
    assert (folder / "report.html").stat().st_size > 50_000
    return demo_audits(folder)


def readme_table() -> str:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return text.partition("<!-- table: demo -->\n")[2].partition("\n<!-- end -->")[0]


def differences(old: str, new: str) -> list[str]:
    """Cells that differ by more than another processor explains; words must be the same."""
    found = []
    pairs = zip(old.splitlines(), new.splitlines(), strict=True)
    cells = [pair for a, b in pairs for pair in zip(a.split("|"), b.split("|"), strict=True)]
    for a, b in cells:
        numbers = [[float(x.replace(",", "")) for x in re.findall(NUMBER, c)] for c in (a, b)]
        words = [re.sub(NUMBER, "#", cell) for cell in (a, b)]
        most = OF_ALL * max(numbers[0], default=0.0) if " of " in a else POINTS
        far = len(numbers[0]) != len(numbers[1]) or any(
            abs(x - y) > most for x, y in zip(*numbers, strict=True)
        )
        if far or words[0] != words[1]:
            found.append(f"{a.strip()!r} is now {b.strip()!r}")
    return found


def test_the_readme_shows_what_the_demo_finds(audits: list[Audit]) -> None:
    found = differences(readme_table(), documentation.demo_table(audits))
    assert not found, f"run `make tables` and commit README.md and docs/assets/demo: {found}"


def test_the_committed_audits_are_what_the_readme_shows() -> None:
    assert readme_table() == documentation.demo_table()
    assert Path(ROOT / "docs" / "assets" / "demo" / "linear.json").exists()


def test_the_committed_audits_say_all_that_an_audit_says_today(audits: list[Audit]) -> None:
    """The page in the pictures is made from them: replays of the clients' records, and the rest."""
    for kept, new in zip(demo_audits(), audits, strict=True):
        assert kept.version == new.version
        filled = [{name for name, part in record if part} for record in (kept, new)]
        assert filled[0] == filled[1], "run `make tables`"
        assert [r.outcome for r in kept.replays] == [r.outcome for r in new.replays]
