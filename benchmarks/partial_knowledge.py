"""Only some of the client's records are known: accuracy against coverage.

    python benchmarks/partial_knowledge.py [--quick] [--json FILE]

location30, a victim of 300 users, MLP 128, one full-batch float32 round; column c001 (majority
about 0.83) and c069 (about 0.51). Prints, per share of the records known, the accuracy on those
records of `partial_decode`, 95% intervals over the records and the majority guess.
Needs OVERHEARD_DATA with location30; says so and stops without it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # papers/ is beside this folder

from overheard.data.victim import VICTIM
from overheard.errors import FixData
from overheard.evaluation.complete import COVERAGES, accuracy_by_coverage
from overheard.transcript.threat import EAVESDROPPER
from papers.common.harness import recorded


def measure(
    columns: tuple[str, ...], seeds: int, shares: tuple[float, ...]
) -> Iterator[dict[str, Any]]:
    """One row per attribute, seed and coverage."""
    for column in columns:
        for seed in range(seeds):
            config = {
                "seed": seed,
                "data": {
                    "source": "location30",
                    "options": {"seed": seed, "victim": 300, "attributes": (column,)},
                },
                "model": {"name": "mlp", "hidden": [128]},
                "training": {"rounds": 1, "learning_rate": 0.1},
            }
            with recorded(config) as recording:
                line = accuracy_by_coverage(
                    recording, EAVESDROPPER, column, VICTIM, shares, seed=seed
                )
            for ours in line:
                yield {
                    "attribute": column,
                    "seed": seed,
                    "coverage": ours.coverage,
                    "known": ours.known,
                    "majority": ours.majority,
                    "partial_decode": ours.value,
                    "low": ours.low,
                    "high": ours.high,
                }


def main() -> int:
    """Measure, print a table and the two figures that must hold, optionally write JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, coverage 0.5 and 0.9")
    parser.add_argument("--json", type=Path, help="write the rows here")
    options = parser.parse_args()
    seeds, shares = (1, (0.5, 0.9)) if options.quick else (3, COVERAGES)
    rows = []
    print("attribute seed coverage known majority  partial_decode (95%)")
    try:
        for r in measure(("c001", "c069"), seeds, shares):
            rows.append(r)
            print(
                f"{r['attribute']}      {r['seed']:2d}     {r['coverage']:.2f}   {r['known']:3d}"
                f"    {r['majority']:.3f}  {r['partial_decode']:.3f} ({r['low']:.3f}-"
                f"{r['high']:.3f})",
                flush=True,
            )
    except FixData as error:
        print(f"skipped: {error}", file=sys.stderr)
        return 0
    for column, coverage, wanted in (("c001", 0.9, 0.99), ("c069", 0.9, 0.99), ("c069", 0.5, 0.8)):
        chosen = [r for r in rows if (r["attribute"], r["coverage"]) == (column, coverage)]
        mean = np.mean([r["partial_decode"] for r in chosen])
        majority = np.mean([r["majority"] for r in chosen])
        print(
            f"{column} at {coverage:.0%} coverage: {mean:.3f} (majority {majority:.3f}), wanted "
            f"{wanted}: {'holds' if mean >= wanted else 'DOES NOT HOLD'}"
        )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
