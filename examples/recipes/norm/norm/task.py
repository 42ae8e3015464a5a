"""Who spends much on doctors? A network that normalises its layers, Adam, batches of 32."""

import people
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from training import steps


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(
            nn.Linear(17, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 32), nn.LayerNorm(32),
            nn.ReLU(), nn.Linear(32, 1),
        )  # fmt: skip


def load_data(partition: int) -> DataLoader:
    mine = people.partition(partition)
    inputs, labels = (torch.from_numpy(part).float() for part in mine)
    data = TensorDataset(inputs, labels[:, None])
    return DataLoader(data, batch_size=32, shuffle=True)


def train(model: nn.Module, loader: DataLoader) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    steps(model, loader, nn.BCEWithLogitsLoss(), optimizer)
