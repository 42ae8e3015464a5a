from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import exact_training
import numpy as np
import pytest
from patience import ended
from scripts import load

from overheard.errors import ChooseAnotherOutput
from overheard.transcript.store import Recording
from overheard.transcript.verify import verify
from overheard.transcript.view import in_the_clear

pytestmark = pytest.mark.slow

pytest.importorskip("flwr", reason="Flower is not installed: pip install overheard[flower]")
HERE = Path(__file__).parent
here = load(HERE / "conftest.py", "recorders_conftest")
app = load(HERE / "flower_app.py")


def ran(server: Any, client: Any = app.client_app) -> None:
    server(here.in_process_grid(client), here.context())


@pytest.mark.parametrize("how", ["strategy", "app"])
def test_what_is_recorded(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from overheard.flower import record, record_app

    (tmp_path / "digests").mkdir()
    monkeypatch.setenv("OVERHEARD_TEST_DIGESTS", str(tmp_path / "digests"))
    run, final = tmp_path / "run", tmp_path / "final.npz"
    if how == "strategy":
        server = app.server(lambda s: record(s, run), final, rounds=3)
    else:
        server = record_app(app.server(lambda s: s, final, rounds=3), run)
    ran(server)
    exact_training.check(tmp_path, 3, app.COUNTS)
    recording = Recording.open(run)
    assert set(recording.clients) == {str(node) for node in here.NODES}
    assert [r.number for r in recording.rounds] == [1, 2, 3]
    counts = zip(map(str, here.NODES), map(float, app.COUNTS), strict=True)
    assert recording.rounds[0].weights == dict(counts)
    observed = {e.number: sent for e, sent, _ in recording.releases(str(here.NODES[0]))}
    expected = {n + 1: exact_training.expected(n, app.COUNTS) for n in range(3)}
    np.testing.assert_equal(observed, expected)


def test_clients_can_be_named_by_what_they_say(tmp_path: Path) -> None:
    from overheard.flower import record

    server = app.server(lambda s: record(s, tmp_path / "run", name_by="partition"), rounds=1)
    ran(server)
    recording = Recording.open(tmp_path / "run")
    assert set(recording.clients) == {"0", "1", "2", "3"}
    notes = " ".join(in_the_clear(recording).sentences())
    assert "'loss' of 4 client(s) (0: 1.0;" in notes
    assert "num-examples" in notes
    assert "partition" not in notes


def test_a_strategy_stays_itself_and_no_path_is_used_again(tmp_path: Path) -> None:
    from flwr.serverapp.strategy import FedAvg

    from overheard.flower import record, record_app

    strategy = FedAvg(fraction_train=0.25)
    assert record(strategy, tmp_path / "run") is strategy
    with pytest.raises(ChooseAnotherOutput, match="exists already"):
        record(FedAvg(), tmp_path)
    with pytest.raises(ChooseAnotherOutput, match="exists already"):
        record_app(app.server(lambda s: s), tmp_path)(None, None)


def test_a_full_disk_ends_the_recording(tmp_path: Path, monkeypatch: Any, caplog: Any) -> None:
    from overheard.flower import record
    from overheard.transcript import store

    real = store.write_round  # type: ignore[attr-defined]

    def full(folder: Path, number: int, *message: Any) -> Any:
        if number == 3:
            raise OSError(28, "No space left on device")
        return real(folder, number, *message)

    monkeypatch.setattr(store, "write_round", full)
    run, final = tmp_path / "run", tmp_path / "final.npz"
    with caplog.at_level(logging.ERROR, "overheard"):
        ran(app.server(lambda s: record(s, run), final, rounds=5))
    exact_training.check_model(final, exact_training.expected(5, app.COUNTS))
    assert [r.message for r in caplog.records if r.name == "overheard"] == [
        "recording stopped (OSError: [Errno 28] No space left on device); the federation goes on, "
        "the rounds so far are kept"
    ]
    found = verify(run)
    assert found.rounds == 2
    assert not found.problems
    assert found.unfinished


def test_a_federation_that_fails_keeps_its_rounds(tmp_path: Path) -> None:
    from overheard.flower import record_app

    inner = app.server(lambda s: s, rounds=3)
    grid = here.in_process_grid(app.client_app)
    calls = 0
    push = grid.push_messages

    def failing(messages: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 5:  # rounds of no evaluation are pushed too
            raise KeyError("a client's fault")
        return push(messages)

    grid.push_messages = failing
    with pytest.raises(KeyError, match="a client's fault"):
        record_app(inner, tmp_path / "run")(grid, here.context())
    recording = Recording.open(tmp_path / "run")
    assert [r.number for r in recording.rounds] == [1, 2]
    assert not recording.closed


def test_a_client_that_answers_with_an_error_is_missing_from_its_round(tmp_path: Path) -> None:
    from flwr.app import Error, Message

    from overheard.flower import record_app

    def failing(message: Any, context: Any) -> Any:
        if context.node_id == 3:
            return Message(Error(code=0, reason="no data"), reply_to=message)
        return app.client_app(message, context)

    ran(record_app(app.server(lambda s: s, rounds=2), tmp_path / "run"), failing)
    recording = Recording.open(tmp_path / "run")
    assert set(recording.clients) == {str(node) for node in here.NODES[:3]}
    assert verify(tmp_path / "run").sound


def test_nobody_waits_for_the_slow(tmp_path: Path) -> None:
    """Push and pull without rounds: the slow client's reply comes when others are a round on."""
    from flwr.app import Message, RecordDict
    from flwr.serverapp import ServerApp

    from overheard.flower import record_app

    slow, quick = here.NODES[:2]
    server = ServerApp()

    @server.main()
    def main(grid: Any, context: Any) -> None:
        def ask(node: int, value: float) -> list[str]:
            arrays = {n: np.full_like(a, value) for n, a in exact_training.initial().items()}
            content = RecordDict({"arrays": app.as_record(arrays)})
            return list(grid.push_messages([Message(content, node, "train")]))

        late = ask(slow, 1.0)
        for value in (1.0, 2.0, 3.0):
            assert len(list(grid.pull_messages(ask(quick, value)))) == 1
        assert len(list(grid.pull_messages(late))) == 1

    ran(record_app(server, tmp_path / "run"))
    assert verify(tmp_path / "run").sound
    recording = Recording.open(tmp_path / "run")
    read = [(e.number, sent["layers.0.bias"][0]) for e, sent, _ in recording.releases(str(quick))]
    assert read == [(1, 1), (2, 2), (3, 3)]
    ((entry, *messages),) = recording.releases(str(slow))
    assert entry.number == 3
    ones = {n: np.ones_like(a) for n, a in exact_training.initial().items()}
    np.testing.assert_equal(messages, [ones, exact_training.trained(ones, 0)])
    said = in_the_clear(recording).sentences()
    assert any("came when their round was over" in note for note in said)


@pytest.mark.parametrize("secure", [False, True])
def test_legacy_apps(secure: bool, tmp_path: Path) -> None:
    legacy = load(HERE / "flower_legacy.py")
    from overheard.flower import record_app

    server = legacy.secure_server(3) if secure else legacy.server(3)
    client = legacy.secure_client if secure else legacy.client
    ran(record_app(server, tmp_path / "run"), client)
    assert verify(tmp_path / "run").sound
    recording = Recording.open(tmp_path / "run")
    assert set(recording.clients) == {str(node) for node in here.NODES}
    notes = in_the_clear(recording).sentences()
    counts = next(note for note in notes if "'num_examples'" in note)
    assert f"{here.NODES[0]}: {legacy.COUNTS[0]}" in counts
    assert any("'loss'" in note for note in notes)
    if not secure:
        assert [r.number for r in recording.rounds] == [1, 2, 3]
        for observed in recording.rounds:
            assert observed.weights == dict(
                zip(map(str, here.NODES), map(float, legacy.COUNTS), strict=True)
            )
        return
    assert any("SecAgg+ hides each client's model" in note for note in notes)
    for observed in recording.rounds:
        assert observed.aggregated
        assert set(observed.participants or ()) == {str(node) for node in here.NODES}
        assert not any(way == "returned" for way, _ in observed.spans)
    total = len(here.NODES) * (legacy.INITIAL - legacy.mean_after_one_round())
    heard_total = read_total(recording, 0)
    # each client rounds its share of [-8, 8] at random to one of the two nearest of 2^22 steps
    furthest = len(here.NODES) * len(here.NODES) * (16 / 2**22)
    np.testing.assert_allclose(heard_total, total, rtol=0, atol=furthest)


def read_total(recording: Recording, row: int) -> np.ndarray:
    from safetensors.numpy import load_file

    file = recording.path / "messages" / recording.rounds[row].line["file"]
    (name,) = (n for n in load_file(file) if n.startswith("total:"))
    return load_file(file)[name]


def run_here(words: list[str]) -> None:
    done = ended(words, **here.QUIET)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]


def test_deployment(tmp_path: Path, on_loopback: tuple[str, ...]) -> None:
    """A SuperLink and two SuperNodes as processes of their own, on loopback."""
    # where that is impossible they listen on loopback only, anyway
    run_here([*on_loopback, sys.executable, str(HERE / "deploy_flower.py"), str(tmp_path / "out")])
    exact_training.check(tmp_path / "out", 1, app.COUNTS[:2])
