"""Client and server of an app that trains a torch module by FedAvg; `tabular` has them in full.

``task`` is the app's own module: its network, its data and its training.
"""

from collections.abc import Callable
from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Strategy

import overheard.flower

SITES = 4


def client_app(task: Any, **options: Any) -> ClientApp:
    """A site: trains the model that it is sent on its own records, and returns it."""
    app = ClientApp(**options)

    @app.train()
    def fit(message: Message, context: Context) -> Message:
        partition = int(context.node_config["partition-id"])
        model, loader = task.Net(), task.load_data(partition)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        task.train(model, loader)
        metrics = MetricRecord({"num-examples": len(loader.dataset), "site": partition})
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    return app


def server_app(
    task: Any, rounds: int = 3, defended: Callable[[Strategy], Strategy] = lambda plain: plain
) -> ServerApp:
    """The server: plain FedAvg, or ``defended``. One line of it is overheard's."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        torch.manual_seed(1)
        plain = FedAvg(1.0, 0.0, min_train_nodes=SITES, min_available_nodes=SITES)
        strategy, run = defended(plain), str(context.run_config.get("recording", "run"))
        strategy = overheard.flower.record(strategy, run, name_by="site")
        strategy.start(grid, ArrayRecord(task.Net().state_dict()), num_rounds=rounds)

    return app
