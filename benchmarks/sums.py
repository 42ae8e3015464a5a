"""Secure aggregation with several local steps, or among strangers: what does a sum still tell?

    python -m benchmarks.sums [--seeds 3]

Five clients of 25 digits each, pixel c043 (dark or not) unknown, a network of 64 units, 4 rounds of
which only sums are heard. Writes benchmarks/sums.json, a row for each way of training and seed: the
share of the asked clients' records whose value is guessed right, the decoder's own certainty, and
what a stranger with the auxiliary records guesses right; the same without auxiliary records, beside
the majority's share; and processor seconds. What is there is kept.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.frame import Results, Row, federation, options, show
from overheard import Recording, launch
from overheard.attacks.prior import imputed_prior
from overheard.attacks.sums import SumDecode
from overheard.evaluation.metrics import attribute_hits
from overheard.transcript.knowledge import AuxiliaryData, EverybodysRecords
from overheard.transcript.target import attribute
from overheard.transcript.threat import SECURE_SERVER
from overheard.transcript.view import observe

COLUMN, FIRST_SEED = "c043", 200


class Way(NamedTuple):
    """How clients train, and of how many of the five the records are known."""

    training: dict[str, Any]
    known: int = 5


WAYS = {
    "one step": Way({"learning_rate": 0.1}),
    "one step, 4 of 5 known": Way({"learning_rate": 0.1}, 4),
    "one step, 3 of 5 known": Way({"learning_rate": 0.1}, 3),
    "one step, 1 of 5 known": Way({"learning_rate": 0.1}, 1),
    "5 epochs of full batches": Way({"learning_rate": 0.1, "epochs": 5}),
    "batches of 5, 3 epochs": Way({"learning_rate": 0.1, "batch_size": 5, "epochs": 3}),
    "batches of 5, 3 epochs, rate .02": Way({"learning_rate": 0.02, "batch_size": 5, "epochs": 3}),
}


def measured(recording: Recording, known: int, seed: int) -> Row:
    """All clients whose records are known, each asked by itself."""
    names = recording.clients[:known]
    shares: dict[str, list[float]] = {}
    flags: set[str] = set()
    began = time.process_time()
    for client in names:
        view = observe(recording, SECURE_SERVER, attribute(COLUMN), client)
        told, truth = view.know(EverybodysRecords), recording.truth()[client][COLUMN]
        records, labels = {n: told.records[n] for n in names}, {n: told.labels[n] for n in names}
        view = view.knowing(EverybodysRecords(records, labels))
        guess = launch(SumDecode(), view, seed)
        alone = launch(SumDecode(), view.narrowed(view.kinds - {AuxiliaryData}), seed)
        before = replace(guess, probabilities=imputed_prior(view, records[client], labels[client]))
        flags |= {one.diagnostics.get("flag", "") for one in (guess, alone)} - {""}
        each = {
            "right": attribute_hits(guess, truth).mean(),
            "certainty": guess.probabilities.max(axis=1).mean(),
            "stranger": attribute_hits(before, truth).mean(),
            "right_without_auxiliary": attribute_hits(alone, truth).mean(),
            "certainty_without_auxiliary": alone.probabilities.max(axis=1).mean(),
            "majority": np.unique(truth, return_counts=True)[1].max() / len(truth),
        }
        for name, share in each.items():
            shares.setdefault(name, []).append(float(share))
    means = {name: float(np.mean(values)) for name, values in shares.items()}
    return {**means, "flags": sorted(flags), "seconds": time.process_time() - began}


def tried(way: Way, seed: int) -> Row:
    """One federation."""
    asked = {"victim": 25, "participants": 5, "attributes": [COLUMN], "seed": seed}
    config = {
        "seed": seed,
        "data": {"source": "digits", "options": asked},
        "model": {"name": "mlp", "hidden": [64]},
        "training": {"rounds": 4, "weighting": "equal", **way.training},
        "defence": [{"name": "secure_sum"}],
    }
    with tempfile.TemporaryDirectory() as folder:
        return measured(federation(config, None, Path(folder) / "run"), way.known, seed)


def main() -> None:
    """Run what is missing, and print the table."""
    given = options(__doc__, __file__, seeds=3)
    kept = Results(given.out, given.command)
    for name, way in WAYS.items():
        for seed in range(FIRST_SEED, FIRST_SEED + given.seeds):
            key = f"{name}; seed {seed}"
            row = kept.row(key, partial(tried, way, seed))
            show(key, [row], *(n for n, figure in row.items() if isinstance(figure, float)))
            print(row["flags"] or "no flag")


if __name__ == "__main__":
    main()
