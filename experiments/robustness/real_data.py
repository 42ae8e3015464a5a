"""The data of real examples: as much of what they import as they ask of it, answered from a table.

Nothing is downloaded: `datasets`, `flwr_datasets` and `torchvision` become the modules that
`write` makes. The table is REAL_APPS_TABLE, its clients in the order of Flower's partitions. Images
are rows of it, as the network sees them: transforms only shape them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

MODULES = {
    "flwr_datasets/__init__.py": f"from {__name__} import FederatedDataset",
    "flwr_datasets/partitioner.py": "def IidPartitioner(num_partitions): ...",
    "datasets.py": f"from {__name__} import load_dataset",
    "torchvision/__init__.py": "from torchvision import datasets",
    "torchvision/transforms.py": f"from {__name__} import Compose\n"
    "def ToTensor(): ...\ndef Normalize(*how): ...",
    "torchvision/datasets.py": f"from {__name__} import CIFAR10",
}


def write(folder: Path) -> Path:
    """The modules, as a folder of Python's path."""
    for name, text in MODULES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text + "\n")
    return folder


def rows_of(client: int | None) -> Any:
    """The rows of a client, or of everybody, as a frame of pandas."""
    import pandas  # type: ignore[import-untyped]  # not of the project

    table = pandas.read_csv(os.environ["REAL_APPS_TABLE"])
    names = table.pop("client")
    there = slice(None) if client is None else names == names.unique()[client]
    return table[there].reset_index(drop=True)


class Partition:
    """A client's rows, as a `datasets.Dataset`."""

    def __init__(self, kind: str, rows: Any, change: Any = None) -> None:
        self.kind, self.rows, self.change = kind, rows, change

    def with_format(self, kind: str) -> Partition:
        return self

    set_format = with_format

    def with_transform(self, change: Any) -> Partition:
        return Partition(self.kind, self.rows, change)

    def train_test_split(self, test_size: float, seed: int) -> Split:
        order = np.random.default_rng(seed).permutation(len(self))
        held = int(np.ceil(len(self) * test_size))
        parts = {"test": order[:held], "train": order[held:]}
        return Split({name: Partition(self.kind, self.rows.iloc[p]) for name, p in parts.items()})

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, key: Any) -> Any:
        if "higgs" not in self.kind and isinstance(key, slice):
            return self.rows.copy()
        inputs, labels = self.rows.drop(columns="label").to_numpy(), self.rows["label"].to_numpy()
        if isinstance(key, slice):
            return {"inputs": inputs, "label": labels}
        one = self.change({"img": [inputs[key]], "label": [int(labels[key])]})
        return {name: values[0] for name, values in one.items()}


class Split(dict[str, Partition]):
    """Its parts, as a `datasets.DatasetDict`."""

    def with_transform(self, change: Any) -> Split:
        return Split({name: part.with_transform(change) for name, part in self.items()})


class FederatedDataset:
    def __init__(self, dataset: str, partitioners: Any) -> None:
        self.kind = dataset

    def load_partition(self, number: int, split: str = "train") -> Partition:
        return Partition(self.kind, rows_of(number))


def load_dataset(name: str, split: str) -> Any:
    """Whose ``with_format`` is for the server's own evaluation."""
    return Partition(name, rows_of(0))


class Compose:
    """Of a row of numbers the tensor of an image."""

    def __init__(self, _: Any) -> None: ...

    def __call__(self, row: Any) -> Any:
        import torch

        return torch.tensor(row, dtype=torch.float32).reshape(3, 32, 32)


class CIFAR10:
    """Every site has the same images, as in the example."""

    def __init__(self, root: str, train: bool, download: bool, transform: Any) -> None:
        rows = rows_of(0)
        self.labels = rows.pop("label").tolist()
        self.images = [transform(row) for row in rows.to_numpy()]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, key: int) -> tuple[Any, int]:
        return self.images[key], self.labels[key]
