"""Several columns unknown at once: do messages still tell them, person by person?

    python benchmarks/several_columns.py [--sites "site 1" ...] [--seeds 100 ...]

RAND, a network of 64 units, one message of one full-batch step: ``female``, ``black`` and
``physlm`` (8 combinations a person). Writes
benchmarks/several_columns.json, a row a site and seed: the share of people of whom each column,
and all of them, are guessed right, the decoder's own certainty of each, the expected calibration
error, how many equations stood against how many unknowns, the majority and a stranger's imputation
of each column, and processor seconds. What is there already is kept.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from overheard import Recording, launch, parse_config, plan, simulate, threat_named
from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.evaluation.baselines import imputation, majority_share
from overheard.origin import origin
from overheard.transcript.knowledge import AttributeDomain
from overheard.transcript.observe import observe, told_of
from overheard.transcript.target import attribute

OUT = Path(__file__).with_suffix(".json")
COMMAND = "python benchmarks/several_columns.py"
COLUMNS = ("female", "black", "physlm")
SITES = [f"site {k}" for k in range(1, 7)]
SEEDS = (100, 101, 102)


def config(seed: int) -> dict[str, Any]:
    return {
        "data": {"source": "randhie"},
        "model": {"name": "mlp", "hidden": [64]},
        "training": {"rounds": 1, "learning_rate": 0.05},
        "audit": {"attributes": [list(COLUMNS)]},
        "seed": seed,
    }


def decoded(recording: Recording, site: str, seed: int) -> dict[str, Any]:
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
        free = imputation(told, truth, site, column, values, seed, COLUMNS)
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
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--sites", nargs="+", default=SITES, choices=SITES)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    asked = parser.parse_args()
    for seed in asked.seeds:
        with tempfile.TemporaryDirectory() as folder:
            planned = plan(parse_config(config(seed)))
            recording = Recording.open(simulate(planned, Path(folder) / "run"))
            for site in asked.sites:
                measured(recording, site, seed)


def measured(recording: Recording, site: str, seed: int) -> None:
    """One row, made if it is missing, and printed."""
    key = f"{len(COLUMNS)} columns; {site}; seed {seed}"

    def kept() -> dict[str, Any]:
        return dict(json.loads(OUT.read_text())) if OUT.exists() else {}

    if key not in kept():
        row = decoded(recording, site, seed)
        made = {**kept(), key: {**origin(COMMAND), **row}}
        OUT.write_text(json.dumps(made, indent=1) + "\n")
    row = kept()[key]
    each = ", ".join(f"{c} {row[c]:.3f} (stranger {row['stranger'][c]:.3f})" for c in COLUMNS)
    print(
        f"{key}, {row['people']} people: {each}, all {row['all']:.3f} at {row['certainty']:.3f}, "
        f"{row['rank']} equations for {row['unknowns']} unknowns, {row['seconds']:.0f} s, "
        f"{row['flag'] or 'no flag'}",
        flush=True,
    )


if __name__ == "__main__":
    main()
