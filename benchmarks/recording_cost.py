"""What does recording a Flower federation cost? ``python -m benchmarks.recording_cost --bare``

A simulation of 20 rounds and 10 clients (Flower on Ray) runs recorded, and the time between the
strategy's calls and the real grid's is the recorder's: reading messages, hashing, writing, fsync.
Must hold: under 5% of the wall time of the run, or under 2 ms a message, whichever is larger. With
``--bare`` an unrecorded run stands beside it; the difference of two wall times is mostly noise.
Writes benchmarks/recording_cost.json.

Ray listens on every interface, so the program starts itself again where only loopback is there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.frame import Results, Row, options
from benchmarks.runner.run import LOOPBACK, QUIET

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid

ROUNDS, CLIENTS = 20, 10
SHARE, PER_MESSAGE = 0.05, 0.002
INSIDE = "OVERHEARD_LOOPBACK_ONLY"


def client_app() -> ClientApp:
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    client = ClientApp()

    @client.train()
    def train(message: Message, context: Context) -> Message:
        model = {n: a.numpy() for n, a in message.content.array_records["arrays"].items()}
        after = {n: Array((np.tanh(a) + 0.01).astype(a.dtype)) for n, a in model.items()}
        metrics = MetricRecord({"num-examples": 100, "loss": 1.0})
        content = RecordDict({"arrays": ArrayRecord(after), "metrics": metrics})
        return Message(content, reply_to=message)

    return client


class Clock:
    """A grid that passes calls on and adds up how long messages take."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)

    def _timed(self, call: Any, *args: Any, **options: Any) -> Any:
        begin = time.perf_counter()
        try:
            return call(*args, **options)
        finally:
            self.seconds += time.perf_counter() - begin

    def push_messages(self, messages: Any) -> Any:
        return self._timed(self._grid.push_messages, messages)

    def pull_messages(self, message_ids: Any) -> Any:
        return self._timed(self._grid.pull_messages, message_ids)

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
        return self._timed(self._grid.send_and_receive, messages, timeout=timeout)


def simulate(width: int, path: Path | None) -> dict[str, float]:
    """Wall time of the strategy and, if recorded, how much of it was the recorder's."""
    from flwr.app import Array, ArrayRecord
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    from overheard.federation.recorders.flower import ListeningGrid
    from overheard.federation.recorders.listener import Listener
    from overheard.federation.recorders.live import Recorder

    rng = np.random.default_rng(0)
    shapes = {"0.weight": (width, 100), "0.bias": (width,), "2.weight": (10, width)}
    model = {n: Array(rng.normal(size=s).astype(np.float32)) for n, s in shapes.items()}
    found: dict[str, float] = {"parameters": float(sum(np.prod(s) for s in shapes.values()))}
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = FedAvg(1.0, 0.0, CLIENTS, 0, CLIENTS)
        list(grid.get_node_ids())
        begin = time.perf_counter()
        if path is None:
            strategy.start(grid, ArrayRecord(model), num_rounds=ROUNDS)
            found["wall"] = time.perf_counter() - begin
            return
        inner: Any = Clock(grid)
        listening = ListeningGrid(inner, Listener(Recorder(path)))
        outer: Any = Clock(listening)
        before_end = time.perf_counter()

        def run() -> None:
            nonlocal before_end
            strategy.start(outer, ArrayRecord(model), num_rounds=ROUNDS)
            before_end = time.perf_counter()

        listening.during(run)
        end = time.perf_counter()
        found["wall"] = end - begin
        found["recording"] = outer.seconds - inner.seconds + (end - before_end)

    options: dict[str, Any] = {"init_args": {"include_dashboard": False}}
    run_simulation(app, client_app(), num_supernodes=CLIENTS, backend_config=options)
    return found


def measured(width: int, bare: bool) -> Row:
    """The figures, and whether the recorder kept to what is allowed."""
    with tempfile.TemporaryDirectory() as folder:
        found = simulate(width, Path(folder) / "run")
    if bare:
        found["bare_wall"] = simulate(width, None)["wall"]
    messages = 2 * ROUNDS * CLIENTS
    found |= {
        "messages": messages,
        "share": found["recording"] / found["wall"],
        "milliseconds_a_message": 1000 * found["recording"] / messages,
        "allowed_seconds": max(SHARE * found["wall"], PER_MESSAGE * messages),
    }
    held = found["recording"] <= found["allowed_seconds"]
    return {**{name: round(value, 4) for name, value in found.items()}, "held": held}


def main() -> int:
    given = options(__doc__, __file__, width=1000, bare=False)
    if INSIDE not in os.environ:
        if not (shutil.which("unshare") and shutil.which("ip")):
            sys.exit("needs unshare and ip: Ray listens on every interface that it sees")
        words = [*LOOPBACK, sys.executable, "-m", "benchmarks.recording_cost", *sys.argv[1:]]
        alone = {**os.environ, **QUIET, INSIDE: "1"}
        return subprocess.run(words, env=alone, check=False).returncode
    kept = Results(given.out, given.command)
    row = kept.row(f"{given.width} units", lambda: measured(given.width, given.bare))
    print(row)
    return int(not row["held"])


if __name__ == "__main__":
    sys.exit(main())
