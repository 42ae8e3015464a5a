"""A network that overheard has never heard of, in one file of the user's."""

from __future__ import annotations

import runpy
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_module.py"


def test_it_is_simulated_recorded_and_decoded(tmp_path: Path) -> None:
    main = runpy.run_path(str(EXAMPLE))["main"]
    assert main(tmp_path / "out") >= 0.99
