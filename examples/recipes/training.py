"""The usual loop over the batches of a torch module."""

from typing import Any

import torch


def steps(model: torch.nn.Module, loader: Any, criterion: Any, optimizer: Any) -> None:
    """One pass over the records."""
    model.train()
    for inputs, labels in loader:
        optimizer.zero_grad()
        criterion(model(inputs), labels).backward()
        optimizer.step()
