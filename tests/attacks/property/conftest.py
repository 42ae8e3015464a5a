"""Small federations under secure aggregation whose clients are asked for a property."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import digit_images

from overheard.questions.property import answers_of
from overheard.transcript.knowledge import Sums
from overheard.transcript.target import client_property
from overheard.transcript.threat import SECURE_SERVER
from overheard.transcript.view import View, observe

MLP = {"name": "mlp", "hidden": [8]}
Asked = Callable[..., tuple[View, np.ndarray]]


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    """``asked(kind, model, ...)``: the secure server's view, and who has the property."""
    made = itertools.count()

    def record(
        kind: str,
        model: dict[str, Any] = MLP,
        rounds: int = 40,
        clients: int = 20,
        records: int = 8,
        seed: int = 0,
        property_: dict[str, Any] | None = None,
        **training: Any,
    ) -> tuple[View, np.ndarray]:
        usual = {"rounds": rounds, "learning_rate": 0.05, "participation": 0.25}
        options = {"seed": 0, "clients": clients, "records": records, "auxiliary": 600}
        asked_for = {"kind": kind, **(property_ or {})}
        path = tmp_path / f"run-{next(made)}"
        recording = digit_images(path, seed, model, asked_for, options, **usual | training)
        key = next(t for t in recording.targets if t.startswith("property."))
        target = client_property(key.removeprefix("property."))
        view = observe(recording, SECURE_SERVER, target, "")
        return view, answers_of(recording.truth("Property", key), view.know(Sums).clients)

    return record
