"""What do clients give away whose training has nothing random in it, or only what can be guessed?

    python benchmarks/orders.py [--known] [--full] [--rand] [--seeds] [--records 100 300 1000]
                                [--only NAME ...] [--sites SITE ...]

Adult (needs the data), the attribute ``sex``, one message. ``--known``: batches of 32 in an order
that is granted; a row a recipe and size, three clients each: the share guessed right, how many
answers were proven by replay, processor seconds. ``--full``: the same of full batches, one step and
five, and the most that can be right where people are alike. ``--rand``: RAND, a network of 64
units, several full-batch epochs, all sites and attributes. ``--seeds``: 40 recordings of clients
that fix a seed between 0 and 9,999 by some convention, and 8 of clients that do not; every seed
below 10,000 is tried under every convention: how many seeds are
found, and how many wrong ones are claimed. All of them without an option. Writes
benchmarks/orders.json; recipes, sizes and seeds were written down before they were run, and what
is there already is kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, get_args

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import overheard
from benchmarks.any_training import ADAM, ADAMW, MOMENTUM, RECIPES, SGD, people
from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.data import randhie
from overheard.data.dataset import Dataset
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.origin import origin
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
FRESH = 20_261_218
"""Where the seeds of these recordings begin: others were looked at while the search was made."""
MLP: dict[str, Any] = {"name": "mlp", "hidden": [128, 64]}
NORMALISED = {"name": "module", "factory": "benchmarks.orders:normalised"}
BATCHES: dict[str, Any] = {"batch_size": 32, "shuffle": {"seed": 42}}
KNOWN: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "SGD": (MLP, {**SGD, **BATCHES}),
    "Adam": (MLP, {**ADAM, **BATCHES}),
    "Adam, 5 epochs": (MLP, {**ADAM, **BATCHES, "epochs": 5}),
    "AdamW": (MLP, {**ADAMW, **BATCHES}),
    "momentum, 5 epochs": (MLP, {**MOMENTUM, **BATCHES, "epochs": 5}),
    "Adam, layer normalisation": (NORMALISED, {**ADAM, **BATCHES}),
}
FULL = tuple(n for n, r in RECIPES.items() if "full batch" in n and "layers" not in r)
KNOWN |= {name: (MLP, RECIPES[name]) for name in FULL}
EPOCHS, RATES = (5, 10, 20), (0.05, 0.2)
"""Of RAND."""
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


def heard(
    content: dict[str, Any],
    data: Dataset,
    attack: MaxEntropy,
    threat: Threat,
    clients: tuple[str, ...] = ("client",),
) -> tuple[list[Any], float]:
    """Simulate and decode: the findings, and processor seconds of the decoding."""
    with tempfile.TemporaryDirectory() as folder:
        recording = Recording.open(simulate(plan(parse_config(content), data), f"{folder}/run"))
        began = time.process_time()
        options = overheard.AuditOptions(content["seed"], rounds=False)
        secrets = content["audit"]["attributes"]
        record = overheard.audit(recording, threat, [attack], clients, secrets, options)
        return list(record.findings), time.process_time() - began


def config(model: dict[str, Any], training: dict[str, Any], seed: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "data": {"source": "adult"},
        "model": model,
        "training": {"rounds": 1, **training},
        "audit": {"attributes": ["sex"]},
    }


def summary(found: Any, seconds: float) -> dict[str, Any]:
    """What a finding says."""
    return {
        "client": found.client,
        "attribute": found.attribute,
        "accuracy": found.value,
        "stranger": found.imputation,
        "proven": found.details.get("proven") == "True",
        "method": found.details.get("method"),
        "flag": found.details.get("flag", ""),
        "bits": None if found.sure is None else found.sure.bits,
        "seconds": seconds,
    }


def ceiling(records: int, seed: int) -> float:
    """The share guessed right by whoever knows, of people alike in everything else, the count of
    each value: with full batches nothing more is told."""
    data = people(records, seed)
    columns = dict(data.records.columns)
    mine = columns.pop(data.client) == "client"
    _, secret = np.unique(columns.pop("sex")[mine], return_inverse=True)
    alike = Counter(zip(*(c[mine].tolist() for c in columns.values()), strict=True))
    ones = Counter(zip(*(c[mine][secret == 1].tolist() for c in columns.values()), strict=True))
    return sum(max(ones[k], n - ones[k]) for k, n in alike.items()) / records


def known(name: str, records: int) -> list[dict[str, Any]]:
    """Clients whose order is granted, or whose batches are full."""
    model, training = KNOWN.get(name, (MLP, {**ADAM, **BATCHES}))
    made = []
    for seed in range(CLIENTS):
        data = ordinal(records, seed) if name == TABULAR else people(records, seed)
        content = config(model, training, seed)
        (found,), spent = heard(content, data, MaxEntropy(), EAVESDROPPER.granting(BatchOrder))
        made.append(summary(found, spent))
    return made


def site(name: str, epochs: int, rate: float) -> list[dict[str, Any]]:
    """All attributes of a site of RAND."""
    content = {
        **config({"name": "mlp", "hidden": [64]}, {"epochs": epochs, "learning_rate": rate}, 0),
        "data": {"source": "randhie"},
        "audit": {"attributes": list(randhie.SENSITIVE)},
    }
    found, spent = heard(content, randhie.load(), MaxEntropy(), EAVESDROPPER, (name,))
    return [summary(one, spent / len(found)) for one in found]


def searched(number: int) -> dict[str, Any]:
    """One client that fixed a seed (or, beyond `RECORDINGS`, did not), and what was claimed."""
    rng = np.random.default_rng([FRESH, number])
    rule = list(RULES)[number % 3]
    records = SIZES[number // 3 % 3]
    seed, source = int(rng.integers(SEEDS)), get_args(Source)[number % len(get_args(Source))]
    epochs = 3 if number % 8 == 7 else 1
    training = {**RULES[rule], "batch_size": 32, "epochs": epochs}
    if number < RECORDINGS:
        training["shuffle"] = {"seed": seed, "source": source}
    content = config(MLP, training, FRESH + number)
    data = people(records, FRESH + number)
    (found,), spent = heard(content, data, MaxEntropy(seeds=SEEDS), EAVESDROPPER)
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
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--rand", action="store_true")
    parser.add_argument("--seeds", action="store_true")
    parser.add_argument("--records", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--only", nargs="+", default=list(KNOWN), choices=list(KNOWN))
    parser.add_argument("--sites", nargs="+", help="of RAND, if not all")
    asked = parser.parse_args()
    tables = ("known", "full", "rand", "seeds")
    wanted = [t for t in tables if getattr(asked, t)] or list(tables)
    trust(str(NORMALISED["factory"]))
    kept: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}

    def row(key: str, run: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
        if key not in kept:
            kept[key] = {**origin("python benchmarks/orders.py"), "runs": run()}
            OUT.write_text(json.dumps(kept, indent=1) + "\n")
        made: list[dict[str, Any]] = kept[key]["runs"]
        return made

    def shown(key: str, run: Callable[[], list[dict[str, Any]]]) -> None:
        runs = row(key, run)
        each = " ".join(f"{r['accuracy']:.4f}" for r in runs)
        proven, seconds = sum(r["proven"] for r in runs), fmean(r["seconds"] for r in runs)
        print(f"{key}: {each}, proven {proven} of {len(runs)}, {seconds:.1f} s each", flush=True)

    for table, said in (("known", "order known"), ("full", "one message")):
        if table in wanted:
            names = [n for n in asked.only if (n in FULL) == (table == "full")]
            cells = [(name, records) for records in asked.records for name in names]
            cells += [(TABULAR, 2000)] * (table == "known" and len(names) == len(KNOWN) - len(FULL))
            for records in asked.records if table == "full" else ():
                most = " ".join(f"{ceiling(records, seed):.4f}" for seed in range(CLIENTS))
                print(f"at most, of {records} people some of whom are alike: {most}")
            for name, records in cells:
                shown(f"{name}; {said}; {records} records", partial(known, name, records))
    if "rand" in wanted:
        data = randhie.load()
        names = asked.sites or np.unique(data.records.columns[data.client]).tolist()
        for name, epochs, rate in product(names, EPOCHS, RATES):
            key = f"RAND; {epochs} epochs at rate {rate}; {name}"
            shown(key, partial(site, name, epochs, rate))
    if "seeds" in wanted:
        every = []
        for number in range(RECORDINGS + UNSEEDED):
            key = f"seed among {SEEDS}; recording {number}"
            every += row(key, lambda number=number: [searched(number)])  # type: ignore[misc]
            print(f"{key}: {every[-1]}", flush=True)
        found, wrong = sum(r["found"] for r in every), sum(r["wrong"] for r in every)
        print(f"found {found} of {RECORDINGS}, wrong claims {wrong} of {len(every)}")


if __name__ == "__main__":
    main()
