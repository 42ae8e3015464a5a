"""The same federation in Flower's simulation engine, whose clients train with plain torch.

Ray listens on every interface that it sees, so this runs where there is only loopback. Ray gets
one processor, as everybody here. The start of Ray is not counted, only the rounds are.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.runner.entry import Facts, Job, Sizes


def prepare(sizes: Sizes, folder: Path) -> Job:
    """Flower's FedAvg over so many rounds."""
    import torch
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    from benchmarks.entries.simulation import BATCH, RATE, shape

    widths, clients = shape(sizes), sizes["clients"]
    shown = sizes["flower_rounds"]
    client, server = ClientApp(), ServerApp()
    found: dict[str, float] = {}
    inputs, labels = tensors(sizes)

    def fit(message: Any, context: Any) -> Any:
        from benchmarks.entries.plain_torch import loss_for, network, train

        number = int(context.node_config["partition-id"])
        net = network(widths)
        net.load_state_dict(message.content["arrays"].to_torch_state_dict())
        train(net, loss_for(widths[-1]), inputs[number], labels[number], BATCH, RATE)
        content: Any = {
            "arrays": ArrayRecord(net.state_dict()),
            "metrics": MetricRecord({"num-examples": sizes["records"]}),
        }
        return Message(RecordDict(content), reply_to=message)

    def main(grid: Any, context: Any) -> None:
        from benchmarks.entries.plain_torch import network

        strategy = FedAvg(1.0, 0.0, clients, 0, clients)
        list(grid.get_node_ids())
        start = ArrayRecord(network(widths).state_dict())
        strategy.start(grid, start, num_rounds=1)  # starts the workers
        begin = time.perf_counter()
        strategy.start(grid, start, num_rounds=shown)
        found["seconds"] = time.perf_counter() - begin

    main.__annotations__ = {"grid": Grid, "context": Context}
    fit.__annotations__ = {"message": Message, "context": Context}
    client.train()(fit)
    server.main()(main)

    def run() -> Facts:
        torch.manual_seed(0)
        options: dict[str, Any] = {
            "init_args": {"include_dashboard": False, "num_cpus": 1},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        }
        run_simulation(server, client, num_supernodes=clients, backend_config=options)
        return dict(found)

    return Job(run, shown / sizes["rounds"])


def tensors(sizes: Sizes) -> tuple[Any, Any]:
    """Everybody's records as tensors."""
    import torch

    from benchmarks.entries.simulation import people

    inputs, labels = people(sizes)
    y = torch.from_numpy(labels)
    return torch.from_numpy(inputs), y if sizes["outputs"] > 1 else y[..., None].float()
