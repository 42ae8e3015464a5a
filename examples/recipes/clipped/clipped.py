"""Who spends much on doctors? A small network, one step on all of a site's people a round.

Sites clip their updates, and the server adds noise: central differential privacy.
"""

import people
import torch
from flwr.clientapp.mod import fixedclipping_mod
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, Strategy
from torch import nn
from training import batches, steps

ROUNDS, MODS = 3, [fixedclipping_mod]


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(17, 32), nn.ReLU(), nn.Linear(32, 1))


def load_data(partition: int) -> torch.utils.data.DataLoader:
    inputs, labels = people.partition(partition)
    return batches(inputs, labels[:, None].astype("float32"), size=0)


def train(model: nn.Module, loader: torch.utils.data.DataLoader) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    steps(model, loader, nn.BCEWithLogitsLoss(), optimizer)


def defended(plain: Strategy) -> Strategy:
    return DifferentialPrivacyClientSideFixedClipping(plain, 0.01, 0.1, people.SITES)
