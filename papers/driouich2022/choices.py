"""driouich2022 Tables 2 and 3: how the gradient baselines were set, and what that does.

Tables 2 and 3 give learning rates and epochs of LBFGS and Gumbel, Tables 7 and 8 the rounds that a
search over "communication rounds" and "decoding steps" chose for each client: rounds {0, step,
2 step, ..., last}.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from overheard.attacks.papers.lyu2021 import Gumbel, L2Lbfgs
from overheard.transcript.store import Recording
from overheard.transcript.view import Attack
from papers.common import pictures
from papers.common.harness import (
    Score,
    attribute_scores,
    clients_with_both,
    federation,
    recorded,
    summarise,
)
from papers.common.rows import Experiment, Progress, Reproduction, Row
from papers.data import adult, flights
from papers.driouich2022.world import (
    ADULT_CLAIMS,
    FLIGHT_MEANS,
    NOT_THEIR_FARES,
    fares,
)

LBFGS, GUMBEL = L2Lbfgs.name, Gumbel.name
CHOSEN = {
    # rounds and decoding step of clients 0 to 9
    ("flights", LBFGS): (
        "600 500 400 500 800 700 900 900 800 1000",
        "20 20 20 30 30 30 50 40 50 50",
    ),
    ("flights", GUMBEL): (
        "600 600 400 500 500 700 600 700 800 600",
        "30 30 20 30 20 20 50 40 50 30",
    ),
    ("adult", LBFGS): (
        "700 600 1000 800 700 700 900 700 900 1000",
        "20 20 30 20 40 30 30 10 10 30",
    ),
    ("adult", GUMBEL): (
        "700 600 900 900 800 700 900 800 900 1000",
        "20 30 50 40 30 20 40 20 10 30",
    ),
}
EPOCHS = 100_000
"""Tables 2 and 3's "10e4", for every client and both methods."""
LBFGS_RATE, GUMBEL_RATE = {"flights": 1.0, "adult": 0.1}, 1000.0
"""Tables 2 and 3's "10e-1", "10e-2" and "10e2"."""


def rate(source: str, method: str, client: str) -> float:
    """The paper's learning rate; client 4 of Adult has another than the rest."""
    if method == GUMBEL:
        return GUMBEL_RATE
    return 1.0 if (source, client) == ("adult", "client 4") else LBFGS_RATE[source]


def chosen(source: str, method: str, client: str) -> tuple[int, int]:
    """The paper's choice of rounds; for airlines that it did not have, the median choice."""
    last, step = ([int(n) for n in text.split()] for text in CHOSEN[source, method])
    if source == "adult":
        at = int(client.removeprefix("client "))
        return last[at], step[at]
    return int(np.median(last)), int(np.median(step))


@dataclass(frozen=True)
class World:
    """A federation of the paper's: its data, its secret and its training."""

    source: str
    secret: str
    model: str
    training: Mapping[str, Any]
    notes: tuple[str, ...]

    @contextmanager
    def recorded(self, quick: bool, seed: int) -> Iterator[tuple[Recording, list[str]]]:
        """The recording, and the clients to attack: those with both values of the secret."""
        training = {**self.training, "rounds": 300 if quick else self.training["rounds"]}
        mine = self.source == "flights"
        dataset = fares(500 if quick else 4000, seed, self.secret) if mine else None
        options = {} if mine else {"seed": seed}
        config = federation(seed, self.source, self.model, training, options)
        with recorded(config, dataset) as recording:
            yield recording, clients_with_both(recording, self.secret)[: 2 if quick else None]


WORLDS = {
    "flights": World(
        "flights",
        "direct",
        "linear",
        {"rounds": 1000, "learning_rate": 0.1, "participation": 0.5},
        (flights.SOURCE.note, NOT_THEIR_FARES),
    ),
    "adult": World(
        "adult", "sex", "logistic", {"rounds": 1000, "learning_rate": 0.1}, (adult.SOURCE.note,)
    ),
}


def as_set(source: str, epochs: int, client: str) -> dict[str, Attack]:
    """LBFGS and Gumbel as the paper set them for a client."""
    return {m: search(m, *chosen(source, m, client), epochs, rate(source, m, client))
            for m in (LBFGS, GUMBEL)}  # fmt: skip


def search(method: str, last: int, step: int, epochs: int, rate: float | None = None) -> Attack:
    """One baseline on the rounds {0, step, 2 step, ..., last}; its own rate if none is given."""
    if method == LBFGS:
        return L2Lbfgs((last,), (step,), epochs, rate)
    return Gumbel((last,), (step,), epochs, *() if rate is None else (rate,))


def settings_table(source: str, quick: bool, seeds: int, progress: Progress) -> Reproduction:
    """Tables 2 and 3: both baselines with the paper's rates and epochs, and with ours."""
    world, epochs = WORLDS[source], 60 if quick else EPOCHS
    scores: dict[str, list[Score]] = {}
    for seed in range(seeds):
        with world.recorded(quick, seed) as (recording, clients):
            for done, client in enumerate(clients):
                progress(client, seed * len(clients) + done, seeds * len(clients))
                ours = {m: search(m, *chosen(source, m, client), 60 if quick else 100)
                        for m in (LBFGS, GUMBEL)}  # fmt: skip
                for setting, attacks in (
                    (f"the paper's rates, {epochs} epochs", as_set(source, epochs, client)),
                    ("a line search, Adam at 0.3", ours),
                ):
                    scores.setdefault(setting, []).extend(
                        attribute_scores(recording, world.secret, attacks, [client], seed)
                    )
    rows: list[Row] = []
    for setting, found in scores.items():
        claimed: Mapping[tuple[str, str], float] = ADULT_CLAIMS
        if source == "flights":
            claimed = {(m, "mean"): v for m, v in FLIGHT_MEANS.items()}
        rows += summarise(setting, found, claimed)
    notes = (*world.notes, "Claimed: Table 1, which the paper made with these settings.")
    return Reproduction(rows, source, notes, seeds)


DRAW = pictures.marks(label="attribute inference accuracy")
EXPERIMENTS = tuple(
    Experiment(f"driouich2022-table{number}", words, partial(settings_table, source), DRAW)
    for number, words, source in (
        (2, "gradient baselines as set, fares", "flights"),
        (3, "gradient baselines as set, Adult", "adult"),
    )
)
