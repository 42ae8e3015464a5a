from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

import overheard
from overheard.errors import ChooseAnotherOutput, FixData
from overheard.recorders.recorder import Listener
from overheard.transcript import store
from overheard.transcript.store import Recording
from overheard.transcript.verify import verify
from overheard.transcript.view import in_the_clear


def model(value: float, dtype: str = "float32") -> dict[str, np.ndarray]:
    return {"w": np.full((2, 3), value, dtype), "b": np.full(2, -value, dtype)}


def test_a_round_is_written_when_the_next_begins(tmp_path: Path) -> None:
    recorder = overheard.Recorder(tmp_path / "run", about={"by": "hand"})
    recorder.sent(0, "", model(1))
    recorder.returned(0, "a", model(2), 10)
    assert Recording.open(tmp_path / "run").rounds == ()
    recorder.sent(1, "a", model(3))
    recorder.sent(1, "", model(5))  # to all others
    assert [r.number for r in Recording.open(tmp_path / "run").rounds] == [0]
    recorder.returned(1, "a", model(4))
    recorder.close()
    recorder.close()
    recording = Recording.open(tmp_path / "run")
    first, second = recording.releases("a")
    np.testing.assert_equal(first[1:], (model(1), model(2)))
    np.testing.assert_equal(second[1:], (model(3), model(4)))
    assert [(e.number, e.weights) for e in recording.rounds] == [(0, {"a": 10}), (1, {})]
    assert verify(tmp_path / "run").sound
    assert recording.about == {"by": "hand"}


def test_messages_may_come_from_many_threads(tmp_path: Path) -> None:
    names = [str(2**64 - 1 - i) for i in range(40)]
    with overheard.Recorder(tmp_path / "run") as recorder, ThreadPoolExecutor(8) as pool:
        for number in range(5):

            def talk(place: int, number: int = number) -> None:
                recorder.sent(number, names[place], model(number))
                recorder.returned(number, names[place], model(place), place)

            list(pool.map(talk, range(40)))
    recording = Recording.open(tmp_path / "run")
    assert set(recording.clients) == set(names)
    for place, name in enumerate(names):
        for number, (entry, *messages) in zip(range(5), recording.releases(name), strict=True):
            np.testing.assert_equal(messages, [model(number), model(place)])
            assert entry.weights[name] == place
    # one model for all is kept once
    assert all(("sent", "") in entry.spans for entry in recording.rounds)


def test_what_is_written_does_not_depend_on_the_order_of_arrival(tmp_path: Path) -> None:
    """Who answers first is a matter of how busy the machines are."""
    for number, order in enumerate(permutations("abc")):
        with overheard.Recorder(tmp_path / f"{number}") as recorder:
            recorder.sent(0, "", model(1))
            for client in order:
                recorder.returned(0, client, model(ord(client)), 10)
                recorder.clear("loss", client, 0.5)
            recorder.sent(1, "", model(2))
            recorder.aggregated(1, model(3), order)
    written = [
        {str(f.relative_to(run)): f.read_bytes() for f in run.rglob("*") if f.is_file()}
        for run in (tmp_path / str(number) for number in range(6))
    ]
    assert len(written[0]) >= 3
    assert all(files == written[0] for files in written)


def test_types_widen_and_never_narrow(tmp_path: Path) -> None:
    with overheard.Recorder(tmp_path / "wide") as recorder:
        recorder.sent(0, "", model(0.1))
        recorder.returned(0, "a", model(0.1, "float64"))
        recorder.sent(1, "", model(0.1, "float64"))
        recorder.returned(1, "a", model(0.1))
    (_, sent, returned), (_, *later) = Recording.open(tmp_path / "wide").releases("a")
    assert {arrays["w"].dtype for arrays in (sent, returned, *later)} == {np.dtype("float64")}
    assert sent["w"][0, 0] == np.float32(0.1)
    assert returned["w"][0, 0] == 0.1


