"""Several columns unknown at once: do messages still tell them, person by person?

    python -m benchmarks.several_columns [--sites "site 1" ...] [--seeds 100 ...]

RAND, a network of 64 units, one message of one full-batch step: ``female``, ``black`` and
``physlm`` (8 combinations a person). Writes
benchmarks/several_columns.json, a row a site and seed: the share of people of whom each column,
and all of them, are guessed right, the decoder's own certainty of each, the expected calibration
error, how many equations stood against how many unknowns, the majority and a stranger's imputation
of each column, and processor seconds. What is there already is kept.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.frame import Results, Row, federation, options, show
from overheard import Recording, launch, threat_named
from overheard.attacks.attribute import MaxEntropy
from overheard.evaluation.baselines import Imputer, majority_share
from overheard.transcript.kind import told_of
from overheard.transcript.knowledge import AttributeDomain
from overheard.transcript.target import attribute
from overheard.transcript.view import observe

COLUMNS = ("female", "black", "physlm")
SITES = [f"site {k}" for k in range(1, 7)]
SEEDS = [100, 101, 102]


def config(seed: int) -> Row:
    return {
        "data": {"source": "randhie"},
        "model": {"name": "mlp", "hidden": [64]},
        "training": {"rounds": 1, "learning_rate": 0.05},
        "audit": {"attributes": [list(COLUMNS)]},
        "seed": seed,
    }


def decoded(recording: Recording, site: str, seed: int) -> Row:
    """One site, from its messages."""
    view = observe(recording, threat_named("eavesdropper"), attribute(*COLUMNS), site)
    began = time.process_time()
    guess = launch(MaxEntropy(), view, seed)
    seconds = time.process_time() - began
    truth, told = recording.truth(), told_of(recording)
    assert told is not None
    combinations = np.array(view.know(AttributeDomain).combinations)
    p = guess.probabilities
    row: dict[str, Any] = {"seed": seed, "people": len(p)}
    whole = np.ones(len(p), dtype=bool)
    each: dict[str, dict[str, float | None]] = {
        name: {} for name in ("sure", "ece", "majority", "stranger")
    }
    for place, column in enumerate(COLUMNS):
        values = tuple(np.unique(combinations[:, place]).tolist())
        own = np.stack([p[:, combinations[:, place] == v].sum(axis=1) for v in values], axis=1)
        hits = np.array(values)[own.argmax(axis=1)] == truth[site][column]
        whole &= combinations[p.argmax(axis=1), place] == truth[site][column]
        free = Imputer(seed).values(told, truth, site, column, values, COLUMNS)
        row[column] = float(hits.mean())
        each["sure"][column] = float(own.max(axis=1).mean())
        each["ece"][column] = calibration_error(own.max(axis=1), hits)
        each["majority"][column] = majority_share(truth[site][column], values)
        each["stranger"][column] = None if free is None else float(free.hits.mean())
    found = guess.diagnostics
    return {
        **row,
        "all": float(whole.mean()),
        "certainty": float(p.max(axis=1).mean()),
        **each,
        "seconds": seconds,
        **{name: found.get(name) for name in ("method", "rank", "unknowns", "flag")},
    }


def calibration_error(sure: np.ndarray, hits: np.ndarray) -> float:
    """Expected calibration error in ten bins of sureness."""
    which = np.minimum((sure * 10).astype(int), 9)
    parts = [which == k for k in range(10)]
    return float(sum(abs(sure[w].sum() - hits[w].sum()) for w in parts) / len(sure))


def main() -> None:
    """Run what is missing, and print the table."""
    given = options(__doc__, __file__, sites=SITES, seeds=SEEDS)
    kept = Results(given.out, given.command)
    for seed in given.seeds:
        with tempfile.TemporaryDirectory() as folder:
            recording = federation(config(seed), None, Path(folder) / "run")
            for site in given.sites:
                key = f"{len(COLUMNS)} columns; {site}; seed {seed}"
                row = kept.row(key, partial(decoded, recording, site, seed))
                show(key, [row], *COLUMNS, "all", "certainty", "rank", "unknowns", "seconds")


if __name__ == "__main__":
    main()
