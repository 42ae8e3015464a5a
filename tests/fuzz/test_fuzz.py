"""The same readers as ``make fuzz``, for three seconds each: about a minute in all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NAMES = sorted(folder.name for folder in (HERE / "corpus").iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_reader(name: str, tmp_path: Path) -> None:
    """Every file of the corpus, then changed ones; other ones each time unless a seed is set."""
    seed = os.environ.get("OVERHEARD_FUZZ_SEED") or str(int.from_bytes(os.urandom(3), "big"))
    words = ["--reader", name, "--seconds", "2", "--seed", seed, "--keep", str(tmp_path / "kept")]
    done = subprocess.run(
        [sys.executable, str(HERE / "fuzz.py"), *words],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["words"] == [], f"seed {seed}"
    assert found["trials"] > len(list((HERE / "corpus" / name).iterdir()))
    assert found["grown"] < 1 << 30


def test_no_reader_is_left_out() -> None:
    sys.path.insert(0, str(HERE))
    from readers import READERS

    assert sorted(READERS) == NAMES
