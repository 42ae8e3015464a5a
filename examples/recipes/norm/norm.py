"""Who spends much on doctors? A network that normalises its layers, Adam, batches of 32."""

import people
import torch
from torch import nn
from training import batches, steps

ROUNDS = 3


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Linear(17, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 32), nn.LayerNorm(32),
            nn.ReLU(), nn.Linear(32, 1),
        )  # fmt: skip


def load_data(partition: int) -> torch.utils.data.DataLoader:
    inputs, labels = people.partition(partition)
    return batches(inputs, labels[:, None].astype("float32"))


def train(model: nn.Module, loader: torch.utils.data.DataLoader) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    steps(model, loader, nn.BCEWithLogitsLoss(), optimizer)
