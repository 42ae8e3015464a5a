"""What do clients give away whose training has nothing random in it, or only what can be guessed?

    python -m benchmarks.orders [--tables known full rand seeds] [--records 100 300 1000]
                                [--only NAME ...] [--sites SITE ...]

Adult (needs the data), the attribute ``sex``, one message. ``known``: batches of 32 in an order
that is granted; a row a recipe and size, three clients each: the share guessed right, how many
answers were proven by replay, processor seconds. ``full``: the same of full batches, one step and
five, and the most that can be right where people are alike. ``rand``: RAND, a network of 64
units, several full-batch epochs, all sites and attributes. ``seeds``: 40 recordings of clients
that fix a seed between 0 and 9,999 by some convention, and 8 of clients that do not; every seed
below 10,000 is tried under every convention: how many seeds are found, and how many wrong ones are
claimed. Writes benchmarks/orders.json; recipes, sizes and seeds were written down before they were
run, and what is there already is kept.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import product
from typing import Any, get_args

import numpy as np

from benchmarks.any_training import ADAM, ADAMW, MOMENTUM, RECIPES, SGD, config, people
from benchmarks.frame import Results, Row, audited, options, show
from overheard.attacks.attribute import MaxEntropy
from overheard.data.bundled import SENSITIVE, randhie
from overheard.programs.orders import Source
from overheard.transcript.knowledge import BatchOrder
from overheard.transcript.threat import EAVESDROPPER

CLIENTS = 3
"""Of each row with a known order."""
RECORDINGS, UNSEEDED, SEEDS = 40, 8, 10_000
FRESH = 20_261_218
"""Where the seeds of these recordings begin: others were looked at while the search was made."""
BATCHES: dict[str, Any] = {"batch_size": 32, "shuffle": {"seed": 42}}
KNOWN: dict[str, dict[str, Any]] = {
    "SGD": {**SGD, **BATCHES},
    "Adam": {**ADAM, **BATCHES},
    "Adam, 5 epochs": {**ADAM, **BATCHES, "epochs": 5},
    "AdamW": {**ADAMW, **BATCHES},
    "momentum, 5 epochs": {**MOMENTUM, **BATCHES, "epochs": 5},
    "Adam, layer normalisation": {**ADAM, **BATCHES, "layers": "normalised"},
}
FULL = tuple(n for n, r in RECIPES.items() if "full batch" in n and "layers" not in r)
KNOWN |= {name: RECIPES[name] for name in FULL}
EPOCHS, RATES = (5, 10, 20), (0.05, 0.2)
"""Of RAND."""
TABULAR = "Adam, ordinal inputs"
RULES = {"SGD": SGD, "momentum": MOMENTUM, "Adam": ADAM}
SIZES = [100, 300, 1000]


def summary(found: Any, seconds: float) -> Row:
    """What a finding says."""
    return {
        "client": found.client,
        "attribute": found.attribute,
        "accuracy": found.value,
        "stranger": found.imputation,
        "proven": found.details.get("proven") == "True",
        "method": found.details.get("method"),
        "flag": found.details.get("flag", ""),
        "bits": None if found.calibration is None else found.calibration.bits,
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


def known(name: str, records: int) -> list[Row]:
    """Clients whose order is granted, or whose batches are full."""
    training = dict(KNOWN.get(name, KNOWN["Adam"]))
    layers, made = training.pop("layers", None), []
    for seed in range(CLIENTS):
        data = people(records, seed, tabular=name == TABULAR)
        granted = EAVESDROPPER.granting(BatchOrder)
        found, spent = audited(config(layers, training, seed), data, MaxEntropy(), granted)
        made.append(summary(found.findings[0], spent))
    return made


def site(name: str, epochs: int, rate: float) -> list[Row]:
    """All attributes of a site of RAND."""
    content = {
        **config(None, {"epochs": epochs, "learning_rate": rate}, 0),
        "data": {"source": "randhie"},
        "model": {"name": "mlp", "hidden": [64]},
        "audit": {"attributes": list(SENSITIVE)},
    }
    found, spent = audited(content, randhie(), MaxEntropy(), clients=(name,))
    return [summary(one, spent / len(found.findings)) for one in found.findings]


def searched(number: int) -> Row:
    """One client that fixed a seed (or, beyond `RECORDINGS`, did not), and what was claimed."""
    rng = np.random.default_rng([FRESH, number])
    rule = list(RULES)[number % 3]
    records = SIZES[number // 3 % 3]
    seed, source = int(rng.integers(SEEDS)), get_args(Source)[number % len(get_args(Source))]
    epochs = 3 if number % 8 == 7 else 1
    training = {**RULES[rule], "batch_size": 32, "epochs": epochs}
    if number < RECORDINGS:
        training["shuffle"] = {"seed": seed, "source": source}
    content = config(None, training, FRESH + number)
    data = people(records, FRESH + number)
    audit, spent = audited(content, data, MaxEntropy(seeds=SEEDS))
    (found,) = audit.findings
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
    data = randhie()
    given = options(
        __doc__,
        __file__,
        tables=["known", "full", "rand", "seeds"],
        records=SIZES,
        only=list(KNOWN),
        sites=np.unique(data.records.columns[data.client]).tolist(),
    )
    kept = Results(given.out, given.command)

    def shown(key: str, run: partial[list[Row]]) -> None:
        show(key, kept.row(key, lambda: {"runs": run()})["runs"], "accuracy", "proven", "seconds")

    if "known" in given.tables:
        for records, name in product(given.records, [n for n in given.only if n not in FULL]):
            shown(f"{name}; order known; {records} records", partial(known, name, records))
        if given.only == list(KNOWN):
            shown(f"{TABULAR}; order known; 2000 records", partial(known, TABULAR, 2000))
    if "full" in given.tables:
        for records in given.records:
            most = " ".join(f"{ceiling(records, seed):.4f}" for seed in range(CLIENTS))
            print(f"at most, of {records} people some of whom are alike: {most}")
            for name in (n for n in given.only if n in FULL):
                shown(f"{name}; one message; {records} records", partial(known, name, records))
    if "rand" in given.tables:
        for name, epochs, rate in product(given.sites, EPOCHS, RATES):
            key = f"RAND; {epochs} epochs at rate {rate}; {name}"
            shown(key, partial(site, name, epochs, rate))
    if "seeds" in given.tables:
        every = []
        for number in range(RECORDINGS + UNSEEDED):
            key = f"seed among {SEEDS}; recording {number}"
            every += kept.row(key, lambda number=number: {"runs": [searched(number)]})["runs"]  # type: ignore[misc]
            print(f"{key}: {every[-1]}", flush=True)
        found, wrong = sum(r["found"] for r in every), sum(r["wrong"] for r in every)
        print(f"found {found} of {RECORDINGS}, wrong claims {wrong} of {len(every)}")


if __name__ == "__main__":
    main()
