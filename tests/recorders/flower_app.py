"""A Flower app whose arithmetic is exact; see `exact_training`. Every client writes the digest of
what it returns to the folder ``OVERHEARD_TEST_DIGESTS``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from exact_training import digest, initial, trained
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

COUNTS = (2, 2, 4, 8)
client_app = ClientApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    partition = int(context.node_config["partition-id"])
    model = {n: a.numpy() for n, a in message.content.array_records["arrays"].items()}
    after = trained(model, partition)
    if folder := os.environ.get("OVERHEARD_TEST_DIGESTS"):
        Path(folder, f"{message.metadata.dst_node_id}-{digest(after)}").touch()
    metrics = MetricRecord(
        {"num-examples": COUNTS[partition % 4], "loss": 1.0 + partition, "partition": partition}
    )
    content = RecordDict({"arrays": as_record(after), "metrics": metrics})
    return Message(content, reply_to=message)


def as_record(arrays: dict[str, np.ndarray]) -> ArrayRecord:
    return ArrayRecord({n: Array(a) for n, a in arrays.items()})


def server(wrap: Any, outcome: Path | None = None, rounds: int = 2, clients: int = 4) -> ServerApp:
    """A ServerApp that runs FedAvg; ``wrap`` is applied to the strategy."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy = wrap(FedAvg(1.0, 0.0, clients, 0, clients))
        result = strategy.start(grid, as_record(initial()), num_rounds=rounds)
        if outcome is not None:
            arrays = {n: a.numpy() for n, a in result.arrays.items()}
            np.savez(outcome, **arrays)

    return app
