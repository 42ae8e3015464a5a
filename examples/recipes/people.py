"""People of the RAND Health Insurance Experiment by site, as an app loads its data set.

``python people.py OUT [PEOPLE]``: writes them to OUT/people.csv, which is what an auditor holds.
"""

import csv
import sys
from functools import cache
from pathlib import Path

import numpy as np

from overheard.data.bundled import randhie

TARGET, SITES, PEOPLE = "high_spending", 4, 48
TARGETS = (TARGET, "log_spending")


@cache
def sites(people: int = PEOPLE, many: int = SITES) -> dict[str, dict[str, np.ndarray]]:
    """The first people of the first sites, column by column."""
    columns = {**randhie().records.columns, **randhie(above_median=True).records.columns}
    who = columns["site"]
    names = np.unique(who)[:many].tolist()
    first = {site: np.flatnonzero(who == site)[:people] for site in names}
    return {
        site: {n: values[rows] for n, values in columns.items() if n != "site"}
        for site, rows in first.items()
    }


def partition(
    number: int, alone: bool = False, target: str = TARGET, people: int = PEOPLE, many: int = SITES
) -> tuple[np.ndarray, np.ndarray]:
    """A site's inputs (n, 17) and labels (n,). What is not 0 or 1 is scaled to mean 0 and deviation
    1 over the people of all sites, or, ``alone``, over the site's own."""
    everybody = sites(people, many)
    mine = everybody[f"site {number + 1}"]
    every, inputs = np.concatenate([*map(_inputs, everybody.values())]), _inputs(mine)
    numbers = ~np.isin(every, (0, 1)).all(axis=0)
    whose = (inputs if alone else every)[:, numbers]
    inputs[:, numbers] = (inputs[:, numbers] - whose.mean(axis=0)) / whose.std(axis=0)
    return inputs, mine[target]


def _inputs(site: dict[str, np.ndarray]) -> np.ndarray:
    return np.stack([values for name, values in site.items() if name not in TARGETS], axis=1)


def main(out: Path, people: int = PEOPLE) -> None:
    out.mkdir(parents=True, exist_ok=True)
    with (out / "people.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["site", *sites(people)["site 1"]])
        for number, columns in enumerate(sites(people).values()):
            rows = zip(*(values.tolist() for values in columns.values()), strict=True)
            table.writerows([number, *row] for row in rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
