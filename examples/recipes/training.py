"""Batches, and the usual loop over them, of a torch module."""

from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset


def batches(inputs: np.ndarray, labels: np.ndarray, size: int = 32) -> DataLoader:
    """Shuffled batches; of size 0: all records at once, in their order."""
    data = TensorDataset(torch.from_numpy(inputs).float(), torch.from_numpy(labels))
    return DataLoader(data, batch_size=size or len(data), shuffle=size > 0)


def steps(model: torch.nn.Module, loader: Any, criterion: Any, optimizer: Any) -> None:
    """One pass over the records."""
    model.train()
    for inputs, labels in loader:
        optimizer.zero_grad()
        criterion(model(inputs), labels).backward()
        optimizer.step()
