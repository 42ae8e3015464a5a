"""Who spends much on doctors? A small network, one step on all of a site's people a round."""

import people
import torch
from torch import nn


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(17, 32), nn.ReLU(), nn.Linear(32, 1))


def load_data(partition: int) -> tuple[torch.Tensor, torch.Tensor]:
    mine = people.partition(partition)
    inputs, labels = (torch.from_numpy(part).float() for part in mine)
    return inputs, labels[:, None]


def train(model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    nn.functional.binary_cross_entropy_with_logits(model(inputs), labels).backward()
    optimizer.step()


def get_weights(model: nn.Module) -> list:
    return [value.numpy() for value in model.state_dict().values()]


def set_weights(model: nn.Module, weights: list) -> None:
    names = model.state_dict()
    model.load_state_dict({n: torch.tensor(w) for n, w in zip(names, weights, strict=True)})
