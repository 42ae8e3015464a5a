"""How much sooner is an audit of many clients done on two workers than on one?

    python benchmarks/workers.py [--clients 300] [--workers 2]

Clients of 40 generated records each, a network of 32 units, 3 rounds, every attack that applies.
Writes benchmarks/workers.json: seconds of the command on one worker and on several, their ratio,
and whether both wrote the same audit. On a machine that does nothing else the ratio of two workers
should be at most 0.6.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from overheard.origin import origin

OUT = Path(__file__).with_suffix(".json")
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, default=300)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_people(folder / "people.csv", given.clients)
        (folder / "federation.toml").write_text(CONFIG)
        overheard(folder, "simulate", "federation.toml", "--out", "run")
        spent, audits = [], []
        for workers in (1, given.workers):
            words = ["audit", "run", "--out", f"on{workers}", "--workers", str(workers)]
            spent.append(overheard(folder, *words))
            text = (folder / f"on{workers}" / "audit.json").read_text()
            audits.append(re.sub(r'"seconds": [^,\n}]+', "", text))
    found = {
        **origin(
            f"python benchmarks/workers.py --clients {given.clients} --workers {given.workers}"
        ),
        "clients": given.clients,
        "load of the machine": round(os.getloadavg()[2], 1),
        "seconds on one worker": round(spent[0], 1),
        f"seconds on {given.workers}": round(spent[1], 1),
        "ratio": round(spent[1] / spent[0], 3),
        "the same audit": audits[0] == audits[1],
    }
    named = {f"{given.clients} clients, {given.workers} workers": found}
    OUT.write_text(json.dumps(named, indent=1) + "\n")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
