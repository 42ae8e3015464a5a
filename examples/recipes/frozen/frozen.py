"""Which digit is it? A backbone that stays as it is, and a head that is trained on its features."""

import images
import torch
from torch import nn
from training import batches, steps

ROUNDS = 3


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        public = torch.Generator().manual_seed(0)  # for a checkpoint that everybody downloads
        for part in self.backbone.parameters():
            part.requires_grad_(False).normal_(std=0.3, generator=public)
        self.head = nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.backbone(x).flatten(1))


def load_data(partition: int) -> torch.utils.data.DataLoader:
    return batches(*images.partition(partition))


def train(model: nn.Module, loader: torch.utils.data.DataLoader) -> None:
    optimizer = torch.optim.Adam(model.head.parameters(), lr=0.001)
    steps(model, loader, nn.CrossEntropyLoss(), optimizer)
