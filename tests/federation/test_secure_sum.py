"""Secure aggregation: sums are exact, of those who did not drop out, and nothing else is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import changed, simulated

from overheard.errors import FixConfig
from overheard.federation.defences.contract import RoundContext
from overheard.federation.defences.secure_sum import STEP, SecureSum
from overheard.transcript.knowledge import Messages, Sums
from overheard.transcript.store import Recording
from overheard.transcript.target import client_property
from overheard.transcript.threat import SECURE_SERVER
from overheard.transcript.view import observe


def test_a_sum_is_of_those_who_did_not_drop_out() -> None:
    """Multiples of the step, which add exactly in whatever order."""
    rough = np.random.default_rng(1).normal(0, 0.01, (40, 50))
    context = RoundContext(0, np.arange(40), np.random.default_rng(0))
    sent = SecureSum().upload(rough, context)
    assert np.abs(sent - rough).max() <= STEP / 2
    total, who = SecureSum(dropout_rate=0.3).total(sent, context)
    assert 20 <= len(who) <= 36
    assert np.array_equal(total, sent[who][::-1].sum(axis=0))


def settings(**changes: Any) -> dict[str, Any]:
    content: dict[str, Any] = {
        "data": {"source": "digits", "options": {"victim": 20, "participants": 10}},
        "model": {"name": "mlp", "hidden": [6]},
        "training": {"rounds": 5, "learning_rate": 0.2, "participation": 0.5},
        "audit": {"attributes": []},
        "property": {"kind": "membership", "positives": 2},
        "defence": [{"name": "secure_sum"}],
    }
    return changed(content, changes)


def record(path: Path, **changes: Any) -> Recording:
    return simulated(path, settings(**changes))


def test_the_recording_holds_sums_and_participants_only(tmp_path: Path) -> None:
    secure = record(tmp_path / "secure")
    for entry in secure.rounds:
        assert set(entry.spans) == {("sent", ""), ("total", "")}
        assert len(entry.participants or ()) == 5
    plain = record(tmp_path / "plain", defence=[])
    target = client_property("membership")
    observed = observe(secure, SECURE_SERVER, target, "").know(Sums)
    summed = observe(plain, SECURE_SERVER, target, "").know(Sums)
    assert np.array_equal(observed.participation, summed.participation)
    for one, other in zip(observed, summed, strict=True):
        # the same federation but for the rounding of the messages of both
        np.testing.assert_allclose(one.total, other.total, atol=2e-6)
        np.testing.assert_allclose(one.sent, other.sent, atol=2e-6)
    assert Messages not in observe(secure, SECURE_SERVER, target, "").kinds
    raw = b"".join(f.read_bytes() for f in (secure.path / "messages").glob("*.safetensors"))
    for client in plain.clients:
        for _, sent, returned in plain.releases(client):
            start, model = (arrays["layers.0.weight"][0] for arrays in (sent, returned))
            assert model.tobytes() not in raw
            assert (start.astype(float) - model).tobytes() not in raw


def test_drop_outs_are_not_among_the_participants(tmp_path: Path) -> None:
    changes: dict[str, Any] = {
        "defence": [{"name": "secure_sum", "dropout_rate": 0.2}],
        "training": {"rounds": 8, "participation": 1.0},
    }
    recording = record(tmp_path / "run", **changes)
    counts = [len(e.participants or ()) for e in recording.rounds]
    assert 2 <= min(counts) < 10
    again = record(tmp_path / "again", **changes)
    assert [e.participants for e in again.rounds] == [e.participants for e in recording.rounds]


def test_where_nobody_is_left_the_rounds_before_are_kept(tmp_path: Path) -> None:
    defence = [{"name": "secure_sum", "dropout_rate": 0.7}]
    with pytest.raises(FixConfig, match=r"round [1-9]\d*: \d+ of 10 .*lower dropout_rate.*kept"):
        record(tmp_path / "run", defence=defence, training={"rounds": 200, "participation": 1.0})
    recording = Recording.open(tmp_path / "run")
    assert not recording.closed
    assert len(recording.rounds) >= 1
    sums = observe(recording, SECURE_SERVER, client_property("membership"), "").know(Sums)
    assert len(sums) == len(recording.rounds)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training": {"participation": 0.1}}, "one client a round.*hides nothing"),
        ({"training": {"isolate": "victim"}}, "isolate sends one client a model of its own"),
        ({"defence": [{"name": "secure_sum", "dropout_rate": 1.0}]}, "dropout_rate"),
        ({"defence": [{"name": "secure_sum", "dropout": 0.6}]}, "did you mean 'dropout_rate'"),
        ({"defence": [{"name": "secure_sum"}, {"name": "clip", "norm": 1.0}]}, "before it"),
    ],
)
def test_what_a_sum_cannot_do_is_refused(
    tmp_path: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(FixConfig, match=words):
        record(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_other_defences_come_before(tmp_path: Path) -> None:
    defence = [{"name": "clip", "norm": 1e-3}, {"name": "secure_sum"}]
    recording = record(tmp_path / "run", defence=defence)
    sums = observe(recording, SECURE_SERVER, client_property("membership"), "").know(Sums)
    for one in sums:
        assert np.linalg.norm(one.total) <= 5e-3 * (1 + 1e-6)
