"""What does recording a Flower federation cost? ``python benchmarks/recording_cost.py --bare``

A simulation of 20 rounds and 10 clients (Flower on Ray) runs recorded, and the time between the
strategy's calls and the real grid's is the recorder's: reading messages, hashing, writing, fsync.
Must hold: under 5% of the wall time of the run, or under 2 ms a message, whichever is larger. With
``--bare`` an unrecorded run stands beside it; the difference of two wall times is mostly noise.
Writes benchmarks/recording_cost.json.

Ray listens on every interface, so the program starts itself again where only loopback is there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ["RAY_ADDRESS"] = "local"

import numpy as np

from overheard.origin import origin

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid

OUT = Path(__file__).with_suffix(".json")
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--width", type=int, default=1000, help="hidden units of the model sent")
    parser.add_argument("--bare", action="store_true", help="run it without a recorder as well")
    options = parser.parse_args()
    if INSIDE not in os.environ:
        if not (shutil.which("unshare") and shutil.which("ip")):
            sys.exit("needs unshare and ip: Ray listens on every interface that it sees")
        alone = ["unshare", "-rn", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
        words = [*alone, sys.executable, *sys.argv]
        return subprocess.run(words, env={**os.environ, INSIDE: "1"}, check=False).returncode
    with tempfile.TemporaryDirectory() as folder:
        found = simulate(options.width, Path(folder) / "run")
        if options.bare:
            found["bare_wall"] = simulate(options.width, None)["wall"]
    messages = 2 * ROUNDS * CLIENTS
    allowed = max(SHARE * found["wall"], PER_MESSAGE * messages)
    found |= {
        "messages": messages,
        "share": found["recording"] / found["wall"],
        "milliseconds_a_message": 1000 * found["recording"] / messages,
        "allowed_seconds": allowed,
    }
    for name, value in found.items():
        print(f"{name:<24} {value:.4g}")
    held = found["recording"] <= allowed
    figures = {name: round(value, 4) for name, value in found.items()}
    command = f"python benchmarks/recording_cost.py --width {options.width}"
    row = {**origin(command + " --bare" * options.bare), **figures, "held": held}
    rows = json.loads(OUT.read_text()) if OUT.exists() else {}
    rows[f"{options.width} units"] = row
    OUT.write_text(json.dumps(rows, indent=1) + "\n")
    print("held" if held else "NOT HELD")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
