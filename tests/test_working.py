"""Whoever waits for minutes hears how far it is; nobody else does, and not all the time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import overheard
from overheard import working
from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.transcript.store import Recording
from overheard.transcript.threat import EAVESDROPPER
from overheard.working import counted, estimate, told

Federate = Callable[..., Recording]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr("overheard.working.time.monotonic", lambda: now[0])
    return now


def test_how_far_and_how_long(clock: list[float]) -> None:
    heard: list[str] = []
    with told(heard.append):
        for _ in counted("abcde", "rounds read:"):
            clock[0] += 40
    assert heard == [
        "rounds read: 1 of 5 done; about 3 min left (an estimate)",
        "rounds read: 2 of 5 done; about 2 min left (an estimate)",
        "rounds read: 3 of 5 done; about 1 min left (an estimate)",
        "rounds read: 4 of 5 done",
    ]


def test_what_is_quick_is_not_spoken_of(clock: list[float]) -> None:
    heard: list[str] = []
    with told(heard.append):
        for _ in counted(range(60), "parts:"):
            clock[0] += 0.5
    assert heard == ["parts: 20 of 60 done", "parts: 40 of 60 done"]
    for _ in counted(range(3), "parts:"):
        clock[0] += 100
    assert len(heard) == 2


def test_hours_are_hours() -> None:
    assert estimate(59) == ""
    assert estimate(7200) == "; about 2.0 h left (an estimate)"


def test_an_audit_says_it(monkeypatch: pytest.MonkeyPatch, federate: Federate) -> None:
    """What is said of an audit's step has the words of the attack that is running."""
    monkeypatch.setattr(working, "OFTEN", 0.0)
    recording = federate(
        {"name": "mlp", "hidden": [8]}, clients=1, people=20, columns=4, rounds=2,
        participation=1.0, batch_size=8,
    )  # fmt: skip
    said: list[str] = []
    options = overheard.AuditOptions(
        rounds=False, progress=lambda what, done, total: said.append(what)
    )
    overheard.audit(recording, EAVESDROPPER, [MaxEntropy(seeds=0)], options=options)
    assert any("max_entropy, rounds read: 1 of 2 done" in what for what in said)
