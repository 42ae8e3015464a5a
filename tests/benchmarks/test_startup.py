"""``overheard --help`` answers soon; what is imported for it is held by tests/test_import.py."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timing
ALLOWED = 0.25
BUSY = 1.6
"""What a machine that does other work too may add to processor time; `overheard bench start-up`
holds the limit itself."""


def seconds(*words: str) -> float:
    """The least processor time of some runs."""
    taken = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return min(taken)


def test_help_takes_a_quarter_of_a_second() -> None:
    command = str(Path(sys.executable).with_name("overheard"))
    more = seconds(command, "--help") - seconds(sys.executable, "-c", "pass")
    assert more < BUSY * ALLOWED
