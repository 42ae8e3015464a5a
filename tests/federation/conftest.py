"""A small table of people on disk, and the config that trains on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import changed


def write_people(path: Path) -> str:
    """Clients of different sizes; ``s`` and ``job`` are secrets, ``y`` and ``ill`` targets."""
    rng = np.random.default_rng(11)
    lines = ["at,age,job,s,y,ill"]
    for client, size in enumerate((12, 5, 9)):
        for _ in range(size):
            age, s = rng.normal(40, 12), int(rng.random() < 0.4)
            y = 0.1 * age + s + rng.normal()
            job = ("cook", "nurse", "smith")[rng.integers(3)]
            lines.append(f"site {client},{age:.3f},{job},{s},{y:.4f},{'yes' if y > 4 else 'no'}")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture
def settings_for(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """A config as a dict; keywords change the sections: ``settings_for(training={...})``."""
    roles = {"client": "at", "target": "y", "drop": ["ill"]}
    content: dict[str, Any] = {
        "data": {"source": "file", "path": write_people(tmp_path / "people.csv"), **roles},
        "model": {"name": "linear"},
        "training": {"rounds": 3, "learning_rate": 0.05},
        "audit": {"attributes": ["s"]},
    }
    return lambda **changes: changed(content, changes)
