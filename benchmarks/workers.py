"""How much sooner is an audit of many clients done on two workers than on one?

    python -m benchmarks.workers [--clients 300] [--workers 2]

Clients of 40 generated records each, a network of 32 units, 3 rounds, every attack that applies.
Writes benchmarks/workers.json: seconds of the command on one worker and on several, their ratio,
and whether both wrote the same audit. On a machine that does nothing else the ratio of two workers
should be at most 0.6.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.frame import Results, Row, options

CONFIG = """
[data]
source = "file"
path = "people.csv"
client = "at"
target = "y"
[model]
name = "mlp"
hidden = [32]
[training]
rounds = 3
learning_rate = 0.1
[audit]
attributes = ["s"]
"""


def write_people(path: Path, clients: int) -> None:
    """Generated records, 40 a client."""
    rng = np.random.default_rng(0)
    rows = 40 * clients
    s = (rng.random(rows) < 0.4).astype(int)
    x = rng.normal(size=(rows, 4)) + 0.5 * s[:, None]
    y = x.sum(axis=1) + s + rng.normal(size=rows)
    lines = [
        f"{','.join(f'{v:.6f}' for v in x[i])},{s[i]},{y[i]:.6f},site {i // 40}"
        for i in range(rows)
    ]
    path.write_text("\n".join(["a,b,c,d,s,y,at", *lines]) + "\n")


def overheard(folder: Path, *words: str) -> float:
    """Seconds that the command takes."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "overheard", *words], cwd=folder, check=True, capture_output=True
    )
    return time.perf_counter() - began


def measured(clients: int, several: int) -> Row:
    """Both audits of one recording."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_people(folder / "people.csv", clients)
        (folder / "federation.toml").write_text(CONFIG)
        overheard(folder, "simulate", "federation.toml", "--out", "run")
        spent, audits = [], []
        for workers in (1, several):
            words = ["audit", "run", "--out", f"on{workers}", "--workers", str(workers)]
            spent.append(overheard(folder, *words))
            text = (folder / f"on{workers}" / "audit.json").read_text()
            audits.append(re.sub(r'"seconds": [^,\n}]+', "", text))
    return {
        "clients": clients,
        "load of the machine": round(os.getloadavg()[2], 1),
        "seconds on one worker": round(spent[0], 1),
        f"seconds on {several}": round(spent[1], 1),
        "ratio": round(spent[1] / spent[0], 3),
        "the same audit": audits[0] == audits[1],
    }


def main() -> None:
    given = options(__doc__, __file__, clients=300, workers=2)
    key = f"{given.clients} clients, {given.workers} workers"
    kept = Results(given.out, given.command)
    print(kept.row(key, lambda: measured(given.clients, given.workers)))


if __name__ == "__main__":
    main()
