"""A client's own table, and the config under which it trains on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from federations import changed

from overheard.federation.federation import parse_config


def table(folder: Path, records: int = 60, rare: bool = False, clients: int = 1) -> str:
    """People with a secret ``s``, in a file."""
    rng = np.random.default_rng(3)
    lines = ["who,a,b,c,d,s,y"]
    for client in range(clients):
        s = np.arange(records) == 7 if rare else rng.random(records) < 0.4
        x = rng.normal(size=(records, 4))
        y = x @ [1, -1, 0.5, 0] + s + rng.normal(size=records)
        lines += [
            ",".join([f"site {client}", *(f"{v:.5f}" for v in x[i]), str(int(s[i])), f"{y[i]:.5f}"])
            for i in range(records)
        ]
    path = folder / "people.csv"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def config(path: str, **changes: Any) -> Any:
    content: dict[str, Any] = {
        "data": {"source": "file", "path": path, "client": "who", "target": "y"},
        "model": {"name": "mlp", "hidden": [24]},
        "training": {"rounds": 1, "learning_rate": 0.1},
        "audit": {"attributes": ["s"]},
    }
    return parse_config(changed(content, changes))
