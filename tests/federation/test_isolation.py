"""A client that is fed its own model back, and the threat model that says so."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import simulated

from overheard.data.bundled import VICTIM, digits
from overheard.errors import FixConfig, FixData
from overheard.transcript.knowledge import Messages
from overheard.transcript.store import Recording
from overheard.transcript.target import attribute
from overheard.transcript.threat import ISOLATING_SERVER, SERVER
from overheard.transcript.view import observe

ASKED = attribute("c043")
Record = Callable[..., Recording]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    def make(participants: int = 3, **training: Any) -> Recording:
        config = {
            "data": {"source": "digits"},
            "model": {"name": "mlp", "hidden": [6]},
            "training": {"rounds": 4, "learning_rate": 0.5, **training},
        }
        data = digits(victim=30, participants=participants, attributes=("c043",))
        path = tmp_path / f"run-{participants}-{len(training)}"
        return simulated(path, config, data)

    return make


def observed(recording: Recording, client: str) -> Messages:
    return observe(recording, SERVER, ASKED, client).know(Messages)


@pytest.mark.parametrize("rests", [{}, {"participants": 4, "participation": 0.5, "rounds": 12}])
def test_the_victim_gets_its_own_model_back(record: Record, rests: dict[str, Any]) -> None:
    link = observed(record(isolate=VICTIM, **rests), VICTIM)
    assert 1 < len(link) < 12
    np.testing.assert_array_equal(link.sent[1:], link.returned[:-1])


def test_the_victim_and_the_others_train_without_each_other(record: Record) -> None:
    recording = record(isolate=VICTIM)
    alone = observed(record(participants=1), VICTIM)
    np.testing.assert_array_equal(observed(recording, VICTIM).returned, alone.returned)
    two, three = (observed(recording, f"participant {i}") for i in (2, 3))
    np.testing.assert_array_equal(two.sent, three.sent)
    both = (two.returned[0].astype(np.float64) + three.returned[0]) / 2
    np.testing.assert_allclose(two.sent[1], both, rtol=1e-6, atol=1e-7)


def test_gradients_move_the_isolated_client_too(record: Record) -> None:
    link = observed(record(isolate=VICTIM, algorithm="fedsgd"), VICTIM)
    moved = link.sent[0] - np.float32(0.5) * link.returned[0]
    np.testing.assert_allclose(link.sent[1], moved, rtol=1e-6, atol=1e-7)


def test_the_threat_model_says_which_client_was_isolated(record: Record) -> None:
    recording = record(isolate=VICTIM)
    assert recording.about["isolated"] == VICTIM
    assert observe(recording, ISOLATING_SERVER, ASKED, VICTIM).threat == "isolating-server"
    with pytest.raises(FixData, match="only 'victim' was"):
        observe(recording, ISOLATING_SERVER, ASKED, "participant 2")
    with pytest.raises(FixConfig, match="'vicitm'; the clients are"):
        record(isolate="vicitm")
