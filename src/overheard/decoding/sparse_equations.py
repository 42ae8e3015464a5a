"""Equations that few records enter each: node sums of trees, cells of tables.

Every equation is a sum over records, ``residual = sum_i difference[i, s_i] + noise``, relative to
candidate 0 (whose difference is zero). Equations that share a ``cell`` hold the same records: the
gradient and the Hessian of one leaf.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from overheard.decoding.measurement import Measurement, from_differences
from overheard.errors import FixData

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_AT_ONCE = 1 << 24  # numbers of dense rows that are held at a time


@dataclass(frozen=True)
class SparseEquations:
    """row, record: (z,) where an entry stands; difference: (z, K - 1) against candidate 0.

    residual, sd, cell: (R,) for each equation.
    """

    records: int
    candidates: int
    row: Ints
    record: Ints
    difference: Array
    residual: Array
    sd: Array
    cell: Ints

    def __post_init__(self) -> None:
        if self.difference.shape != (len(self.row), self.candidates - 1):
            raise FixData(
                f"differences of shape {self.difference.shape} for {len(self.row)} entries of "
                f"{self.candidates} candidates"
            )

    @property
    def rows(self) -> int:
        return len(self.residual)

    def fixed(self, values: Ints) -> SparseEquations:
        """What remains when some records are known: values (m,), -1 where not."""
        known = values[self.record] >= 0
        entry = np.flatnonzero(known & (values[self.record] > 0))
        taken = self.difference[entry, values[self.record[entry]] - 1]
        residual = self.residual - np.bincount(self.row[entry], taken, self.rows)
        return replace(
            self,
            row=self.row[~known],
            record=self.record[~known],
            difference=self.difference[~known],
            residual=residual,
        )

    def alike(self) -> NDArray[np.intp]:
        """(m,) equal numbers for records that enter every equation in the same way."""
        order = np.lexsort((self.row, self.record))
        keys: dict[bytes, int] = {}
        found = np.empty(self.records, dtype=np.intp)
        ends = np.cumsum(np.bincount(self.record, minlength=self.records))[:-1]
        for record, part in enumerate(np.split(order, ends)):
            key = self.row[part].tobytes() + self.difference[part].tobytes()
            found[record] = keys.setdefault(key, len(keys))
        return found

    def only(self, records: NDArray[np.bool_]) -> SparseEquations:
        """The same equations of fewer records; those left out must enter none."""
        number = np.cumsum(records) - 1
        return replace(self, records=int(records.sum()), record=number[self.record])

    def residual_at(self, values: Ints) -> Array:
        """What an answer (m,) leaves unexplained, in units of the noise (R,)."""
        return self.fixed(values).residual / self.sd

    def measurement(self) -> Measurement:
        """All equations, white and reduced: one QR of blocks of rows, never normal equations."""
        free = self.candidates - 1
        unknowns = self.records * free
        block = max(2 * unknowns, _AT_ONCE // (unknowns + 1), 1)
        upper = np.zeros((0, unknowns + 1))
        order = np.argsort(self.row, kind="stable")
        row, record, difference = self.row[order], self.record[order], self.difference[order]
        for start in range(0, self.rows, block):
            stop = min(start + block, self.rows)
            low, high = np.searchsorted(row, (start, stop))
            dense = np.zeros((stop - start, unknowns + 1))
            here = row[low:high] - start
            for k in range(free):
                np.add.at(dense, (here, record[low:high] * free + k), difference[low:high, k])
            dense[:, -1] = self.residual[start:stop]
            dense /= self.sd[start:stop, None]
            upper = np.asarray(np.linalg.qr(np.vstack([upper, dense]), mode="r"))
        white = from_differences(
            np.ascontiguousarray(upper[:, :-1].T).reshape(self.records, free, len(upper)),
            upper[:, -1],
            1.0,
        )
        # rows that the factorisation rotated away hold zeros, or the noise's last component
        return replace(white, spare_rows=self.rows - white.rank)


def joined(parts: list[SparseEquations], same_cells: bool = False) -> SparseEquations:
    """The equations of several messages about the same records, or several of the same cells."""
    first = parts[0]
    offsets = np.cumsum([0, *(p.rows for p in parts[:-1])])
    sizes = [0 if same_cells else int(p.cell.max(initial=-1)) + 1 for p in parts[:-1]]
    cells = np.cumsum([0, *sizes])
    return SparseEquations(
        first.records,
        first.candidates,
        np.concatenate([p.row + at for p, at in zip(parts, offsets, strict=True)]),
        np.concatenate([p.record for p in parts]),
        np.concatenate([p.difference for p in parts]),
        np.concatenate([p.residual for p in parts]),
        np.concatenate([p.sd for p in parts]),
        np.concatenate([p.cell + at for p, at in zip(parts, cells, strict=True)]),
    )
