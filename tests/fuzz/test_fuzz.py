"""The same readers as ``make fuzz``, for a third of a minute in all."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NAMES = sorted(folder.name for folder in (HERE / "corpus").iterdir())
GROUPS = [NAMES[start::4] for start in range(4)]


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: "-".join(names))
def test_readers(names: list[str], tmp_path: Path) -> None:
    """Every file of the corpus, then changed ones: the same each time; ``make fuzz`` explores."""
    seed = os.environ.get("OVERHEARD_FUZZ_SEED", "0")
    out = tmp_path / "fuzz.json"
    words = ["--seconds", "5", "--seed", seed, "--out", str(out), "--keep", str(tmp_path / "kept")]
    done = subprocess.run(
        [sys.executable, str(HERE / "fuzz.py"), *words, "--only", *names],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, f"seed {seed}: {done.stdout[-1000:]}{done.stderr[-2000:]}"
    rows = json.loads(out.read_text())["rows"]
    assert [row["what"] for row in rows] == [f"reader of {name}" for name in names]
    for name, row in zip(names, rows, strict=True):
        assert row["trials"] > len(list((HERE / "corpus" / name).iterdir())), name


def test_no_reader_is_left_out() -> None:
    sys.path.insert(0, str(HERE))
    from readers import READERS

    assert sorted(READERS) == NAMES


def test_a_fault_is_noticed(tmp_path: Path) -> None:
    """The fuzzer itself: a reader that lets another exception out, waits or dies is caught."""
    script = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
import fuzz, json, os, readers
from pathlib import Path

def broken(raw, place):
    if raw != readers.READERS["json"].seeds()[0]:
        {{}}["missing"]

def dying(raw, place):
    os.abort()

for read in (broken, dying):
    readers.READERS["json"] = readers.Reader("json", "bytes", read)
    (row,) = fuzz.fuzz_all(["json"], 1.0, 1, Path("kept"))
    print(json.dumps(row))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [row["faults"] for row in rows] == [1, 1], done.stderr
    assert "KeyError" in done.stderr
    assert "ended with status" in done.stderr
