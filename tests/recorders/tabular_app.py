"""Flower's example fl-tabular as users know it: every client codes its texts, holds a fifth of its
records out and scales the others by itself; Adam at 0.001, batches of 32. One line is overheard's.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import OrdinalEncoder, StandardScaler
from torch.utils.data import DataLoader, TensorDataset

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

TABLE, RUN = "TABULAR_TABLE", "TABULAR_RUN"


def load_data(partition: int) -> Any:
    with Path(os.environ[TABLE]).open(newline="", encoding="utf-8") as file:
        people = [p for p in csv.DictReader(file) if p["client"] == f"client {partition}"]
    names = [name for name in people[0] if name != "client"]
    columns = []
    for name in names:
        values = [[person[name]] for person in people]
        number = values[0][0].lstrip("-").replace(".", "").isdigit()
        columns.append(
            np.array(values, dtype=float) if number else OrdinalEncoder().fit_transform(values)
        )
    table = np.hstack(columns)
    target = names.index("income")
    x, y = np.delete(table, target, axis=1), table[:, target]
    x_train, _, y_train, _ = train_test_split(x, y, test_size=0.2, random_state=42)
    x_train = torch.tensor(StandardScaler().fit_transform(x_train), dtype=torch.float32)
    y_train = torch.tensor(y_train, dtype=torch.float32).view(-1, 1)
    return DataLoader(TensorDataset(x_train, y_train), batch_size=32, shuffle=True)


class IncomeClassifier(torch.nn.Module):
    def __init__(self, inputs: int = 14, wide: int = 128) -> None:
        super().__init__()
        self.layer1 = torch.nn.Linear(inputs, wide)
        self.layer2 = torch.nn.Linear(wide, wide // 2)
        self.output = torch.nn.Linear(wide // 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.layer1(x))
        x = torch.relu(self.layer2(x))
        return torch.sigmoid(self.output(x))


def train(model: torch.nn.Module, loader: DataLoader[Any]) -> None:
    criterion = torch.nn.BCELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()


def apps(shape: dict[str, int], clients: int, rounds: int) -> tuple[ServerApp, ClientApp]:
    """The two apps; ``shape``: of the network."""
    from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import ServerApp
    from flwr.serverapp.strategy import FedAvg

    import overheard.flower

    client_app, server_app = ClientApp(), ServerApp()

    @client_app.train()
    def fit(message: Message, context: Context) -> Message:
        model = IncomeClassifier(**shape)
        model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
        loader = load_data(int(context.node_config["partition-id"]))
        train(model, loader)
        metrics = MetricRecord({"num-examples": len(loader)})  # of batches, as there
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
        return Message(content, reply_to=message)

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        strategy: Any = FedAvg(1.0, 0.0, min_train_nodes=clients, min_available_nodes=clients)
        strategy = overheard.flower.record(strategy, os.environ[RUN])  # the one line
        model = IncomeClassifier(**shape)
        strategy.start(grid, ArrayRecord(model.state_dict()), num_rounds=rounds)

    return server_app, client_app
