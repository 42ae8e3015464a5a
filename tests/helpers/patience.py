"""Processes, and when a test gives up on one: it hangs, however busy the machine is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

PATIENCE = 3600
"""Seconds. No test may pass or fail by what a machine does besides."""


def ended(
    words: Sequence[str], cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """A command when it has ended, and what it said; ``environment``: what is other there."""
    return subprocess.run(
        words, cwd=cwd, env={**os.environ, **environment}, timeout=PATIENCE,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
