"""What do released tables give away, and what do suppression and rounding do about it?

    python -m benchmarks.released_tables [--only NAME ...]

RAND (comes with the package), six sites, each of which releases cross tables of one attribute with
public columns once; an adversary who knows everything of a site's people but that attribute, and
how common it is. Writes benchmarks/released_tables.json, a row a release and attribute, over all
sites: the share guessed right, the share that the answers themselves expect, the majority, a
stranger's imputation, how many people have one possible value only (certified), how many of those
are right, and the calibration error. Four of the releases had been run with an earlier decoder when
this one was settled; every row is of this one. Rows that are there already are
kept.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from overheard.attacks.linear import Linear
from overheard.evaluation.baselines import imputation, majority_share
from overheard.evaluation.metrics import calibration_error
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.origin import origin
from overheard.transcript.guess import AttributeValues
from overheard.transcript.observe import observe
from overheard.transcript.store import Recording
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch

OUT = Path(__file__).with_suffix(".json")
COMMAND = "python -m benchmarks.released_tables"
ATTRIBUTES = ("female", "black", "physlm")
BINS = {
    "xage": [10.0, 20.0, 30.0, 40.0, 50.0, 60.0],
    "educdec": [8.0, 11.0, 12.0, 15.0],
    "num": [2.0, 4.0, 6.0],
    "disea": [5.0, 10.0, 20.0],
    "linc": [8.0, 8.5, 9.0, 9.5],
    "mhi": [60.0, 70.0, 80.0, 90.0],
}
PUBLIC = tuple(BINS)
PAIRS, TRIPLES = tuple(combinations(PUBLIC, 2))[:5], tuple(combinations(PUBLIC, 3))[:4]
"""Public columns of the tables of three and of four columns, the attribute being the other one."""


def _by(*parts: tuple[str, ...]) -> list[tuple[str, ...]]:
    return list(parts)


RELEASES: dict[str, tuple[list[tuple[str, ...]], dict[str, Any]]] = {
    "1 table of 2 columns": (_by(("xage",)), {}),
    "6 tables of 2 columns": (_by(*((c,) for c in PUBLIC)), {}),
    "1 table of 3 columns": (_by(PAIRS[0]), {}),
    "5 tables of 3 columns": (_by(*PAIRS), {}),
    "1 table of 4 columns": (_by(TRIPLES[0]), {}),
    "4 tables of 4 columns": (_by(*TRIPLES), {}),
    **{
        f"1 table of 4 columns, {words}": (_by(TRIPLES[0]), settings)
        for words, settings in {
            "below 5 suppressed": {"suppress": 5},
            "below 5 suppressed, zeros too": {"suppress": 5, "zeros": False},
            "below 10 suppressed, zeros too": {"suppress": 10, "zeros": False},
            "rounded to 5": {"round_to": 5},
            "rounded to 10": {"round_to": 10},
        }.items()
    },
    **{
        f"5 tables of 3 columns, {words}": (_by(*PAIRS), settings)
        for words, settings in {
            "below 5 suppressed, zeros too": {"suppress": 5, "zeros": False},
            "rounded to 5": {"round_to": 5},
        }.items()
    },
}
"""The public columns of each table, and what is done against readers."""


@cache
def _stranger(column: str, site: str) -> float:
    """The share that who does not listen gets right, whatever is released."""
    config = {
        "data": {"source": "randhie"},
        "model": {"name": "statistics", "tables": [{"by": [column]}]},
        "training": {"rounds": 1},
        "audit": {"attributes": [column]},
    }
    ready = plan(parse_config(config))
    found = imputation(ready.told, ready.clients, site, column, (0.0, 1.0), 0)
    assert found is not None
    return float(found.hits.mean())


def row(name: str, column: str) -> dict[str, Any]:
    """One release of one attribute's tables, decoded at every site."""
    tables, settings = RELEASES[name]
    config = {
        "data": {"source": "randhie"},
        "model": {
            "name": "statistics",
            "tables": [{"by": [column, *by]} for by in tables],
            "bins": BINS,
            **settings,
        },
        "training": {"rounds": 1},
        "audit": {"attributes": [column]},
    }
    hits, chances, certified, free = [], [], [], []
    spent, flags = 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        recording = Recording.open(simulate(plan(parse_config(config)), Path(folder) / "run"))
        truth = recording.truth()
        for site in recording.clients:
            view = observe(recording, EAVESDROPPER, attribute(column), site)
            began = time.process_time()
            guess: AttributeValues = launch(Linear(), view, 0)
            spent += time.process_time() - began
            secret = truth[site][column]
            hits.append(guess.choice() == secret)
            chances.append(guess.probabilities)
            certified.append(int(guess.diagnostics["certified"]))
            flags += "flag" in guess.diagnostics
            free.append((majority_share(secret, (0.0, 1.0)), _stranger(column, site)))
    right, p = np.concatenate(hits), np.concatenate(chances)
    sure = p.max(axis=1) == 1
    everybody = np.concatenate([truth[site][column] for site in recording.clients])
    sizes = [len(truth[site]) for site in recording.clients]
    return {
        "records": len(right),
        "accuracy": float(right.mean()),
        "expected": float(p.max(axis=1).mean()),
        "majority": float(np.average([m for m, _ in free], weights=sizes)),
        "stranger": float(np.average([s for _, s in free], weights=sizes)),
        "certified": int(sum(certified)),
        "certain": int(sure.sum()),
        "certain_right": int((right & sure).sum()),
        "calibration_error": calibration_error(AttributeValues(p, (0.0, 1.0)), everybody),
        "flagged_sites": flags,
        "seconds": spent,
    }


def main() -> None:
    """Run what is missing, and print the table."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--only", nargs="+", default=list(RELEASES), choices=list(RELEASES))
    asked = parser.parse_args()
    kept: dict[str, Any] = json.loads(OUT.read_text()) if OUT.exists() else {}
    for name in asked.only:
        for column in ATTRIBUTES:
            key = f"{name}; {column}"
            if key not in kept:
                kept[key] = {**origin(COMMAND), **row(name, column)}
                OUT.write_text(json.dumps(kept, indent=1) + "\n")
            found = kept[key]
            print(
                f"{key}: {found['accuracy']:.3f} (expected {found['expected']:.3f}), majority "
                f"{found['majority']:.3f}, stranger {found['stranger']:.3f}, certified "
                f"{found['certified']} of {found['records']} ({found['certain_right']} of "
                f"{found['certain']} right), calibration {found['calibration_error']:.3f}, "
                f"flagged {found['flagged_sites']}, {found['seconds']:.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
