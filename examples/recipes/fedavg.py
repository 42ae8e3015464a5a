"""A Flower app that trains a torch module by FedAvg; `tabular` has one in full.

``task`` is the module of a recipe: its ``Net``, ``load_data``, ``train`` and ``ROUNDS``, and
perhaps ``MODS`` of the clients and the ``defended`` strategy.
"""

from typing import Any

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import overheard.flower

SITES = 4


def client_app(task: Any) -> ClientApp:
    """A site: trains the model that it is sent on its own records, and returns it."""
    app = ClientApp(mods=getattr(task, "MODS", None))

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


def server_app(task: Any) -> ServerApp:
    """The server: plain FedAvg, or what defends it. One line of it is overheard's."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        torch.manual_seed(1)
        strategy = FedAvg(1.0, 0.0, min_train_nodes=SITES, min_available_nodes=SITES)
        if hasattr(task, "defended"):
            strategy = task.defended(strategy)
        run = str(context.run_config.get("recording", "run"))
        strategy = overheard.flower.record(strategy, run, name_by="site")
        strategy.start(grid, ArrayRecord(task.Net().state_dict()), num_rounds=task.ROUNDS)

    return app
