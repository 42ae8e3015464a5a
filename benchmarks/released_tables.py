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

import tempfile
import time
from collections.abc import Sequence
from functools import cache, partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.frame import Results, Row, federation, options, show
from overheard.attacks.attribute import MaxEntropy
from overheard.evaluation.baselines import Imputer, majority_share
from overheard.evaluation.metrics import calibration_error
from overheard.federation.federation import parse_config
from overheard.federation.plan import plan
from overheard.transcript.guess import AttributeValues
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch, observe

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


RELEASES: dict[str, tuple[Sequence[tuple[str, ...]], dict[str, Any]]] = {
    "1 table of 2 columns": ([("xage",)], {}),
    "6 tables of 2 columns": ([(c,) for c in PUBLIC], {}),
    "1 table of 3 columns": (PAIRS[:1], {}),
    "5 tables of 3 columns": (PAIRS, {}),
    "1 table of 4 columns": (TRIPLES[:1], {}),
    "4 tables of 4 columns": (TRIPLES, {}),
    **{
        f"1 table of 4 columns, {words}": (TRIPLES[:1], settings)
        for words, settings in {
            "below 5 suppressed": {"suppress": 5},
            "below 5 suppressed, zeros too": {"suppress": 5, "zeros": False},
            "below 10 suppressed, zeros too": {"suppress": 10, "zeros": False},
            "rounded to 5": {"round_to": 5},
            "rounded to 10": {"round_to": 10},
        }.items()
    },
    **{
        f"5 tables of 3 columns, {words}": (PAIRS, settings)
        for words, settings in {
            "below 5 suppressed, zeros too": {"suppress": 5, "zeros": False},
            "rounded to 5": {"round_to": 5},
        }.items()
    },
}
"""The public columns of each table, and what is done against readers."""


def config(column: str, tables: Sequence[tuple[str, ...]], **settings: Any) -> Row:
    """One release of tables of an attribute."""
    by = [{"by": [column, *public]} for public in tables]
    return {
        "data": {"source": "randhie"},
        "model": {"name": "statistics", "tables": by, "bins": BINS, **settings},
        "training": {"rounds": 1},
        "audit": {"attributes": [column]},
    }


@cache
def _stranger(column: str, site: str) -> float:
    """The share that who does not listen gets right, whatever is released."""
    ready = plan(parse_config(config(column, [()], bins={})))
    found = Imputer(0).values(ready.told, ready.clients, site, column, (0.0, 1.0))
    assert found is not None
    return float(found.hits.mean())


def row(name: str, column: str) -> Row:
    """One release of one attribute's tables, decoded at every site."""
    tables, settings = RELEASES[name]
    hits, chances, certified, free = [], [], [], []
    spent, flags = 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        recording = federation(config(column, tables, **settings), None, Path(folder) / "run")
        truth = recording.truth()
        for site in recording.clients:
            view = observe(recording, EAVESDROPPER, attribute(column), site)
            began = time.process_time()
            guess: AttributeValues = launch(MaxEntropy(), view, 0)
            spent += time.process_time() - began
            secret = truth[site][column]
            hits.append(guess.choice() == secret)
            chances.append(guess.probabilities)
            certified.append(int(guess.diagnostics["proven"]))
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
    given = options(__doc__, __file__, only=list(RELEASES))
    kept = Results(given.out, given.command)
    for name, column in product(given.only, ATTRIBUTES):
        found = kept.row(f"{name}; {column}", partial(row, name, column))
        figures = (n for n, figure in found.items() if isinstance(figure, int | float))
        show(f"{name}; {column}", [found], *figures)


if __name__ == "__main__":
    main()
