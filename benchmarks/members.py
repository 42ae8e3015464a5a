"""Who of a pool are a client's records, behind mini-batches of any rule and any network?

    python -m benchmarks.members [--seeds 3] [--only NAME ...]

Adult (a network of 128 and 64 units, the attribute ``sex`` unknown too) and CIFAR-10 (the network
of PyTorch's 60-minute tutorial); both need the data. The pool holds as many strangers as members.
Writes benchmarks/members.json, a row a recipe: the share of the pool told right over the seeds, the
mean certainty, what simulated clients predicted, flags, a coin's share and processor seconds. The
recipes were written down before they were run; what is there already is kept, seed by seed.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.frame import Results, Row, federation, options, show
from experiments.data import adult, cifar10
from overheard.attacks.membership import CandidateDecode
from overheard.data.dataset import Dataset
from overheard.programs.records import Records
from overheard.transcript.side import MEMBER_COLUMN
from overheard.transcript.target import membership
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch, observe

MOMENTUM: dict[str, Any] = {"optimiser": {"name": "sgd", "momentum": 0.9}, "batch_size": 32}
ADAM: dict[str, Any] = {"optimiser": {"name": "adam"}, "batch_size": 32, "learning_rate": 0.001}
PEOPLE, PHOTOGRAPHS = "adult", "cifar10"
ROWS: dict[str, tuple[str, int, dict[str, Any]]] = {
    "MLP, momentum, 100": (PEOPLE, 100, {**MOMENTUM, "learning_rate": 0.01, "rounds": 1}),
    "MLP, momentum, 300": (PEOPLE, 300, {**MOMENTUM, "learning_rate": 0.01, "rounds": 1}),
    "MLP, Adam, 100, 5 rounds": (PEOPLE, 100, {**ADAM, "rounds": 5}),
    "CNN, momentum .01, 200": (PHOTOGRAPHS, 200, {**MOMENTUM, "learning_rate": 0.01, "rounds": 1}),
    "CNN, momentum .1, 200": (PHOTOGRAPHS, 200, {**MOMENTUM, "learning_rate": 0.1, "rounds": 1}),
    "CNN, momentum .1, 200, 3 rounds": (
        PHOTOGRAPHS, 200, {**MOMENTUM, "learning_rate": 0.1, "rounds": 3},
    ),
    "CNN, momentum .1, 500": (PHOTOGRAPHS, 500, {**MOMENTUM, "learning_rate": 0.1, "rounds": 1}),
}  # fmt: skip
FIRST_SEED = 100
"""Seeds before it were looked at while the decoder was made."""


def people(source: str, records: int, seed: int) -> Dataset:
    """One client, and as many strangers, which are kept out of it."""
    whole = adult.load() if source == PEOPLE else cifar10.load(records=1000, clients=1)
    rows = np.random.default_rng([20261118, seed]).permutation(len(whole.records))
    taken = whole.records.take(rows[: 2 * records]).without(whole.client)
    who = np.array(["client"] * len(taken))
    return replace(whole, records=Records({**taken.columns, whole.client: who}))


def tried(name: str, number: int) -> Row:
    """One client, and who was told to be its."""
    seed = FIRST_SEED + number
    source, records, training = ROWS[name]
    net = {"name": "mlp", "hidden": [128, 64]}
    if source == PHOTOGRAPHS:
        net = {"name": "lenet", "filters": [6, 16], "hidden": [120, 84]}
    content = {
        "seed": seed,
        "data": {"source": source},
        "model": net,
        "training": training,
        "audit": {"membership": records, **({"attributes": ["sex"]} if source == PEOPLE else {})},
    }
    with tempfile.TemporaryDirectory() as folder:
        recording = federation(content, people(source, records, seed), Path(folder) / "run")
        asked = membership("sex" if source == PEOPLE else "")
        view = observe(recording, EAVESDROPPER, asked, "client")
        truth = recording.truth("Membership", asked.key)["client"]
        began = time.process_time()
        guess = launch(CandidateDecode(), view, seed)
        spent = time.process_time() - began
    member = truth[MEMBER_COLUMN] == 1
    sure = np.maximum(guess.probabilities, 1 - guess.probabilities)
    return {
        "accuracy": float(np.mean(guess.choice() == member)),
        "certainty": float(sure.mean()),
        "coin": float(max(member.mean(), 1 - member.mean())),
        "certain": int((sure > 0.99).sum()),
        "certain_right": int(((guess.choice() == member) & (sure > 0.99)).sum()),
        "simulated": guess.diagnostics.get("simulated_accuracy"),
        "flag": guess.diagnostics.get("flag", ""),
        "seconds": spent,
    }


def main() -> None:
    """Run what is missing, and print the table."""
    given = options(__doc__, __file__, seeds=3, only=list(ROWS))
    kept = Results(given.out, given.command)
    for name in given.only:
        runs = kept.runs(name, given.seeds, partial(tried, name))
        show(name, runs, "accuracy", "certainty", "coin", "seconds")


if __name__ == "__main__":
    main()