def test_what_changes_is_noted_and_never_a_reason_to_stop(tmp_path: Path) -> None:
    """FLARE's first message names settings and no model; FedAdam sends float64 after float32,
    means of counters and a mask that no site sends back; a site sends one array more, and one
    sends another model."""
    with overheard.Recorder(tmp_path / "run") as recorder:
        recorder.sent(0, "", {"loss": np.array("log_loss"), "classes": np.array(2)})
        recorder.returned(0, "a", model(1))
        for number, kind in enumerate(["float32", "float64"], 1):
            steps = np.array(number, "int64" if number == 1 else "float64")
            recorder.sent(number, "", {**model(0.1, kind), "steps": steps, "mask": np.ones(4)})
            recorder.returned(number, "a", {**model(2), "steps": np.array(7)})
        recorder.returned(2, "b", {**model(3), "steps": np.array(7), "late": np.ones(1)})
        recorder.returned(2, "c", {"w": np.ones(5)})
    recording = Recording.open(tmp_path / "run")
    assert verify(tmp_path / "run").problems == ()
    heard = [
        (e.number, sorted(c for way, c in e.spans if way == "returned")) for e in recording.rounds
    ]
    assert heard == [(1, ["a"]), (2, ["a", "b"])]
    for _, sent, _ in recording.releases("a"):
        assert (sent["w"] == np.float32(0.1)).all()
    assert in_the_clear(recording).sentences() == (
        "A message of round 0 was left out: it holds another model.",
        "Arrays that are not in every message were left out: mask.",
        "Arrays that are not in every message were left out: late, mask.",
        "w came as float64, too, and was rounded to float32.",
        "b came as float64, too, and was rounded to float32.",
        "steps came as float64, too, and was rounded to int64.",
        "A message of round 2 was left out: it holds another model.",
    )


@pytest.mark.parametrize(
    ("talk", "complaint"),
    [
        (lambda r: r.returned(0, "a", model(1)), "was sent none"),
        (lambda r: r.sent(0, "", {}), "without arrays"),
        (lambda r: (r.sent(2, "", model(1)), r.sent(1, "", model(1))), "must not go back"),
        (lambda r: (r.sent(0, "", model(1)), r.aggregated(0, model(1), [])), "of how many it is"),
        (lambda r: r.aggregated(0, model(1), ["a"]), "one model was sent to all"),
    ],
)
def test_mistakes(tmp_path: Path, talk: object, complaint: str) -> None:
    with pytest.raises(FixData, match=complaint), overheard.Recorder(tmp_path / "run") as recorder:
        talk(recorder)  # type: ignore[operator]
    assert not verify(tmp_path / "run").problems


def test_a_closed_recording_takes_no_more(tmp_path: Path) -> None:
    recorder = overheard.Recorder(tmp_path / "run")
    recorder.close()
    with pytest.raises(FixData, match="closed"):
        recorder.sent(0, "", model(1))
    with pytest.raises(ChooseAnotherOutput):
        overheard.Recorder(tmp_path / "run")


def test_an_error_leaves_it_unfinished_with_every_round(tmp_path: Path) -> None:
    recorder = overheard.Recorder(tmp_path / "run")
    recorder.sent(0, "", model(1))
    recorder.returned(0, "a", model(1))
    with pytest.raises(KeyError), recorder:
        raise KeyError
    found = verify(tmp_path / "run")
    assert (found.rounds, found.problems) == (1, ())
    assert found.unfinished


def test_rounds_go_forward_and_hear_each_client_once(tmp_path: Path) -> None:
    asked = [(1, "a"), (1, "b"), (2, "a"), (1, "c"), (2, "b"), (2, "a"), (2, "c"), (7, "a")]
    with overheard.Recorder(tmp_path / "run") as recorder:
        rounds = Listener(recorder)
    assert [rounds.place(*one) for one in asked] == [1, 1, 2, 2, 2, 3, 3, 7]


def test_written_behind_a_round_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, real = threading.Event(), store.write_round  # type: ignore[attr-defined]
    monkeypatch.setattr(store, "write_round", lambda *a: (disk.wait(), real(*a))[1])
    with overheard.Recorder(tmp_path / "run") as recorder:
        recorder.behind = ThreadPoolExecutor(1)
        for number in range(2):
            recorder.sent(number, "", model(number))
            recorder.returned(number, "a", model(number + 1))
        assert Recording.open(tmp_path / "run").rounds == ()
        disk.set()
    released = Recording.open(tmp_path / "run").releases("a")
    np.testing.assert_equal([sent for _, sent, _ in released], [model(0), model(1)])
    assert verify(tmp_path / "run").sound


def test_what_goes_wrong_behind_is_said_by_the_next_round(tmp_path: Path) -> None:
    recorder = overheard.Recorder(tmp_path / "run")
    recorder.behind = ThreadPoolExecutor(1)
    recorder.returned(0, "a", model(1))
    recorder.sent(1, "", model(1))
    with pytest.raises(FixData, match="round 0: 'a' returned a model but was sent none"):
        recorder.sent(2, "", model(1))
    recorder.drop()
    assert verify(tmp_path / "run").problems == ()
