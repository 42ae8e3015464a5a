"""What do clients give away that train with momentum, Adam, AdamW or several local steps?

    python -m benchmarks.any_training [--records 100 300] [--seeds 3] [--only NAME ...]

Adult (needs the data), the attribute ``sex``, a network of 128 and 64 units with cross-entropy (or
another, where a row names its layers), one message unless a row says rounds. Writes
benchmarks/any_training.json, a row a recipe and size: the share guessed right over the seeds, the
mean certainty, what simulated clients predicted, how many answers were proven by replay or flagged,
the majority, a stranger's imputation, processor seconds and memory. "Auxiliary": the listener holds
records of other people, so that the stranger is where it begins. "Tabular": every text as a number,
as tutorials encode tables; no order is guessed. The recipes were written down before they were run;
what is there already is kept, client by client.
"""

from __future__ import annotations

import resource
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.frame import Results, Row, audited, options, show
from experiments.data import adult
from overheard.attacks.attribute import MaxEntropy
from overheard.data.dataset import Dataset
from overheard.programs.records import Records
from overheard.programs.trusted import trust

SGD: dict[str, Any] = {"learning_rate": 0.1}
MOMENTUM = {"optimiser": {"name": "sgd", "momentum": 0.9}, "learning_rate": 0.01}
ADAM = {"optimiser": {"name": "adam"}, "learning_rate": 0.001}
ADAMW = {"optimiser": {"name": "adam", "weight_decay": 0.01, "decoupled": True}, **SGD}
ADAMW = {**ADAMW, "learning_rate": 0.001}
RULES = {"SGD": SGD, "momentum": MOMENTUM, "Adam": ADAM, "AdamW": ADAMW}
MLP: dict[str, Any] = {"name": "mlp", "hidden": [128, 64]}
LAYERS = ("normalised", "gelu", "embedded", "residual", "dropout", "batch_normalised")
"""Functions of this file that make other networks."""
WIDTH = 48
"""Inputs of those networks, at least as many as a sample of people has."""
RECIPES: dict[str, dict[str, Any]] = {
    **{f"{name}, full batch, {n} steps": {**r, "epochs": n} for name, r in RULES.items()
       for n in (1, 5)},
    **{f"{name}, batches of 32": {**r, "batch_size": 32} for name, r in RULES.items()},
    **{f"{name}, batches of 32, 5 epochs": {**r, "batch_size": 32, "epochs": 5}
       for name, r in RULES.items()},
    "Adam, batches of 32, 5 rounds": {**ADAM, "batch_size": 32, "rounds": 5},
    **{f"momentum, batches of 32, 5 rounds, {layers}":
       {**MOMENTUM, "batch_size": 32, "rounds": 5, "layers": layers} for layers in LAYERS[:-1]},
    **{f"{name}, full batch, 1 steps, batch_normalised": {**r, "layers": "batch_normalised"}
       for name, r in RULES.items() if name in ("SGD", "momentum")},
    **{f"{name}, batches of 32, auxiliary": {**r, "batch_size": 32, "auxiliary": True}
       for name, r in RULES.items()},
    **{f"Adam, batches of 32, auxiliary, tabular, {n} rounds":
       {**ADAM, "batch_size": 32, "auxiliary": True, "tabular": True, "rounds": n}
       for n in (1, 20)},
}  # fmt: skip
OTHERS = 3000
"""Records of other clients, from which a stranger learns, and of nobody's, where it is granted."""


class Padded(nn.Module):
    """Values that no sampled person has are missing inputs: zeros at the end."""

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.pad(inputs, (0, WIDTH - inputs.shape[-1]))


def _hidden(*behind: Any) -> Any:
    """The network of 128 and 64 units with these layers behind each hidden one."""
    layers = [made for n, units in ((WIDTH, 128), (128, 64))
              for made in (nn.Linear(n, units), *(make(units) for make in behind))]  # fmt: skip
    return nn.Sequential(Padded(), *layers, nn.Linear(64, 1))


def _relu(units: int) -> nn.Module:
    return nn.ReLU()


def normalised() -> Any:
    """With layer normalisation."""
    return _hidden(nn.LayerNorm, _relu)


def batch_normalised() -> Any:
    """With batch normalisation."""
    return _hidden(nn.BatchNorm1d, _relu)


