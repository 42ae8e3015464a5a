"""Local optima from mini-batch least squares by how many rounds were heard.

    python benchmarks/local_optimum_rounds.py [--seeds N]

RAND and generated tables of 5 to 80 columns; batches drawn afresh, and whole passes; everybody in
every round, and half. After 8, 9, ..., 300 rounds: the excess loss of `structured` over that of
the last returned model (below 1: better), and how often it falls back to that model. About 20
processor seconds a seed.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from overheard.attacks.local_model.structured import local_recipe
from overheard.data.dataset import Dataset
from overheard.decoding.surrogate import decode_least_squares
from overheard.evaluation.metrics import client_losses, local_optimum
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.programs.records import Records
from overheard.transcript.knowledge import Link
from overheard.transcript.observe import observe, recipe_of
from overheard.transcript.store import Recording
from overheard.transcript.target import LOCAL_MODEL
from overheard.transcript.threat import EAVESDROPPER

ROUNDS = (8, 9, 10, 12, 15, 18, 20, 22, 25, 28, 33, 40, 50, 60, 75, 100, 150, 200, 300)
BY = (0, 1, 2, 4, 8, np.inf)
CLIENTS = 4
# columns (0: RAND), batch, local steps (0: a whole pass), rate, participation
CASES = (
    (0, 64, 1, 0.05, 1.0),
    (0, 32, 0, 0.05, 1.0),
    (0, 32, 0, 0.01, 0.5),
    (0, 128, 10, 0.02, 1.0),
    (5, 140, 0, 0.05, 1.0),
    (10, 37, 0, 0.1, 0.5),
    (20, 8, 2, 0.02, 1.0),
    (30, 16, 0, 0.02, 1.0),
    (80, 32, 1, 0.05, 1.0),
)


def people(columns: int, seed: int) -> Dataset:
    """900 people of 6 clients whose columns have very different spreads."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(900, columns)) @ rng.normal(size=(columns, columns)) / np.sqrt(columns)
    y = x @ rng.normal(size=columns) + rng.normal(size=900)
    table = {f"x{j}": x[:, j] for j in range(columns)}
    records = Records({**table, "y": y, "at": np.arange(900) % 6})
    return Dataset("people", records, "at", "y", "regression", (), "generated", "none")


def ratios(case: tuple[int, int, int, float, float], seed: int) -> Iterator[tuple[float, ...]]:
    """Rounds over parameters, excess over the last returned model's, and how far it is trusted."""
    columns, batch, steps, rate, participation = case
    training = {"rounds": 300, "learning_rate": rate, "batch_size": batch, "steps": steps}
    source = "file" if columns else "randhie"
    content = {"seed": seed, "data": {"source": source}, "model": {"name": "linear"}}
    config = parse_config(content | {"training": training | {"participation": participation}})
    with tempfile.TemporaryDirectory() as folder:
        planned = plan(config, people(columns, seed) if columns else None)
        recording = Recording.open(simulate(planned, Path(folder) / "run"))
        recipe, truth = recipe_of(recording), recording.truth()
        assert recipe is not None, "the simulator always writes the recipe"
        for client in recording.clients[:CLIENTS]:
            link = observe(recording, EAVESDROPPER, LOCAL_MODEL, client).know(Link)
            records = truth[client]
            best = client_losses(recipe, local_optimum(recipe, records), records).mean()
            sent = link.sent.astype(np.float64)
            back = sent - link.updates()
            for rounds in (r for r in ROUNDS if r <= len(sent)):
                local = local_recipe(link, recipe)
                found = decode_least_squares(sent[:rounds], back[:rounds], local)
                mine = client_losses(recipe, found.estimate, records).mean() - best
                last = client_losses(recipe, back[rounds - 1], records).mean() - best
                yield rounds / sent.shape[1], mine / last, found.trusted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    seeds = parser.parse_args().seeds
    rows = np.array([row for seed in range(seeds) for case in CASES for row in ratios(case, seed)])
    print("rounds / parameters    cases   typical ratio   worst   above 1.1   fell back")
    for low, high in pairwise(BY):
        mine = rows[(rows[:, 0] >= low) & (rows[:, 0] < high)]
        typical = np.exp(np.log(np.maximum(mine[:, 1], 1e-12)).mean())
        print(
            f"{low:>8} to {high:<8} {len(mine):>8} {typical:>15.2f} {mine[:, 1].max():>7.2f} "
            f"{np.mean(mine[:, 1] > 1.1):>11.3f} {np.mean(mine[:, 2] == 0):>11.2f}"
        )


if __name__ == "__main__":
    main()
