"""Secure aggregation with several local steps, or among strangers: what does a sum still tell?

    python benchmarks/sums.py [--seeds 3]

Five clients of 25 digits each, pixel c043 (five grey levels or fewer) unknown, a network of 16
units, 4 rounds of which only sums are heard. Writes benchmarks/sums.json, a row for each way of
training and seed: the share of the asked clients' records whose value is guessed right, the
decoder's own certainty, the majority's share, and processor seconds. What is there is kept.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from overheard import Recording, launch, parse_config, plan, simulate
from overheard.attacks.attribute.sum_decode import SumDecode
from overheard.code_digest import code_of, stands_on
from overheard.evaluation.metrics import attribute_hits
from overheard.transcript.knowledge import EverybodysRecords
from overheard.transcript.observe import observe
from overheard.transcript.target import attribute
from overheard.transcript.threat import SECURE_SERVER

OUT = Path(__file__).with_suffix(".json")
COMMAND = "python benchmarks/sums.py"
COLUMN, FIRST_SEED = "c043", 200


class Way(NamedTuple):
    """How clients train, and of how many of the five the records are known."""

    training: dict[str, Any]
    known: int = 5


WAYS = {
    "one step": Way({"learning_rate": 0.1}),
    "one step, 2 of 5 known": Way({"learning_rate": 0.1}, 2),
    "one step, 1 of 5 known": Way({"learning_rate": 0.1}, 1),
    "5 epochs of full batches": Way({"learning_rate": 0.1, "epochs": 5}),
    "batches of 5, 3 epochs": Way({"learning_rate": 0.1, "batch_size": 5, "epochs": 3}),
    "batches of 5, 3 epochs, rate .02": Way({"learning_rate": 0.02, "batch_size": 5, "epochs": 3}),
}


def code() -> str:
    """The digest of the code that the rows depend on."""
    return code_of(
        stands_on("overheard.attacks.attribute.sum_decode", "overheard.federation.simulate")
    )


def measured(recording: Recording, known: int, seed: int) -> dict[str, Any]:
    """All clients whose records are known, each asked by itself."""
    names = recording.clients[:known]
    hits, sure, common, flags = [], [], [], set()
    began = time.process_time()
    for client in names:
        view = observe(recording, SECURE_SERVER, attribute(COLUMN), client)
        told = view.know(EverybodysRecords)
        records, labels = ({n: of[n] for n in names} for of in (told.records, told.labels))
        guess = launch(SumDecode(), view.knowing(EverybodysRecords(records, labels)), seed)
        truth = recording.truth()[client][COLUMN]
        hits.append(attribute_hits(guess, truth).mean())
        sure.append(guess.probabilities.max(axis=1).mean())
        common.append(np.unique(truth, return_counts=True)[1].max() / len(truth))
        flags |= {guess.diagnostics.get("flag", "")} - {""}
    return {
        "right": float(np.mean(hits)),
        "certainty": float(np.mean(sure)),
        "majority": float(np.mean(common)),
        "flags": sorted(flags),
        "seconds": time.process_time() - began,
    }


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    asked = parser.parse_args()
    kept: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    for name, way in WAYS.items():
        for seed in range(FIRST_SEED, FIRST_SEED + asked.seeds):
            key = f"{name}; seed {seed}"
            if kept.get(key, {}).get("code") != code():
                options = {"victim": 25, "participants": 5, "attributes": [COLUMN], "seed": seed}
                config = {
                    "seed": seed,
                    "data": {"source": "digits", "options": options},
                    "model": {"name": "mlp", "hidden": [16]},
                    "training": {"rounds": 4, "weighting": "equal", **way.training},
                    "defence": [{"name": "secure_sum"}],
                }
                with tempfile.TemporaryDirectory() as folder:
                    made = simulate(plan(parse_config(config)), Path(folder) / "run")
                    row = measured(Recording.open(made), way.known, seed)
                kept[key] = {"command": COMMAND, "code": code(), **row}
                OUT.write_text(json.dumps(kept, indent=1) + "\n")
            row = kept[key]
            print(
                f"{key}: {row['right']:.3f} right at {row['certainty']:.3f}, majority "
                f"{row['majority']:.3f}, {row['seconds']:.1f} s, {row['flags'] or 'no flag'}",
                flush=True,
            )


if __name__ == "__main__":
    main()
