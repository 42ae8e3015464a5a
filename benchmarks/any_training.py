"""What do clients give away that train with momentum, Adam, AdamW or several local steps?

    python benchmarks/any_training.py [--records 100 300] [--seeds 3] [--only NAME ...]

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

import argparse
import json
import resource
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import overheard
from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.data import adult
from overheard.data.dataset import Dataset
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.origin import origin
from overheard.programs.records import Records
from overheard.programs.trusted import trust
from overheard.transcript.store import Recording
from overheard.transcript.threat import EAVESDROPPER

OUT = Path(__file__).with_suffix(".json")
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


def _padded(*layers: Any) -> Any:
    """Values that no sampled person has are missing inputs: zeros at the end."""
    import torch
    from torch import nn

    class Padded(nn.Module):
        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return nn.functional.pad(inputs, (0, WIDTH - inputs.shape[-1]))

    return nn.Sequential(Padded(), *layers)


def _hidden(*behind: Any, width: int = WIDTH) -> Any:
    """The network of 128 and 64 units with these layers behind each hidden one."""
    from torch import nn

    layers = [made for n, units in zip((width, 128), (128, 64), strict=True)
              for made in (nn.Linear(n, units), *(make(units) for make in behind))]  # fmt: skip
    return _padded(*layers, nn.Linear(64, 1))


def normalised() -> Any:
    """With layer normalisation."""
    from torch import nn

    return _hidden(nn.LayerNorm, lambda units: nn.ReLU())


def batch_normalised() -> Any:
    """With batch normalisation."""
    from torch import nn

    return _hidden(nn.BatchNorm1d, lambda units: nn.ReLU())


def gelu() -> Any:
    """With another activation."""
    from torch import nn

    return _hidden(lambda units: nn.GELU())


def dropout() -> Any:
    """With a fifth of the hidden units left out at random."""
    from torch import nn

    return _hidden(lambda units: nn.ReLU(), lambda units: nn.Dropout(0.2))


def residual() -> Any:
    """Two residual blocks."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            made: torch.Tensor = nn.functional.relu(inputs + self.inside(inputs))
            return made

    return _padded(nn.Linear(WIDTH, 64), nn.ReLU(), Block(), Block(), nn.Linear(64, 1))


def embedded() -> Any:
    """Every input, as high or low, by a vector of four numbers of its own."""
    import torch
    from torch import nn

    class Looked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(2 * WIDTH, 4)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            which = (inputs > 0.5).long() + 2 * torch.arange(WIDTH)
            made: torch.Tensor = self.table(which).flatten(1)
            return made

    return _padded(Looked(), nn.Linear(4 * WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))


def model_of(layers: str | None) -> dict[str, Any]:
    """The network of 128 and 64 units, or one that a function of this file makes."""
    if layers is None:
        return MLP
    trust(factory := f"benchmarks.any_training:{layers}")
    return {"name": "module", "factory": factory}


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


def tried(training: dict[str, Any], records: int, seed: int) -> dict[str, Any]:
    """One client, decoded."""
    training = {"rounds": 1, **training}
    content = {
        "seed": seed,
        "data": {"source": "adult"},
        "model": model_of(training.pop("layers", None)),
        "audit": {"attributes": ["sex"]},
    }
    tabular = training.pop("tabular", False)
    data = people(records, seed, training.pop("auxiliary", False), tabular)
    # benchmarks/orders.py measures the search for an order that can be guessed, once a recording
    attack = MaxEntropy(seeds=0) if tabular else MaxEntropy()
    with tempfile.TemporaryDirectory() as folder:
        ready = plan(parse_config({**content, "training": training}), data)
        recording = Recording.open(simulate(ready, Path(folder) / "run"))
        began = time.process_time()
        asked = ([attack], ["client"], ["sex"])
        alone = overheard.AuditOptions(seed=seed, rounds=False)
        record = overheard.audit(recording, EAVESDROPPER, *asked, alone)
        spent = time.process_time() - began
    (found,) = record.findings
    bins = [b for one in record.pooled if one.sure is not None for b in one.sure.bins]
    return {
        "accuracy": found.value,
        "low": found.low,
        "high": found.high,
        "majority": found.majority,
        "stranger": found.imputation,
        "evidence": found.evidence,
        "p_value": found.p_value,
        "simulated": found.details.get("simulated_accuracy", found.details.get("rehearsed")),
        "confidence": sum(b.n * b.confidence for b in bins) / max(sum(b.n for b in bins), 1),
        "proven": found.details.get("proven") == "True",
        "flag": found.details.get("flag", ""),
        "oversure": found.oversure,
        "bits": None if found.sure is None else found.sure.bits,
        "certain": None if found.sure is None else found.sure.certain,
        "certain_right": None if found.sure is None else found.sure.certain_right,
        "seconds": spent,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--records", type=int, nargs="+", default=[100, 300])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=list(RECIPES), choices=list(RECIPES))
    asked = parser.parse_args()
    kept: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    for records in asked.records:
        for name in asked.only:
            key = f"{name}; {records} records; {asked.seeds} seeds"
            made = kept.setdefault(key, {**origin("python benchmarks/any_training.py"), "runs": []})
            runs = made["runs"]
            while len(runs) < asked.seeds:
                runs.append(tried(RECIPES[name], records, len(runs)))
                OUT.write_text(json.dumps(kept, indent=1) + "\n")
            means = [f"{fmean(r[what] for r in runs):.3f}" for what in ("accuracy", "stranger")]
            proven, flagged = sum(r["proven"] for r in runs), sum(bool(r["flag"]) for r in runs)
            each = " ".join(f"{r['accuracy']:.3f}" for r in runs)
            print(
                f"{key}: {each}, mean {means[0]}, stranger {means[1]}, proven {proven}, flagged "
                f"{flagged}, {fmean(r['seconds'] for r in runs):.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
