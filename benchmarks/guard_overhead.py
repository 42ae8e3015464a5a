"""What does the guard cost a Flower client? ``python benchmarks/guard_overhead.py``

A client with the people of one RAND site (about 1,000) trains an MLP with 64 hidden units. Its
local epoch, batches of 32 from torch's DataLoader, stands beside what the guard takes to decode
the update of a full-batch step before it leaves (a sample of 64 records, the default), for one
secret and for all three, which share the sample; medians of repetitions in one process with one
thread. Must hold: the guard takes less than the local epoch.

With ``--steps`` also the guard where the update is that of the mini-batches themselves: all
records are decoded then, which takes longer.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from overheard.federation.config import parse_config
from overheard.federation.plan import Plan, plan
from overheard.federation.simulate import client_shards
from overheard.guard.exposure import Secret, exposures
from overheard.guard.flower_mod import LEAST
from overheard.guard.limits import Exposure
from overheard.programs.dense import initial
from overheard.programs.records import encode
from overheard.programs.training import local_training

CLIENT, BATCH, MOST = "site 6", 32, 64


def ready(batch_size: int) -> Plan:
    training = {"rounds": 1, "learning_rate": 0.1, "batch_size": batch_size}
    model = {"name": "mlp", "hidden": [64]}
    config = {"data": {"source": "randhie"}, "model": model, "training": training}
    return plan(parse_config(config))


def local_epoch(settled: Plan) -> Callable[[], None]:
    """One epoch as a torch client trains it."""
    records, recipe = settled.clients[CLIENT], settled.recipe
    inputs = torch.from_numpy(encode(recipe.encoding, records).astype(np.float32))
    labels = torch.from_numpy(recipe.target.encode(records).astype(np.float32))[:, None]
    layers = [torch.nn.Linear(inputs.shape[1], 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)]
    model = torch.nn.Sequential(*layers)
    loader = DataLoader(TensorDataset(inputs, labels), batch_size=BATCH, shuffle=True)
    step = torch.optim.SGD(model.parameters(), lr=recipe.learning_rate)

    def epoch() -> None:
        for x, y in loader:
            step.zero_grad()
            torch.autograd.backward(torch.nn.functional.mse_loss(model(x), y))
            step.step()

    return epoch


def guarded(settled: Plan, columns: list[str]) -> Callable[[], list[Exposure]]:
    """The guard's work on one update."""
    records, recipe = settled.clients[CLIENT], settled.recipe
    sent = initial(recipe.dense, 0).astype(recipe.wire)
    data = client_shards(recipe, {CLIENT: records})
    returned = local_training(recipe, sent, data, np.random.default_rng(0))[0]
    secrets = [Secret(records, c, settled.attributes[c].values) for c in columns]
    each = max(MOST // len(secrets), LEAST)
    return lambda: exposures(recipe, secrets, sent, returned, most=each)


def median_seconds(work: Callable[[], object], times: int) -> float:
    work()
    spent = []
    for _ in range(times):
        begin = time.process_time()
        work()
        spent.append(time.process_time() - begin)
    return statistics.median(spent)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--times", type=int, default=15, help="repetitions")
    parser.add_argument("--steps", action="store_true", help="also where mini-batches are decoded")
    parser.add_argument("--out", type=Path, help="write the figures here, as JSON")
    options = parser.parse_args()
    torch.set_num_threads(1)
    one_step = ready(0)
    names = list(one_step.attributes)
    found: dict[str, float] = {
        "people": len(one_step.clients[CLIENT]),
        "epoch_seconds": median_seconds(local_epoch(one_step), options.times),
        "guard_one_secret": median_seconds(guarded(one_step, names[:1]), options.times),
        "guard_three_secrets": median_seconds(guarded(one_step, names), options.times),
    }
    for secrets in ("one_secret", "three_secrets"):
        found[f"ratio_{secrets}"] = found[f"guard_{secrets}"] / found["epoch_seconds"]
    found["told"] = min(e.value for e in guarded(one_step, names)())
    if options.steps:
        found["guard_mini_batches"] = median_seconds(guarded(ready(BATCH), names[:1]), 1)
    for name, value in found.items():
        print(f"{name:<24} {value:.4g}")
    if options.out is not None:
        options.out.write_text(json.dumps(found, indent=1) + "\n")
    held = found["ratio_three_secrets"] < 1
    print("held" if held else "NOT HELD")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
