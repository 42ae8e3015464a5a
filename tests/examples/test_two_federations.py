"""Two federations that hold the same people expose together what neither does."""

from __future__ import annotations

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "two_federations.py"


def test_two_small_networks_tell_more_than_each() -> None:
    for result in runpy.run_path(str(EXAMPLE))["run"](seed=20):
        assert result.together > result.alone + 0.05
        assert result.together > result.commonest + 0.2
