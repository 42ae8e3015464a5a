"""The same people in two federations: together they tell what neither tells alone.

    python examples/two_federations.py

Real people of the RAND experiment. One federation, of insurers, learns what people spend; the
other, of clinics, how they feel; 200 people are at an insurer and 200 at a clinic, 160 of them the
same. Each sends one small network after one step. Who hears both and knows who is who puts the
equations together. Prints, for each federation, how many people's ``female`` is guessed right from
its own message, from both, and by the commonest value.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from overheard import Recording, launch, parse_config, plan, simulate, threat_named
from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.attacks.together import Heard, decode_together
from overheard.data import randhie
from overheard.programs.records import Records
from overheard.transcript.guess import AttributeValues
from overheard.transcript.observe import observe
from overheard.transcript.target import attribute

PEOPLE, SHARED, UNITS = 200, 160, 2
SEEDS = (10, 11, 12)
LEFT_OUT = {"insurer": ("mhi",), "clinic": ("log_spending", "logc", "lpi", "fmde")}
"""What the models of the insurer, and of the clinic, do not see."""
LEARNED = {"insurer": "log_spending", "clinic": "mhi"}


class Result(NamedTuple):
    """Shares of a federation's people whose value is guessed right."""

    federation: str
    alone: float
    together: float
    commonest: float


def federation(name: str, rows: np.ndarray, folder: str, seed: int) -> tuple[Heard, np.ndarray]:
    """Simulate and listen: what is heard, and the truth, for scoring."""
    everybody = randhie.load()
    seen = everybody.records.take(rows).without(*(set(LEFT_OUT[name]) - {LEARNED[name]}))
    records = Records({**seen.columns, "site": np.full(len(rows), name)})
    data = replace(everybody, records=records, target=LEARNED[name], outside=None)
    config = parse_config(
        {
            "seed": seed,
            "data": {"source": "randhie"},
            "model": {"name": "mlp", "hidden": [UNITS]},
            "training": {"rounds": 1, "learning_rate": 0.05},
            "audit": {"attributes": ["female"]},
        }
    )
    recording = Recording.open(simulate(plan(config, data), f"{folder}/{name}"))
    view = observe(recording, threat_named("eavesdropper"), attribute("female"), name)
    return Heard(view, rows), np.asarray(recording.truth()[name]["female"])


def right(guess: AttributeValues, truth: np.ndarray) -> float:
    return float(np.mean(guess.choice() == truth))


def run(seed: int) -> list[Result]:
    """One draw of people: both federations, each alone and together."""
    size = len(randhie.load().records)
    drawn = np.random.default_rng(seed).permutation(size)[: 2 * PEOPLE - SHARED]
    rows = {"insurer": drawn[:PEOPLE], "clinic": drawn[-PEOPLE:]}
    with tempfile.TemporaryDirectory() as folder:
        heard = {name: federation(name, those, folder, seed) for name, those in rows.items()}
        together = decode_together([client for client, _ in heard.values()])
        found = []
        for (name, (client, truth)), both in zip(heard.items(), together, strict=True):
            alone = right(launch(MaxEntropy(), client.view, seed), truth)
            most = float(np.unique(truth, return_counts=True)[1].max() / len(truth))
            found.append(Result(name, alone, right(both, truth), most))
        return found


def main() -> int:
    for seed in SEEDS:
        for result in run(seed):
            print(
                f"seed {seed}, {result.federation}: alone {result.alone:.3f}, "
                f"together {result.together:.3f}, commonest value {result.commonest:.3f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
