"""What took long is made once, and never taken for something else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from papers.common import kept as module
from papers.common import rows
from papers.common.kept import address, kept


@dataclass(frozen=True)
class Pair:
    left: NDArray[np.float64]
    right: NDArray[np.float64]


def test_made_once_and_read_again(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> Pair:
        made.append(1)
        return Pair(np.arange(3.0), np.eye(2))

    first = kept(tmp_path / "folder", "name", Pair, make)
    again = kept(tmp_path / "folder", "name", Pair, make)
    assert len(made) == 1
    assert np.array_equal(first.left, again.left)
    assert np.array_equal(first.right, again.right)


def test_without_a_folder_it_is_made_each_time() -> None:
    made: list[int] = []

    def make() -> Pair:
        made.append(1)
        return Pair(np.zeros(1), np.zeros(1))

    kept(None, "name", Pair, make)
    kept(None, "name", Pair, make)
    assert len(made) == 2


def test_every_part_is_in_the_address() -> None:
    a, b = np.arange(4.0), np.arange(4.0).reshape(2, 2)
    parts = [(a,), (b,), (a, 1), (a, 2), (a, module), (a, rows), (a.astype(np.float32),)]
    assert len({address(one) for one in parts}) == len(parts)
    assert address((a, 1)) == address((a.copy(), 1))