def gelu() -> Any:
    """With another activation."""
    return _hidden(lambda units: nn.GELU())


def dropout() -> Any:
    """With a fifth of the hidden units left out at random."""
    return _hidden(_relu, lambda units: nn.Dropout(0.2))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))

    def forward(self, inputs: Tensor) -> Tensor:
        return nn.functional.relu(inputs + self.inside(inputs))


def residual() -> Any:
    """Two residual blocks."""
    first = (Padded(), nn.Linear(WIDTH, 64), nn.ReLU())
    return nn.Sequential(*first, Block(), Block(), nn.Linear(64, 1))


class Looked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(2 * WIDTH, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.table((inputs > 0.5).long() + 2 * torch.arange(WIDTH))
        return found.flatten(1)


def embedded() -> Any:
    """Every input, as high or low, by a vector of four numbers of its own."""
    behind = (nn.Linear(4 * WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))
    return nn.Sequential(Padded(), Looked(), *behind)


def config(layers: str | None, training: dict[str, Any], seed: int) -> Row:
    """One message of the network of 128 and 64 units, or of one that a function here makes."""
    model = MLP
    if layers is not None:
        trust(factory := f"benchmarks.any_training:{layers}")
        model = {"name": "module", "factory": factory}
    return {
        "seed": seed,
        "data": {"source": "adult"},
        "model": model,
        "training": {"rounds": 1, **training},
        "audit": {"attributes": ["sex"]},
    }


def people(records: int, seed: int, auxiliary: bool = False, tabular: bool = False) -> Dataset:
    """A client of so many people, and one of others; and people outside, if they are granted."""
    whole = adult.load()
    rows = np.random.default_rng([20261117, seed]).permutation(len(whole.records))
    inside, wanted = records + OTHERS, records + (1 + auxiliary) * OTHERS
    columns = dict(whole.records.take(rows[:wanted]).without(whole.client).columns)
    if tabular:
        columns = {n: values if values.dtype.kind == "f" or n == whole.target
                   else np.unique(values, return_inverse=True)[1].astype(np.float64)
                   for n, values in columns.items()}  # fmt: skip
    taken = Records(columns)
    who = np.where(np.arange(inside) < records, "client", "others")
    heard = Records({**taken.take(np.arange(inside)).columns, whole.client: who})
    outside = taken.take(np.arange(inside, wanted)) if auxiliary else None
    return replace(whole, records=heard, outside=outside)


def tried(training: dict[str, Any], records: int, seed: int) -> Row:
    """One client, decoded."""
    training = dict(training)
    layers, tabular = training.pop("layers", None), training.pop("tabular", False)
    data = people(records, seed, training.pop("auxiliary", False), tabular)
    # benchmarks/orders.py measures the search for an order that can be guessed, once a recording
    attack = MaxEntropy(seeds=0) if tabular else MaxEntropy()
    record, spent = audited(config(layers, training, seed), data, attack)
    (found,) = record.findings
    bins = [b for one in record.pooled if one.calibration is not None for b in one.calibration.bins]
    return {
        "accuracy": found.value,
        "low": found.low,
        "high": found.high,
        "majority": found.majority,
        "stranger": found.imputation,
        "evidence": found.evidence,
        "p_value": found.p_value,
        "simulated": found.details.get("simulated_accuracy"),
        "confidence": sum(b.n * b.confidence for b in bins) / max(sum(b.n for b in bins), 1),
        "proven": found.details.get("proven") == "True",
        "flag": found.details.get("flag", ""),
        "oversure": found.overconfident,
        "bits": None if found.calibration is None else found.calibration.bits,
        "certain": None if found.calibration is None else found.calibration.certain,
        "certain_right": None if found.calibration is None else found.calibration.certain_right,
        "seconds": spent,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main() -> None:
    """Run what is missing, and print the table."""
    given = options(__doc__, __file__, records=[100, 300], seeds=3, only=list(RECIPES))
    kept = Results(given.out, given.command)
    for records in given.records:
        for name in given.only:
            key = f"{name}; {records} records; {given.seeds} seeds"
            runs = kept.runs(key, given.seeds, partial(tried, RECIPES[name], records))
            show(key, runs, "accuracy", "stranger", "proven", "seconds")


if __name__ == "__main__":
    main()
