"""What do clients give away whose mini-batches come in an order that is known, or can be guessed?

    python benchmarks/orders.py [--known] [--seeds] [--records 100 300 1000] [--only NAME ...]

Adult (needs the data), the attribute ``sex``, batches of 32, one message. ``--known``: the order is
granted; a row a recipe and size, three clients each: the share guessed right, how many answers were
proven by replay, processor seconds. ``--seeds``: 40 recordings of clients that fix a seed between 0
and 9,999 by some convention, and 8 of clients that do not; every seed below 10,000 is tried under
every convention: how many seeds are found, and how many wrong ones are claimed. Both without an
option. Writes benchmarks/orders.json; recipes, sizes and seeds were written down before they were
run, and what is there already is kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import overheard
from benchmarks.any_training import ADAM, ADAMW, MOMENTUM, SGD, code, people
from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.data.dataset import Dataset
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.programs.orders import Source
from overheard.programs.records import Records
from overheard.programs.trusted import trust
from overheard.transcript.knowledge import BatchOrder
from overheard.transcript.store import Recording
from overheard.transcript.threat import EAVESDROPPER, Threat

OUT = Path(__file__).with_suffix(".json")
CLIENTS = 3
"""Of each row with a known order."""
RECORDINGS, UNSEEDED, SEEDS = 40, 8, 10_000
MLP: dict[str, Any] = {"name": "mlp", "hidden": [128, 64]}
NORMALISED = {"name": "module", "factory": "benchmarks.orders:normalised"}
KNOWN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "SGD": (MLP, SGD),
    "Adam": (MLP, ADAM),
    "Adam, 5 epochs": (MLP, {**ADAM, "epochs": 5}),
    "AdamW": (MLP, ADAMW),
    "momentum, 5 epochs": (MLP, {**MOMENTUM, "epochs": 5}),
    "Adam, layer normalisation": (NORMALISED, ADAM),
}
WIDTH = 48
"""Inputs of that network, at least as many as a sample of people has."""
TABULAR = "Adam, ordinal inputs"
RULES = {"SGD": SGD, "momentum": MOMENTUM, "Adam": ADAM}
SIZES = (100, 300, 1000)


def normalised() -> Any:
    """The same network with a layer normalisation behind each hidden layer."""
    import torch
    from torch import nn

    class Widened(nn.Module):
        """Values that no sampled person has are missing inputs: zeros at the end."""

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            return nn.functional.pad(inputs, (0, WIDTH - inputs.shape[-1]))

    return nn.Sequential(
        Widened(), nn.Linear(WIDTH, 128), nn.LayerNorm(128), nn.ReLU(), nn.Linear(128, 64),
        nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 1),
    )  # fmt: skip


def ordinal(records: int, seed: int) -> Dataset:
    """The people with every text as a number, as tutorials encode tables."""
    made = people(records, seed)
    columns = {
        name: values
        if values.dtype.kind == "f" or name in (made.client, made.target)
        else np.unique(values, return_inverse=True)[1].astype(np.float64)
        for name, values in made.records.columns.items()
    }
    return replace(made, records=Records(columns))


def heard(content: dict[str, Any], data: Dataset, attack: MaxEntropy, threat: Threat) -> Any:
    """Simulate and decode: the finding, and processor seconds of the decoding."""
    with tempfile.TemporaryDirectory() as folder:
        recording = Recording.open(simulate(plan(parse_config(content), data), f"{folder}/run"))
        began = time.process_time()
        record = overheard.audit(
            recording, threat, [attack], ["client"], ["sex"], content["seed"],
            rounds=False, coverage=False,
        )  # fmt: skip
        (found,) = record.findings
        return found, time.process_time() - began


def config(model: dict[str, Any], training: dict[str, Any], seed: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "data": {"source": "adult"},
        "model": model,
        "training": {"rounds": 1, "batch_size": 32, **training},
        "audit": {"attributes": ["sex"]},
    }


def known(name: str, records: int) -> list[dict[str, Any]]:
    """Clients whose order is granted."""
    model, training = KNOWN.get(name, (MLP, ADAM))
    made = []
    for seed in range(CLIENTS):
        data = ordinal(records, seed) if name == TABULAR else people(records, seed)
        content = config(model, {**training, "shuffle": {"seed": 42}}, seed)
        found, spent = heard(content, data, MaxEntropy(), EAVESDROPPER.granting(BatchOrder))
        made.append(
            {
                "accuracy": found.value,
                "stranger": found.imputation,
                "proven": found.details.get("proven") == "True",
                "method": found.details.get("method"),
                "flag": found.details.get("flag", ""),
                "bits": None if found.sure is None else found.sure.bits,
                "seconds": spent,
            }
        )
    return made


def searched(number: int) -> dict[str, Any]:
    """One client that fixed a seed (or, beyond `RECORDINGS`, did not), and what was claimed."""
    rng = np.random.default_rng([20261117, number])
    rule = list(RULES)[number % 3]
    records = SIZES[number // 3 % 3]
    seed, source = int(rng.integers(SEEDS)), get_args(Source)[number % len(get_args(Source))]
    epochs = 3 if number % 8 == 7 else 1
    training = {**RULES[rule], "epochs": epochs}
    if number < RECORDINGS:
        training["shuffle"] = {"seed": seed, "source": source}
    content = config(MLP, training, number)
    found, spent = heard(content, people(records, number), MaxEntropy(seeds=SEEDS), EAVESDROPPER)
    claimed = str(found.details.get("order_guessed", ""))
    right = number < RECORDINGS and claimed.startswith(f"seed {seed}:")
    return {
        "rule": rule,
        "records": records,
        "epochs": epochs,
        "source": source if number < RECORDINGS else "",
        "seed": seed if number < RECORDINGS else None,
        "claimed": claimed,
        "found": right,
        "wrong": bool(claimed) and not right,
        "accuracy": found.value,
        "tried": found.details.get("seeds_tried"),
        "seconds": spent,
    }


def main() -> None:
    """Run what is missing, and print the tables."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--known", action="store_true")
    parser.add_argument("--seeds", action="store_true")
    parser.add_argument("--records", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--only", nargs="+", default=list(KNOWN), choices=list(KNOWN))
    asked = parser.parse_args()
    both = asked.known == asked.seeds
    trust(str(NORMALISED["factory"]))
    kept: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}

    def row(key: str, run: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        if kept.get(key, {}).get("code") != code():
            kept[key] = {"command": "python benchmarks/orders.py", "code": code(), "runs": run()}
            OUT.write_text(json.dumps(kept, indent=1) + "\n")
        made: list[dict[str, Any]] = kept[key]["runs"]
        return made

    if asked.known or both:
        cells = [(name, records) for records in asked.records for name in asked.only]
        for name, records in [*cells, (TABULAR, 2000)]:
            key = f"{name}; order known; {records} records"
            runs = row(key, lambda name=name, records=records: known(name, records))  # type: ignore[misc]
            each = " ".join(f"{r['accuracy']:.4f}" for r in runs)
            seconds = " ".join(f"{r['seconds']:.1f}" for r in runs)
            print(
                f"{key}: {each}, proven {sum(r['proven'] for r in runs)}, {seconds} s", flush=True
            )
    if asked.seeds or both:
        every = []
        for number in range(RECORDINGS + UNSEEDED):
            key = f"seed among {SEEDS}; recording {number}"
            (run,) = row(key, lambda number=number: [searched(number)])  # type: ignore[misc]
            every.append(run)
            print(f"{key}: {run}", flush=True)
        found, wrong = sum(r["found"] for r in every), sum(r["wrong"] for r in every)
        print(f"found {found} of {RECORDINGS}, wrong claims {wrong} of {len(every)}")


if __name__ == "__main__":
    main()
