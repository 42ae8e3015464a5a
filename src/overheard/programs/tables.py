"""Which tables does a client release, and how? What an adversary is assumed to know, as data."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from overheard.programs.program import SummedSettings
from overheard.programs.records import Spec

Columns = Annotated[tuple[str, ...], Field(max_length=4)]


class Table(Spec):
    """One table, ``by`` up to four columns (none: everybody together).

    ``count``: records in each cell. ``sum``, ``mean``, ``variance`` (with its mean; divided by the
    records less one): of the column ``of``.
    """

    kind: Literal["count", "sum", "mean", "variance"] = "count"
    by: Columns = ()
    of: str = ""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.whole == bool(self.of):
            raise ValueError(f"kind {self.kind!r}: `of` is for sums, means and variances")
        if len(set(self.by)) < len(self.by):
            raise ValueError("no column may stand twice in `by`")
        return self

    @property
    def whole(self) -> bool:
        """Whether it holds counts."""
        return self.kind == "count"

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(c for c in (*self.by, self.of) if c)


class StatisticsSettings(SummedSettings):
    """``tables``; ``bins``: where numbers are cut that tables are made by (a histogram is a count
    by such a column).

    Against readers: counts from 1 to below ``suppress`` are not released, nor sums and means of so
    few, nor counts of 0 where ``zeros`` is false; counts are rounded to multiples of ``round_to``,
    other numbers to ``decimals``; or all carry ``noise``.

    The arrays of table k are "k.counts" or "k.numbers", and "k.shown"; of recorded messages a
    table may be in some rounds only, and everything in it is shown unless it says otherwise."""

    name: Literal["statistics"] = "statistics"
    tables: tuple[Table, ...] = Field(min_length=1, max_length=100)
    bins: dict[str, tuple[float, ...]] = {}
    suppress: int = Field(default=0, ge=0, le=1000)
    zeros: bool = True
    round_to: int = Field(default=1, ge=1, le=1000)
    decimals: int | None = Field(default=None, ge=0, le=15)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if self.noise and (not self.sums or self.suppress or self.round_to > 1):
            raise ValueError("noise is on plain sums: leave means, variances and the others out")
        if 0 < self.suppress <= (self.round_to - 1) // 2 or not (self.zeros or self.suppress):
            raise ValueError(
                f"suppress = {self.suppress} hides nothing that round_to = {self.round_to} shows; "
                "give a larger one, or leave it out"
            )
        for column, edges in self.bins.items():
            if list(edges) != sorted(set(edges)) or not edges:
                raise ValueError(f"bins of {column!r} must increase, at least one")
        return self

    @property
    def sums(self) -> bool:
        """Whether every table is plain sums over records."""
        return not {table.kind for table in self.tables} & {"mean", "variance"}
