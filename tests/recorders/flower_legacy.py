"""Flower's older interface: NumPyClient and strategies with fit, plain and under SecAgg+."""

from __future__ import annotations

from typing import Any

import numpy as np
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import LegacyContext, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import Grid, ServerApp

COUNTS = (2, 2, 4, 8)
INITIAL = np.linspace(-1.0, 1.0, 6).reshape(2, 3)


def trained(model: np.ndarray, partition: int) -> np.ndarray:
    return np.tanh(model + 0.1 * (partition + 1))


def mean_after_one_round() -> np.ndarray:
    made = [trained(INITIAL, p) * c for p, c in enumerate(COUNTS)]
    return np.sum(made, axis=0) / sum(COUNTS)


class Client(NumPyClient):
    def __init__(self, partition: int) -> None:
        self.partition = partition

    def fit(self, parameters: list[np.ndarray], config: Any) -> Any:
        after = trained(parameters[0], self.partition)
        return [after], COUNTS[self.partition], {"loss": 0.5 + self.partition}

    def evaluate(self, parameters: list[np.ndarray], config: Any) -> Any:
        return 0.5, 10, {"accuracy": 0.5}


def client_fn(context: Context) -> Any:
    return Client(int(context.node_config["partition-id"])).to_client()


client = ClientApp(client_fn=client_fn)
secure_client = ClientApp(client_fn=client_fn, mods=[secaggplus_mod])


def _strategy() -> FedAvg:
    return FedAvg(
        min_available_clients=4,
        min_fit_clients=4,
        min_evaluate_clients=4,
        initial_parameters=ndarrays_to_parameters([INITIAL]),
    )


def server(rounds: int) -> ServerApp:
    def server_fn(context: Context) -> ServerAppComponents:
        return ServerAppComponents(strategy=_strategy(), config=ServerConfig(num_rounds=rounds))

    return ServerApp(server_fn=server_fn)


def secure_server(rounds: int) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        legacy = LegacyContext(
            context=context, config=ServerConfig(num_rounds=rounds), strategy=_strategy()
        )
        masked = SecAggPlusWorkflow(
            num_shares=3, reconstruction_threshold=2, clipping_range=8.0, max_weight=16
        )
        DefaultWorkflow(fit_workflow=masked)(grid, legacy)

    return app
