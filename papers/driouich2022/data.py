"""driouich2022 Tables 4 and 5 and Figure 2: how large the clients are and how far apart.

No attack is run. The paper's numbers stand beside those of the data that are used here in its
place, so that a reader sees how much alike they are.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from overheard.evaluation import metrics
from overheard.transcript.knowledge import Link
from overheard.transcript.target import LOCAL_MODEL
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import observe
from papers.common import pictures
from papers.common.harness import federation, mean_row, recorded, truth_and_recipe
from papers.common.heterogeneity import AT_INFINITY, mean_distances, relative
from papers.common.rows import Experiment, Progress, Reproduction, Row
from papers.data import adult, flights
from papers.driouich2022.world import NOT_THEIR_FARES, fares

DATA = "data"
FARES = {
    # the paper's airlines 0 to 9
    "records": "2995 17451 11789 9855 8209 8058 4232 4161 3959 19287",
    "share of ones": ".62 .66 .60 .70 .63 .62 .68 .55 .58 .61",
    "distance to the global model": ".23 .08 .04 .21 .08 .04 .25 .08 .05 .06",
}
ADULT_SHARES = (2, 3, 2, 13, 13, 13, 13, 13, 14, 14)
"""Table 5, per cent of 12,300 records."""


def table4(quick: bool, seeds: int, progress: Progress) -> Reproduction:
    """Fares: size, share of direct flights, distance of the local optimum to the global model."""
    found: dict[tuple[str, str], list[float]] = {}
    for seed in range(seeds):
        progress("fares", seed, seeds)
        training = {"rounds": 150 if quick else 1000, "learning_rate": 0.1}
        config = federation(seed, "flights", "linear", training)
        with recorded(config, fares(500 if quick else 20_000, seed, "direct")) as recording:
            truth, recipe = truth_and_recipe(recording)
            link = observe(recording, EAVESDROPPER, LOCAL_MODEL, recording.clients[0]).know(Link)
            final = link.sent[-1].astype(np.float64)
            for client, records in truth.items():
                optimum = metrics.local_optimum(recipe, records)
                for measure, value in (
                    ("records", float(len(records))),
                    ("share of ones", float(records["direct"].mean())),
                    ("distance to the global model", relative(optimum, final)),
                ):
                    found.setdefault((client, measure), []).append(value)
    rows = [mean_row("fares", c, DATA, measure, values) for (c, measure), values in found.items()]
    rows += [row for measure, text in FARES.items() for row in ends(measure, text, rows)]
    notes = (
        flights.SOURCE.note,
        NOT_THEIR_FARES,
        "The airlines are others, so only the ends of each range stand beside the paper's.",
    )
    return Reproduction(rows, "flights", notes, seeds)


def ends(measure: str, claimed: str, rows: list[Row]) -> list[Row]:
    """The least and the greatest of a measure over the clients, here and in the paper."""
    paper = [float(number) for number in claimed.split()]
    here = [r.measured for r in rows if r.measure == measure]
    seeds = rows[0].seeds
    return [
        Row("fares", "least", DATA, measure, min(here), claimed=min(paper), seeds=seeds),
        Row("fares", "greatest", DATA, measure, max(here), claimed=max(paper), seeds=seeds),
    ]


def table5(quick: bool, seeds: int, progress: Progress) -> Reproduction:
    """Adult: each client's share of the records, and Figure 2's distances between local optima."""
    found: dict[tuple[str, str], list[float]] = {}
    totals = []
    for seed in range(seeds):
        progress("Adult", seed, seeds)
        training = {"rounds": 1, "learning_rate": 0.1}
        config = federation(seed, "adult", "logistic", training, {"seed": seed})
        with recorded(config) as recording:
            truth, recipe = truth_and_recipe(recording)
            total = sum(map(len, truth.values()))
            totals.append(float(total))
            optima = {c: metrics.local_optimum(recipe, r) for c, r in truth.items()}
            for client, mean in mean_distances(optima).items():
                records = truth[client]
                same = recipe.target.encode(records) == records["sex"]
                for measure, value in (
                    ("share of records", len(records) / total),
                    ("mean distance to others", mean),
                    ("share with s = y", float(same.mean())),
                ):
                    found.setdefault((client, measure), []).append(value)
    claimed = {(f"client {i}", "share of records"): share / 100
               for i, share in enumerate(ADULT_SHARES)}  # fmt: skip
    rows = [mean_row("Adult", "all", DATA, "records", totals, claimed=12_300.0)]
    rows += [
        mean_row("Adult", client, DATA, measure, values, claimed.get((client, measure)))
        for (client, measure), values in found.items()
    ]
    notes = (
        adult.SOURCE.note,
        "Figure 2 is given as each client's mean of ||theta_i - theta_j|| / ||theta_j|| over j.",
        AT_INFINITY,
        "s = y (a man above 50K, a woman below): all that Algorithm 4 can say of a logistic model "
        "and a binary attribute is this, or its opposite.",
    )
    return Reproduction(rows, "adult", notes, seeds)


def draw(outcome: Reproduction, path: Path) -> None:
    """Each measure by client; a panel each."""
    rows = [replace(r, setting=r.measure, method=r.measure, measure="number") for r in outcome.rows]
    shown = replace(outcome, rows=[r for r in rows if r.client not in ("least", "greatest")])
    pictures.marks("number")(shown, path)


EXPERIMENTS = (
    Experiment("driouich2022-table4", "the fares' clients", table4, draw),
    Experiment("driouich2022-table5", "Adult's clients", table5, draw),
)
