"""What do clients give away that train a network?

Adult (needs the data) unless a row says otherwise, one attribute, one message unless a row says
rounds; sizes, recipes and seeds were written down before they were run.
"""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor, nn

from experiments.accuracy.audits import Case, as_numbers, clients_of, experiment
from overheard.attacks.attribute import CandidateDecode, MaxEntropy
from overheard.attacks.sums import SumDecode
from overheard.programs.orders import Source
from overheard.transcript.knowledge import BatchOrder
from overheard.transcript.threat import EAVESDROPPER, SECURE_SERVER

Settings = dict[str, Any]
SGD: Settings = {"learning_rate": 0.1}
MOMENTUM: Settings = {"optimiser": {"name": "sgd", "momentum": 0.9}, "learning_rate": 0.01}
ADAM: Settings = {"optimiser": {"name": "adam"}, "learning_rate": 0.001}
DECAY: Settings = {"name": "adam", "weight_decay": 0.01, "decoupled": True}
RULES = {"SGD": SGD, "momentum": MOMENTUM, "Adam": ADAM, "AdamW": {**ADAM, "optimiser": DECAY}}
MLP: Settings = {"name": "mlp", "hidden": [128, 64]}
ONE_LAYER: Settings = {"name": "mlp", "hidden": [64]}
OTHERS = 3000
"""Records of other clients, from which imputation learns, and of nobody's, where it is granted."""


def config(
    training: Settings, model: Settings = MLP, source: str = "adult", **more: Any
) -> Settings:
    """A federation of one round on Adult, the attribute ``sex``, unless said otherwise."""
    return {
        "data": {"source": source},
        "model": model,
        "training": {"rounds": 1, **training},
        "audit": {"attributes": ["sex"]},
        **more,
    }


# ------------------------------------------------------------------- other networks than dense ones

WIDTH = 48
"""Inputs of these networks, at least as many as a sample of people has."""


class Padded(nn.Module):
    """Values that no sampled person has are missing inputs: zeros at the end."""

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.pad(inputs, (0, WIDTH - inputs.shape[-1]))


