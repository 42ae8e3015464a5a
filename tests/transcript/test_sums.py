"""Rounds of sums: recorded, read one at a time, and nothing but the sum within reach."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from overheard.errors import FixConfig, FixData, FixRecording, ListenLonger
from overheard.programs.records import Records
from overheard.transcript.guess import ClientProperty
from overheard.transcript.kind import LABEL_COLUMN, RoundSum
from overheard.transcript.knowledge import (
    AuxiliaryData,
    Broadcast,
    Messages,
    ShardSize,
    Sums,
    TargetRecord,
)
from overheard.transcript.store import Recorder, Recording
from overheard.transcript.target import LOCAL_MODEL, client_property
from overheard.transcript.threat import EAVESDROPPER, SECURE_SERVER, SERVER
from overheard.transcript.verify import verify
from overheard.transcript.view import observe

CLIENTS = ("a", "b", "c", "idle")
MEMBERSHIP = client_property("membership")


def message(rng: np.random.Generator, dtype: Any = np.float32) -> dict[str, np.ndarray]:
    return {"w": rng.normal(size=(2, 3)).astype(dtype), "b": rng.normal(size=3).astype(dtype)}


def flat(arrays: dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate([arrays[n].ravel() for n in ("w", "b")])


def aggregated(path: Path) -> tuple[Recording, list[Any]]:
    """Rounds of sums of clients "a", "b", "c", two at a time; returns what was recorded."""
    rng = np.random.default_rng(3)
    said = []
    with Recorder(path, "model", {"clients": list(CLIENTS)}) as recorder:
        for number in range(5):
            sent, total = message(rng), message(rng, np.float64)
            who = [CLIENTS[number % 3], CLIENTS[(number + 1) % 3]]
            recorder.aggregated(2 * number, sent, total, who)
            said.append((2 * number, flat(sent), flat(total), who))
    return Recording.open(path), said


def test_sums_come_back_as_they_were_recorded(tmp_path: Path) -> None:
    recording, said = aggregated(tmp_path / "run")
    assert recording.clients == CLIENTS
    view = observe(recording, SECURE_SERVER, MEMBERSHIP, "")
    assert view.client == ""
    sums = view.know(Sums)
    assert sums.clients == CLIENTS
    assert sums.rounds.tolist() == [0, 2, 4, 6, 8]
    assert sums.participation.sum(axis=0).tolist() == [3, 4, 3, 0]
    assert len(sums) == 5
    for observed, (number, sent, total, who) in zip(sums, said, strict=True):
        assert observed.number == number
        assert observed.sent.dtype == np.float32
        assert observed.total.dtype == np.float64
        assert np.array_equal(observed.sent, sent)
        assert np.array_equal(observed.total, total)
        assert [CLIENTS[k] for k in observed.participants] == sorted(who)
        with pytest.raises(ValueError, match="read-only"):
            observed.total[0] = 1
    assert sums._rows.filename is None  # type: ignore[attr-defined]
    early = sums.first(2)
    assert [one.number for one in early] == [0, 2]
    assert early.participation.shape == (2, 4)
    with pytest.raises(IndexError):
        sums[5]
    with pytest.raises(ListenLonger, match=r"2 round\(s\) were observed but this needs at least 3"):
        early.require(3, "this")
    assert verify(tmp_path / "run").sound


def test_single_returns_are_summed_in_float64(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    with Recorder(tmp_path / "run") as recorder:
        sent = message(rng)
        returned = {c: message(rng) for c in ("a", "b", "c")}
        recorder.round(0, sent, returned)
    (observed,) = observe(Recording.open(tmp_path / "run"), SECURE_SERVER, MEMBERSHIP, "").know(
        Sums
    )
    expected = sum(flat(sent).astype(float) - flat(r) for r in returned.values())
    assert np.array_equal(observed.total, expected)
    with Recorder(tmp_path / "gradients", "gradient") as recorder:
        recorder.round(0, sent, returned)
    view = observe(Recording.open(tmp_path / "gradients"), SECURE_SERVER, MEMBERSHIP, "")
    expected = sum(flat(r).astype(float) for r in returned.values())
    assert np.array_equal(next(iter(view.know(Sums))).total, expected)


def test_memory_does_not_grow_with_the_rounds() -> None:
    import tracemalloc

    size = 20_000

    def observed(rounds: int) -> Any:
        for number in range(rounds):
            one = np.full(size, float(number))
            yield RoundSum(number, one.astype(np.float32), one, np.array([0]))

    def peak(rounds: int) -> int:
        tracemalloc.start()
        sums = Sums.of_rounds(("a",), observed(rounds))
        total = sum(float(one.total[0]) for one in sums)
        assert total == rounds * (rounds - 1) / 2
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(2)  # imports
    assert peak(60) < peak(6) + size * 8
    assert list(Sums.of_rounds(("a",), [])) == []


def test_nobody_hears_a_link_in_a_recording_of_sums_which_are_of_everybody(tmp_path: Path) -> None:
    recording, _ = aggregated(tmp_path / "run")
    for threat in (EAVESDROPPER, SERVER):
        with pytest.raises(ListenLonger, match=r"holds sums of updates only.*'secure-server'"):
            observe(recording, threat, LOCAL_MODEL, "a")
        assert observe(recording, threat, MEMBERSHIP, "").kinds == {Broadcast}  # no model in it
    assert Messages not in SECURE_SERVER.grants
    assert observe(recording, SECURE_SERVER, LOCAL_MODEL, "a").kinds == {Broadcast}
    with pytest.raises(FixConfig, match="asked of the whole federation"):
        observe(recording, SECURE_SERVER, MEMBERSHIP, "a")
    with pytest.raises(FixConfig, match="anything else of one client"):
        observe(recording, SECURE_SERVER, LOCAL_MODEL, "")


def test_what_is_wrong_with_a_round_of_sums_is_refused(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    with Recorder(tmp_path / "run") as recorder:
        for who in ([], ["a", "a"]):
            with pytest.raises(FixData, match="must be different clients, at least one"):
                recorder.aggregated(0, message(rng), message(rng), who)
        with pytest.raises(FixData, match="has arrays"):
            recorder.aggregated(0, message(rng), {"w": np.zeros((2, 3))}, ["a"])
        bad = message(rng, np.float64)
        bad["b"][1] = np.nan
        recorder.aggregated(0, message(rng), bad, ["a"])
    with pytest.raises(FixRecording, match=r"round 0: 'b' to or from all clients holds NaN"):
        observe(Recording.open(tmp_path / "run"), SECURE_SERVER, MEMBERSHIP, "")


@pytest.mark.parametrize(
    "change",
    [
        lambda e: e.pop("participants") and None,
        lambda e: e.update(participants=[]),
        lambda e: e.update(participants=["a", "a"]),
        lambda e: e["messages"][1].__setitem__(1, "a"),
        lambda e: e["messages"][0].__setitem__(1, "a"),
        lambda e: e["messages"][1].__setitem__(0, "returned"),
    ],
)
def test_a_forged_round_of_sums_is_refused(tmp_path: Path, forge: Any, change: Any) -> None:
    aggregated(tmp_path / "run")
    forge(tmp_path / "run" / "messages", lambda lines: change(lines[1]))
    with pytest.raises(FixRecording, match="the line of round 0 is not valid"):
        Recording.open(tmp_path / "run")


def test_what_the_property_needs_is_read_for_its_target_only(tmp_path: Path) -> None:
    images = Records({"image": np.arange(12, dtype=np.uint8).reshape(3, 4)})
    labels = np.array([1.0, 2.0, 3.0])
    table = Records({**images.columns, LABEL_COLUMN: labels})
    one = table.take(np.array([1]))
    rng = np.random.default_rng(0)
    with Recorder(tmp_path / "run") as recorder:
        recorder.aggregated(0, message(rng), message(rng), ["a"])
        recorder.side("AuxiliaryData", {"auxiliary": table}, "property.membership")
        recorder.side("TargetRecord", {"target": one}, "property.membership")
        recorder.side("ShardSize", {"records": 10}, "property.membership")
        recorder.side("SuspectedBehaviour", {"behaviour": "ascent"}, "property.poisoning")
        recorder.side("ShardSize", {"records": 0}, "property.poisoning")
        recorder.side("SuspectedBehaviour", {"nmae": "ascent"}, "property.free-rider")
    recording = Recording.open(tmp_path / "run")
    view = observe(recording, SECURE_SERVER, MEMBERSHIP, "")
    assert view.kinds == {Broadcast, Sums, AuxiliaryData, TargetRecord, ShardSize}
    target = view.know(TargetRecord)
    assert target.records["image"].tolist() == [[4, 5, 6, 7]]
    assert target.records["image"].dtype == np.uint8
    assert target.labels.tolist() == [2.0]
    assert view.know(AuxiliaryData).records["image"].shape == (3, 4)
    assert view.know(ShardSize).records == 10
    for column, what in (("poisoning", "ShardSize"), ("free-rider", "SuspectedBehaviour")):
        with pytest.raises(FixRecording, match=rf"{what} for .property\.{column}. is not"):
            observe(recording, SECURE_SERVER, client_property(column), "")


def test_a_guess_is_checked() -> None:
    clients = ("a", "b")
    half = np.full(2, 0.5)
    guess = ClientProperty(half, (True, False), clients, evidence=np.zeros((3, 2)))
    assert guess.choice().tolist() == [True, False]
    wrong: dict[str, tuple[Any, ...]] = {
        "probabilities": (np.full(3, 0.5), np.array([0.5, 1.5]), np.array([0.5, np.nan])),
        "chosen": ((True,),),
        "evidence": (np.zeros((3, 1)), np.full((3, 2), 2.0)),
        "contribution": (np.zeros(3), np.array([np.inf, 0])),
    }
    for name, value in [(name, value) for name, values in wrong.items() for value in values]:
        with pytest.raises(FixData):
            replace(guess, **{name: value})
