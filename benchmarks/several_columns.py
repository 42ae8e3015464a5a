"""Three columns unknown at once: does one message still tell them, person by person?

    python benchmarks/several_columns.py [--sites "site 1" ...] [--seeds 100 ...]

RAND, ``female``, ``black`` and ``physlm`` unknown together (8 combinations a person), a network of
64 units, one full-batch step, one message. Writes benchmarks/several_columns.json, a row a site:
for each seed the share of people of whom each column, and all three, are guessed right, the
decoder's own certainty, how many equations stood against how many unknowns, the majority and a
stranger's imputation of each column, and processor seconds. What is there already is kept.
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
from overheard.code_digest import code_of, stands_on
from overheard.evaluation.baselines import imputation, majority_share
from overheard.transcript.knowledge import AttributeDomain
from overheard.transcript.observe import observe, told_of
from overheard.transcript.target import attribute

OUT = Path(__file__).with_suffix(".json")
COMMAND = "python benchmarks/several_columns.py"
COLUMNS = ("female", "black", "physlm")
SITES = [f"site {k}" for k in range(1, 7)]
SEEDS = (100, 101, 102)
CONFIG: dict[str, Any] = {
    "data": {"source": "randhie"},
    "model": {"name": "mlp", "hidden": [64]},
    "training": {"rounds": 1, "learning_rate": 0.05},
    "audit": {"attributes": [list(COLUMNS)]},
}


def code() -> str:
    """The digest of the code that the rows depend on."""
    return code_of(
        stands_on("overheard.attacks.attribute.max_entropy", "overheard.federation.simulate")
    )


def decoded(recording: Recording, site: str, seed: int) -> dict[str, Any]:
    """One site, from its one message."""
    view = observe(recording, threat_named("eavesdropper"), attribute(*COLUMNS), site)
    began = time.process_time()
    guess = launch(MaxEntropy(), view, seed)
    seconds = time.process_time() - began
    truth, told = recording.truth(), told_of(recording)
    assert told is not None
    settings = view.know(AttributeDomain).settings
    chosen = [settings[k] for k in guess.probabilities.argmax(axis=1)]
    hits = {c: np.array([one[c] for one in chosen]) == truth[site][c] for c in COLUMNS}
    free = {c: imputation(told, truth, site, c, (0.0, 1.0), seed, COLUMNS) for c in COLUMNS}
    return {
        "seed": seed,
        "people": len(chosen),
        "all": float(np.mean(np.all(list(hits.values()), axis=0))),
        **{c: float(h.mean()) for c, h in hits.items()},
        "certainty": float(guess.probabilities.max(axis=1).mean()),
        "majority": {c: majority_share(truth[site][c], (0.0, 1.0)) for c in COLUMNS},
        "stranger": {c: None if f is None else float(f.hits.mean()) for c, f in free.items()},
        "seconds": seconds,
        **{name: guess.diagnostics.get(name) for name in ("method", "rank", "unknowns", "flag")},
    }


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--sites", nargs="+", default=SITES, choices=SITES)
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS)
    asked = parser.parse_args()
    kept: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    for seed in asked.seeds:
        with tempfile.TemporaryDirectory() as folder:
            config = parse_config({**CONFIG, "seed": seed})
            recording = Recording.open(simulate(plan(config), Path(folder) / "run"))
            for site in asked.sites:
                key = f"{site}; seed {seed}"
                if kept.get(key, {}).get("code") != code():
                    row = decoded(recording, site, seed)
                    kept[key] = {"command": COMMAND, "code": code(), **row}
                    OUT.write_text(json.dumps(kept, indent=1) + "\n")
                row = kept[key]
                each = ", ".join(
                    f"{c} {row[c]:.3f} (stranger {row['stranger'][c]:.3f})" for c in COLUMNS
                )
                print(
                    f"{key}, {row['people']} people: {each}, all {row['all']:.3f} at "
                    f"{row['certainty']:.3f}, {row['rank']} equations for {row['unknowns']} "
                    f"unknowns, {row['seconds']:.0f} s, {row['flag'] or 'no flag'}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