class Block(nn.Module):
    """A residual block."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.relu(inputs + self.inside(inputs))


class Looked(nn.Module):
    """Every input, as high or low, by a vector of four numbers of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(2 * WIDTH, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.table((inputs > 0.5).long() + 2 * torch.arange(WIDTH))
        return found.flatten(1)


def _hidden(layer: nn.Module) -> nn.Module:
    return nn.Sequential(Padded(), nn.Linear(WIDTH, 64), layer, nn.ReLU(), nn.Linear(64, 1))


def normalised() -> nn.Module:
    """With layer normalisation."""
    return _hidden(nn.LayerNorm(64))


def batch_normalised() -> nn.Module:
    """With batch normalisation."""
    return _hidden(nn.BatchNorm1d(64))


def dropout() -> nn.Module:
    """With a fifth of the hidden units left out at random."""
    return _hidden(nn.Dropout(0.2))


def residual() -> nn.Module:
    """Two residual blocks."""
    first = (Padded(), nn.Linear(WIDTH, 64), nn.ReLU())
    return nn.Sequential(*first, Block(), Block(), nn.Linear(64, 1))


def embedded() -> nn.Module:
    """Embeddings of all inputs."""
    behind = (nn.Linear(4 * WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))
    return nn.Sequential(Padded(), Looked(), *behind)


def _made_of(layers: str) -> Settings:
    """The network that a function of this module makes."""
    return {"name": "module", "factory": f"{__name__}:{layers}"}


# ----------------------------------------------------------------------------------------- training

WAYS = {
    "full batch, 1 step": {},
    "full batch, 5 steps": {"epochs": 5},
    "batches of 32": {"batch_size": 32},
    "batches of 32, 5 epochs": {"batch_size": 32, "epochs": 5},
}
ROUNDS: Settings = {"batch_size": 32, "rounds": 5}
TRAINING = {
    f"{rule}, {way}, {n} records": Case(
        config({**settings, **steps}), clients_of("adult", n, [OTHERS]), quick=n == 100
    )
    for (rule, settings), (way, steps), n in product(RULES.items(), WAYS.items(), (100, 300))
}
TRAINING |= {
    f"momentum, batches of 32, 5 rounds, {layers}": Case(
        config({**MOMENTUM, **ROUNDS}, _made_of(layers)), clients_of("adult", 100, [OTHERS])
    )
    for layers in ("normalised", "embedded", "residual", "dropout")
}
TRAINING |= {
    "SGD, full batch, 1 step, batch_normalised": Case(
        config(SGD, _made_of("batch_normalised")), clients_of("adult", 100, [OTHERS])
    ),
    "Adam, batches of 32, 20 rounds, ordinal inputs, auxiliary records": Case(
        config({**ADAM, **ROUNDS, "rounds": 20}),
        clients_of("adult", 300, [OTHERS], OTHERS, as_numbers),
        attack=MaxEntropy(seeds=0),
    ),
}

# ---------------------------------------------------------- an order that is known, or can be found

SEEDS = 10_000
"""Tried under every convention; 40 clients fixed one of them, and 8 did not."""
KNOWN: Settings = {"batch_size": 32, "shuffle": {"seed": 42}}
ORDERS = {
    f"{rule}, order known, {n} records": Case(
        config({**settings, **KNOWN}),
        clients_of("adult", n, [OTHERS]),
        threat=EAVESDROPPER.granting(BatchOrder),
    )
    for (rule, settings), n in product(RULES.items(), (100, 1000))
}


def _hidden_seed(number: int) -> Case:
    conventions = get_args(Source)
    seed = int(np.random.default_rng([20_261_218, number]).integers(SEEDS))
    drawn = {"seed": seed, "source": conventions[number % len(conventions)]}
    training = {**list(RULES.values())[number % 3], "batch_size": 32}
    return Case(
        config({**training, "shuffle": drawn} if number < 40 else training),
        clients_of("adult", (100, 300, 1000)[number // 3 % 3], [OTHERS]),
        attack=MaxEntropy(seeds=SEEDS),
    )


HIDDEN = {f"recording {number}": _hidden_seed(number) for number in range(48)}

# ---------------------------------------------------------------------------------- other questions

TUTORIAL: Settings = {"name": "lenet", "filters": [6, 16], "hidden": [120, 84]}
"""The network of PyTorch's 60-minute tutorial."""
MEMBERS = {
    f"MLP, {rule}, {n} of {2 * n} people": Case(
        config({**RULES[rule], "batch_size": 32}, audit={"membership": n, "attributes": ["sex"]}),
        clients_of("adult", 2 * n),
        attack=CandidateDecode(),
    )
    for rule, n in (("momentum", 100), ("momentum", 300), ("Adam", 100))
} | {
    f"CNN, momentum {rate:g}, {n} of {2 * n} photographs": Case(
        config({**MOMENTUM, "learning_rate": rate, "batch_size": 32}, TUTORIAL, "cifar10",
               audit={"membership": n}),
        clients_of("cifar10", 2 * n, records=1000, clients=1),
        attack=CandidateDecode(),
    )
    for rate, n in ((0.01, 200), (0.1, 200), (0.1, 500))
}  # fmt: skip
THREE = ["female", "black", "physlm"]
COLUMNS = {
    f"{site}, three columns at once": Case(
        config({"learning_rate": 0.05}, ONE_LAYER, "randhie", audit={"attributes": [THREE]}),
        clients=(site,),
        quick=site == "site 3",
    )
    for site in (f"site {k}" for k in range(1, 7))
}


def _digits(**training: Any) -> Case:
    """Five clients of 25 digits, of whose four messages only sums are heard."""
    told = {"victim": 25, "participants": 5, "attributes": ["c043"]}
    data, defence = {"source": "digits", "options": told}, [{"name": "secure_sum"}]
    steps = {"rounds": 4, "weighting": "equal", **training}
    return Case(
        config(steps, ONE_LAYER, data=data, audit={}, defence=defence),
        attack=SumDecode(),
        threat=SECURE_SERVER,
        clients=(),
        quick=training.get("epochs", 1) == 1,
    )


SUMS = {
    "one step": _digits(learning_rate=0.1),
    "5 epochs of full batches": _digits(learning_rate=0.1, epochs=5),
    "batches of 5, 3 epochs": _digits(learning_rate=0.1, batch_size=5, epochs=3),
    "batches of 5, 3 epochs, rate .02": _digits(learning_rate=0.02, batch_size=5, epochs=3),
}
LADDER = {
    f"{column} of {source}, {model['name']}": Case(
        config({"rounds": 5, **SGD}, model, source, audit={"attributes": [column]}),
        clients_of(source, 300, [100], 2000),
        ladder=True,
        cost=120,
    )
    for source, column, model in (
        ("adult", "sex", {"name": "logistic"}),
        ("adult", "sex", ONE_LAYER),
        ("randhie", "black", ONE_LAYER),
        ("randhie", "physlm", ONE_LAYER),
    )
}
EXPERIMENTS = (
    experiment("training", "an attribute, by rule, batches, epochs and layers", TRAINING),
    experiment("orders", "an attribute, where the order of the batches is known", ORDERS),
    experiment("seeds", "an attribute, where the order's seed can be found or not", HIDDEN, (0,)),
    experiment("members", "who of a pool are a client's records", MEMBERS, (100, 101, 102)),
    experiment("columns", "three columns unknown at once", COLUMNS, (100, 101, 102)),
    experiment("sums", "an attribute, from sums of several local steps", SUMS, (200, 201, 202)),
    experiment("knowledge", "an attribute, by who knows less", LADDER, (700, 701, 702)),
)
