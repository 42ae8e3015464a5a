"""The README's table of the demo is what the demo finds: it is run, once, as a user runs it.

On another processor the last digits differ; what is typed or left from older code differs more.
"""

from __future__ import annotations

import pytest

from experiments import documentation
from experiments.documentation import demo_audits
from overheard.evaluation.record import Audit

pytestmark = pytest.mark.slow

OFF = 0.005
"""How far a share may be off."""


@pytest.fixture(scope="module")
def audits(tmp_path_factory: pytest.TempPathFactory) -> list[Audit]:
    folder = documentation.run_demo(tmp_path_factory.mktemp("demo") / "out")
    assert (folder / "report.html").stat().st_size > 50_000
    return demo_audits(folder)


def test_the_committed_audits_are_what_the_demo_finds(audits: list[Audit]) -> None:
    """README's table and the page in the pictures are made from them."""
    for kept, new in zip(demo_audits(), audits, strict=True):
        assert kept.version == new.version
        filled = [{name for name, part in record if part} for record in (kept, new)]
        assert filled[0] == filled[1], "run `make tables`"
        assert [r.outcome for r in kept.replays] == [r.outcome for r in new.replays]
        for old, row in zip(kept.pooled, new.pooled, strict=True):
            assert (old.attack, old.topic, old.n) == (row.attack, row.topic, row.n)
            assert old.value == pytest.approx(row.value, abs=OFF), "run `make tables`"
            sure = [one.calibration.certain if one.calibration else 0 for one in (old, row)]
            assert sure[0] == pytest.approx(sure[1], abs=OFF * row.n)
