"""What helps where no network is trained, and at what price?

    python -m benchmarks.program_defences [--only trees newton statistics] [--work FOLDER]

Sweeps, as `overheard sweep` runs them, over defences of boosted trees, Newton steps and released
tables: RAND (comes with the package; trees and Newton steps predict whether somebody spends more
than the median), one site is listened to (all sites' sums where they are secret), three draws of
the fifth of the records that is held out. A row a setting: the share guessed right beyond the best
guess of who does not listen (lift), the bits learned a record, what the global model or the tables
are worth, and the epsilon for a record's values (delta 1e-5) of all rounds together where there is
one. Writes benchmarks/program_defences.json; what is there is kept, and with
--work a sweep that was stopped goes on.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from typing import Any

from benchmarks.frame import Results, options, show
from overheard.federation.defences.accounting import DELTA, sampled_gaussian_changed
from overheard.sweep.frontier import frontier
from overheard.sweep.grid import parse_sweep
from overheard.sweep.run import sweep
from overheard.sweep.table import read_rows

Setting = dict[str, Any]


def plain(name: str, **changes: Any) -> Setting:
    """Nothing but other settings of the program itself."""
    return {"defence": name, "change": {f"model.{k}": v for k, v in changes.items()}}


def defended(name: str, **settings: Any) -> Setting:
    """One defence of the catalogue; its settings are its name in the table."""
    said = ", ".join(f"{k} {v:g}" for k, v in settings.items())
    return {
        "defence": f"{name} {said}".strip(),
        "change": {"defence": [{"name": name, **settings}]},
    }


def hidden(rounds: int) -> Setting:
    """Only the sum over all sites is seen, and everybody's records are decoded at once."""
    return {
        **defended("secure_sum"),
        "threat": "secure-server",
        "attacks": ["sum_decode"],
    } | {"change": {"defence": [{"name": "secure_sum"}], "training.rounds": rounds}}


def noisy(clip: float, noise: float) -> Setting:
    return {**defended("dp_sums", clip=clip, noise=noise), "strength": noise}


BINARY = {"source": "randhie", "options": {"above_median": True}}
BINS = {
    "xage": [10.0, 20.0, 30.0, 40.0, 50.0, 60.0],
    "educdec": [8.0, 11.0, 12.0, 15.0],
    "num": [2.0, 4.0, 6.0],
}
PUBLIC = ("xage", "educdec", "num", "female")
SWEEPS: dict[str, Setting] = {
    "trees": {
        "base": {
            "data": BINARY,
            "model": {"name": "xgboost", "eta": 0.1, "max_depth": 6},
            "training": {"rounds": 20},
        },
        "setting": [
            plain("nothing"),
            defended("leaf_values"),
            *(defended("leaf_values", rounded_to=step) for step in (0.001, 0.01, 0.05)),
            *(plain(f"min_child_weight {w}", min_child_weight=w) for w in (10, 40)),
            plain("subsample 0.5", subsample=0.5),
            plain("depth 3", max_depth=3),
        ],
    },
    "newton": {
        "base": {
            "data": BINARY,
            "model": {"name": "newton", "likelihood": "logistic"},
            "training": {"rounds": 4},
        },
        "setting": [
            plain("nothing"),
            hidden(2),
            *(noisy(2.0, noise) for noise in (0.01, 0.1, 1.0, 4.0)),
        ],
    },
    "statistics": {
        "base": {
            "data": {"source": "randhie"},
            "model": {
                "name": "statistics",
                "tables": [{"by": ["black", *three]} for three in combinations(PUBLIC, 3)],
                "bins": BINS,
            },
            "training": {"rounds": 1},
        },
        "setting": [
            plain("nothing"),
            hidden(1),
            *(defended("suppress_cells", below=5, zeros=shown) for shown in (True, False)),
            defended("suppress_cells", below=10, zeros=False),
            *(defended("round_counts", to=step) for step in (5, 10)),
            *(noisy(2.0, noise) for noise in (0.5, 1.0, 4.0)),
        ],
    },
}


def run(name: str, work: Path) -> list[dict[str, Any]]:
    """The rows of one sweep."""
    asked = SWEEPS[name]
    base = asked["base"] | {"audit": {"attributes": ["black"]}}
    described = parse_sweep(
        {
            "attacks": ["max_entropy"],
            "clients": ["site 5"],
            "seeds": [0, 1, 2],
            **asked,
            "base": base,
        }
    )
    sweep(described, work / name, again=True, progress=lambda what, done, of: print(what, done, of))
    found = read_rows(work / name)
    broken = sorted({row["error"] for row in found if row["error"]})
    rounds, rows = asked["base"]["training"]["rounds"], []
    for point in frontier(found):
        row = {k: v for k, v in asdict(point).items() if k != "varied"}
        if point.strength:
            row["epsilon"] = sampled_gaussian_changed(point.strength, 1.0, rounds, DELTA)
        rows.append(row)
    for error in broken:
        print("failed:", error)
    return rows


def main() -> None:
    """Run what is missing, and print the table."""
    given = options(__doc__, __file__, only=list(SWEEPS), work=Path())
    kept = Results(given.out, given.command)
    for name in given.only:
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder) if given.work == Path() else given.work
            found = kept.row(name, lambda name=name, work=work: {"rows": run(name, work)})  # type: ignore[misc]
        for row in found["rows"]:
            show(f"{name}: {row['defence']}", [row], "leakage", "leakage_spread", "utility")


if __name__ == "__main__":
    main()
