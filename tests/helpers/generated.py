"""Generated records that several tests train on."""

from __future__ import annotations

import numpy as np

from overheard.data.dataset import Dataset
from overheard.programs.records import Records


def visits(
    people: int, columns: int = 60, classes: int = 5, seed: int = 0, rare: float | None = None
) -> Dataset:
    """Binary records in classes, like check-ins: one client, whose column ``v0`` is secret.

    ``rare``: the secret is drawn on its own, with this share of ones, and not by class.
    """
    rng = np.random.default_rng(seed)
    rates = rng.beta(0.4, 1.2, (classes, columns))
    label = np.arange(people) % classes
    table = (rng.random((people, columns)) < rates[label]).astype(np.float64)
    if rare is not None:
        table[:, 0] = rng.random(people) < rare
    return Dataset(
        name="visits",
        records=Records(
            {
                "client": np.array(["a"] * people),
                "label": label.astype(np.float64),
                **{f"v{j}": table[:, j] for j in range(columns)},
            }
        ),
        client="client",
        target="label",
        task="classification",
        sensitive=("v0",),
        origin="generated",
        licence="none",
    )
