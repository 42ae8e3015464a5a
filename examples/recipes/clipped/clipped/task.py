"""Who spends much on doctors? A small network, one step on all of a site's people a round."""

import people
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from training import steps


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(17, 32), nn.ReLU(), nn.Linear(32, 1))


def load_data(partition: int) -> DataLoader:
    mine = people.partition(partition)
    inputs, labels = (torch.from_numpy(part).float() for part in mine)
    data = TensorDataset(inputs, labels[:, None])
    return DataLoader(data, batch_size=len(labels))


def train(model: nn.Module, loader: DataLoader) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps(model, loader, nn.BCEWithLogitsLoss(), optimizer)
