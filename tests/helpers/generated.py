"""Generated records that several tests train on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from overheard.data.dataset import Dataset
from overheard.programs.records import Records


def visits(people: int, columns: int = 60, classes: int = 5, seed: int = 0) -> Dataset:
    """Binary records in classes, like check-ins: one client, whose column ``v0`` is secret."""
    rng = np.random.default_rng(seed)
    rates = rng.beta(0.4, 1.2, (classes, columns))
    label = np.arange(people) % classes
    table = (rng.random((people, columns)) < rates[label]).astype(np.float64)
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
    )


def tumours(
    people: int, share: float = 0.5, recoded: bool = False, seed: int | None = None
) -> Dataset:
    """Records of scikit-learn: the secret is whether a tumour is among the largest, which goes
    closely with the other columns; recoded from x to 1 - x. ``seed``: of which records."""
    from sklearn.datasets import load_breast_cancer

    table, label = load_breast_cancer(return_X_y=True)
    table = (table - table.mean(axis=0)) / table.std(axis=0)
    rows = np.arange(len(label))
    rows = (rows if seed is None else np.random.default_rng(seed).permutation(rows))[:people]
    secret = (table[:, 0] > np.quantile(table[:, 0], 1 - share)).astype(np.float64)
    columns = {
        **{f"x{j}": table[rows, j] for j in range(1, 12)},
        "v0": (1 - secret if recoded else secret)[rows],
        "y": label[rows].astype(np.float64),
        "at": np.array(["a"] * people),
    }
    about = {"task": "classification", "sensitive": ("v0",)}
    return Dataset("tumours", Records(columns), "at", "y", origin="scikit-learn", **about)  # type: ignore[arg-type]


def with_columns(dataset: Dataset, about: Any = None, **columns: Any) -> Dataset:
    """The same people with other columns; ``about``: what else is other of the dataset."""
    records = Records({**dataset.records.columns, **columns})
    return replace(dataset, records=records, **about or {})


def changing(**made: Any) -> Any:
    """A change of a dataset: each of these columns is made from the columns."""

    def changed(dataset: Dataset) -> Dataset:
        old = dataset.records.columns
        return with_columns(dataset, **{name: make(old) for name, make in made.items()})

    return changed


def by_class(dataset: Dataset) -> Dataset:
    """The same people, who have the half of the label ``y`` that they are in for a class."""
    label = dataset.records["y"]
    halves = (label > np.median(label)).astype(np.float64)
    return with_columns(dataset, {"task": "classification"}, y=halves)


def write_csv(path: Path, columns: Mapping[str, Any]) -> str:
    """A table as anybody would have it; its path."""
    lists = (v.tolist() if isinstance(v, np.ndarray) else v for v in columns.values())
    rows = zip(*lists, strict=True)
    path.write_text("\n".join([",".join(columns), *(",".join(map(str, r)) for r in rows)]) + "\n")
    return str(path)
