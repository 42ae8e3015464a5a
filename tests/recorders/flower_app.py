"""A Flower app whose arithmetic is exact, so that its outcome does not depend on who answers first.

Models are multiples of 2^-20 and the record counts sum to a power of two: the weighted mean has no
rounding, in whatever order Flower adds. Every client writes the digest of what it returns to the
folder ``OVERHEARD_TEST_DIGESTS``: the proof that a recording is what was sent.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

COUNTS = (2, 2, 4, 8)
SHAPES = {"layers.0.weight": (3, 5), "layers.0.bias": (3,)}


def initial() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    return {n: _exact(rng.normal(size=shape)) for n, shape in SHAPES.items()}


def _exact(array: np.ndarray) -> np.ndarray:
    """The nearest multiples of 2^-20, as float64."""
    return np.round(array * 2.0**20) / 2.0**20


def trained(model: dict[str, np.ndarray], partition: int) -> dict[str, np.ndarray]:
    """What the client of this partition makes of a model; not linear, and its own."""
    return {n: _exact(np.tanh(a + 0.1 * (partition + 1))) for n, a in model.items()}


def digest(arrays: dict[str, np.ndarray]) -> str:
    """Of the arrays' bytes in the order of the recording's layout."""
    return hashlib.sha256(
        b"".join(np.ascontiguousarray(a).tobytes() for a in arrays.values())
    ).hexdigest()


def expected(rounds: int, clients: int) -> dict[str, np.ndarray]:
    """The model that the federation must end in, without any Flower."""
    model = initial()
    for _ in range(rounds):
        made = [trained(model, p) for p in range(clients)]
        total = sum(COUNTS[:clients])
        model = {
            n: sum(m[n] * (c / total) for m, c in zip(made, COUNTS, strict=False)) for n in model
        }
    return model


def leave_digest(who: str, arrays: dict[str, np.ndarray]) -> None:
    folder = os.environ.get("OVERHEARD_TEST_DIGESTS")
    if folder:
        Path(folder, f"{who}-{digest(arrays)}").touch()


client_app = ClientApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    partition = int(context.node_config["partition-id"])
    model = {n: a.numpy() for n, a in message.content.array_records["arrays"].items()}
    after = trained(model, partition)
    leave_digest(str(message.metadata.dst_node_id), after)
    metrics = MetricRecord(
        {"num-examples": COUNTS[partition % 4], "loss": 1.0 + partition, "partition": partition}
    )
    content = RecordDict({"arrays": ArrayRecord(_as_flower(after)), "metrics": metrics})
    return Message(content, reply_to=message)


def _as_flower(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    from flwr.app import Array

    return {n: Array(a) for n, a in arrays.items()}


def server(wrap: Any, outcome: Path | None = None, rounds: int = 2, clients: int = 4) -> ServerApp:
    """A ServerApp that runs FedAvg; ``wrap`` is applied to the strategy."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = wrap(FedAvg(1.0, 0.0, clients, 0, clients))
        result = strategy.start(
            grid=grid, initial_arrays=ArrayRecord(_as_flower(initial())), num_rounds=rounds
        )
        if outcome is not None:
            arrays = {n: a.numpy() for n, a in result.arrays.items()}
            np.savez(outcome, **arrays)

    return app
