"""Which digit is it? A small convolutional network, SGD with momentum, batches of 32."""

import images
import torch
from torch import nn
from training import batches, steps

ROUNDS = 2


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.fc1, self.fc2 = nn.Linear(32, 24), nn.Linear(24, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(self.conv2(x)))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


def load_data(partition: int) -> torch.utils.data.DataLoader:
    return batches(*images.partition(partition))


def train(model: nn.Module, loader: torch.utils.data.DataLoader) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    steps(model, loader, nn.CrossEntropyLoss(), optimizer)
