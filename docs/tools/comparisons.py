"""Which of the committed numbers stand for an attack, and how they are set side by side.

Attacks that are compared form a `Comparison`: one experiment, one measure, the same cells of it and
in each the same repetitions for all of them. A cell is one setting and client; where the paper
prints numbers, the cells are those that it prints. What the committed files do not allow to compare
so is not shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from papers.common.harness import FEWEST, student

Content = Mapping[str, Any]
Row = Mapping[str, Any]
Cell = tuple[str, str]
MEAN = "mean"
"""The client of a row that is a mean over the others, as the papers print it."""
OVER_ALL = (MEAN, "median", "all")


@dataclass(frozen=True)
class Comparison:
    """What several attacks are measured on, and by which method's rows each is shown.

    ``claims``: False where the paper's numbers are of other data, so that they do not compare.
    """

    experiment: str
    about: str
    methods: Mapping[str, str]
    measure: str = "accuracy"
    setting: str = ""
    client: str = ""
    claims: bool = True

    def rows(self, content: Content, method: str = "") -> list[Row]:
        """The rows of this measure, setting and client; of one method or of all."""
        return [
            row
            for row in content["rows"]
            if row["measure"] == self.measure
            and method in ("", row["method"])
            and self.setting in ("", row["setting"])
            and self.client in ("", row["client"])
        ]


@dataclass(frozen=True)
class Shown:
    """An attack's numbers; ``over`` says of how many cells and repetitions they are means."""

    claimed: float | None
    measured: float
    low: float
    high: float
    majority: float | None
    over: str


def shown(comparison: Comparison, attack: str, content: Content) -> Shown | None:
    """The numbers of one attack of a comparison, on the cells and repetitions of all of them.

    None where it has fewer repetitions than the others, or too few numbers for an interval.
    """
    found = {}
    for name, method in comparison.methods.items():
        mine = {_cell(row): row for row in comparison.rows(content, method)}
        if not mine:
            raise ValueError(f"{comparison.experiment} has no row of {method!r} for {name}")
        means = {cell: row for cell, row in mine.items() if cell[1] == MEAN}
        found[name] = means or mine
    ours = list(dict.fromkeys(cell for mine in found.values() for cell in mine))
    printed = {_cell(row) for row in comparison.rows(content) if row["claimed"] is not None}
    if any(client == MEAN for _, client in ours):
        printed &= set(ours)
    cells, mine = sorted(printed) or ours, found[attack]
    there = [cell for cell in cells if cell in mine]
    for cell in there:
        repetitions = [rows[cell]["seeds"] for rows in found.values() if cell in rows]
        if mine[cell]["seeds"] < max(repetitions):
            return None
    parts = [
        row
        for row in comparison.rows(content, comparison.methods[attack])
        if (row["setting"], MEAN) in there and row["client"] not in OVER_ALL
    ]
    rows = [mine[cell] for cell in there]
    span = interval(rows, parts)
    if span is None:
        return None
    claimed = [row["claimed"] for row in rows if comparison.claims]
    majority = [row["majority"] for row in rows]
    seeds = sorted({row["seeds"] for row in rows})
    times = f"{seeds[0]} to {seeds[-1]}" if seeds[1:] else f"{seeds[0]}"
    refused = f", none in {len(cells) - len(there)} more" if len(there) < len(cells) else ""
    return Shown(
        fmean(claimed) if claimed and None not in claimed else None,
        fmean(row["measured"] for row in rows),
        *span,
        None if None in majority else fmean(majority),
        f"{len(parts) or len(there)} × {times}{refused}",
    )


def _cell(row: Row) -> Cell:
    return row["setting"], row["client"]


def interval(rows: Sequence[Row], parts: Sequence[Row] = ()) -> tuple[float, float] | None:
    """A 95% interval of the mean of the rows; ``parts``: what they are means of, if they are.

    From the repetitions where every row has them: Student's, of the mean over the rows in each
    repetition, which asks nothing of how rows depend on each other. Else the mean of the rows' own
    intervals, which is too wide rather than too narrow, whatever they depend on. Else Student's
    over the rows: how clients differ, and no other doubt.
    """
    each = list(parts or rows)
    repeated = [row.get("repetitions") or () for row in each]
    if len({len(values) for values in repeated}) == 1 and len(repeated[0]) >= FEWEST:
        means = [fmean(values) for values in zip(*repeated, strict=True)]
        if stdev(means) > 0:
            return student(means, each[0]["measure"])
    if each and all(row["low"] is not None and row["high"] is not None for row in each):
        return fmean(row["low"] for row in each), fmean(row["high"] for row in each)
    if len(each) >= FEWEST:
        return student([row["measured"] for row in each], each[0]["measure"])
    return None


def _same(*names: str) -> dict[str, str]:
    """Methods that are called as the attacks are."""
    return dict(zip(names, names, strict=True))


F1_AT_50 = {"measure": "F1", "client": "round 50"}
COMPARISONS = (
    Comparison(
        "driouich2022-table1-adult",
        "Adult, sex",
        {
            **_same("max_entropy", "l2_lbfgs", "gumbel"),
            "model_based_local": "local",
            "model_based_last_returned": "last returned",
            "model_based_global": "global",
        },
    ),
    Comparison(
        "driouich2022-table1-flights",
        "fares (not the paper's), direct",
        {"model_based_linear": "local"},
        setting="direct",
        claims=False,
    ),
    Comparison(
        "lyu2021-table3",
        "Location-30, c069",
        {**_same("cos_matching", "statistics", "random"), "public_model": "public1000"},
        setting="location30, c069",
    ),
    Comparison("lyu2021-labels", "labels unknown", _same("joint_decode")),
    Comparison(
        "lyu2021-table11",
        "Location-30, membership",
        {"gradient_variance_gmm": "gmm", **_same("candidate_decode")},
    ),
    Comparison(
        "xu2021-table1",
        "LEAF synthetic",
        _same("structured", "learned_map", "last_returned", "global_model"),
        measure="local accuracy",
    ),
    Comparison(
        "leprovost2023-fig1",
        "wages, error",
        _same(
            "bayes_groups", "group_means_pinv", "group_means_tikhonov", "naive", "auxiliary_mean"
        ),
        measure="median absolute error of group means",
        setting="epoch 5",
    ),
    Comparison(
        "kerkouche2023-fig3, fashion-10-full",
        "who holds one record, F1 at round 50",
        {"gradient_disaggregation": "BASELINE", "ols": "OLS", "ridge": "REG", "prolin": "PROLIN"},
        **F1_AT_50,
    ),
    Comparison(
        "kerkouche2023-fig3, fashion-10",
        "who holds each of 12 records, F1 at round 50",
        _same("matched_filter"),
        **F1_AT_50,
    ),
)
