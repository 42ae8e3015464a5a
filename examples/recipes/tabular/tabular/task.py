"""Who spends much on doctors? A small network, Adam, batches of 32; every site scales its own."""

import people
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer1, self.layer2 = nn.Linear(17, 128), nn.Linear(128, 64)
        self.output = nn.Linear(64, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.layer1(x))
        return torch.sigmoid(self.output(torch.relu(self.layer2(x))))


def load_data(partition: int) -> DataLoader:
    mine = people.partition(partition, alone=True)
    inputs, labels = (torch.from_numpy(part).float() for part in mine)
    data = TensorDataset(inputs, labels[:, None])
    return DataLoader(data, batch_size=32, shuffle=True)


def train(model: nn.Module, loader: DataLoader, epochs: int = 1) -> None:
    criterion = nn.BCELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    model.train()
    for _ in range(epochs):
        for inputs, labels in loader:
            optimizer.zero_grad()
            criterion(model(inputs), labels).backward()
            optimizer.step()
