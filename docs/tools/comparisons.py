"""Which of the committed numbers stand for an attack, and how they are set side by side.

Attacks that are compared form a `Comparison`: one experiment, one measure, the same cells of it and
in each the same repetitions for all of them. A cell is one setting and client; where the paper
prints numbers, the cells are those that it prints. What the committed files do not allow to compare
so is not shown, and `Shown.missing` says which run would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t

Content = Mapping[str, Any]
Row = Mapping[str, Any]
Cell = tuple[str, str]
MEAN = "mean"
"""The client of a row that is a mean over the others, as the papers print it."""
OVER_ALL = (MEAN, "median", "all")
SHARES = ("accuracy", "F1")
FEWEST = 3
"""So many numbers have a spread that an interval can be made of."""


@dataclass(frozen=True)
class Comparison:
    """What several attacks are measured on, and by which method's rows each is shown.

    ``claims``: False where the paper's numbers are of other data, so that they do not compare.
    ``run``: the command that measures everything again with the same repetitions for all, where the
    committed rows do not have them.
    """

    experiment: str
    about: str
    methods: Mapping[str, str]
    measure: str = "accuracy"
    setting: str = ""
    client: str = ""
    claims: bool = True
    run: str = ""


@dataclass(frozen=True)
class Shown:
    """An attack's numbers; ``missing`` says why there are none."""

    claimed: float | None = None
    measured: float | None = None
    low: float | None = None
    high: float | None = None
    majority: float | None = None
    over: str = ""
    missing: str = ""


def shown(comparison: Comparison, attack: str, content: Content | None) -> Shown:
    """The numbers of one attack of a comparison, on the cells and repetitions of all of them."""
    if content is None:
        return Shown(missing="nothing is committed")
    rows = {name: _rows(comparison, name, content) for name in comparison.methods}
    mine, cells = rows[attack], _cells(comparison, rows, content)
    there = [cell for cell in cells if cell in mine]
    fewer = [cell for cell in there if mine[cell]["seeds"] < _repetitions(rows, cell)]
    if fewer:
        n, most = mine[fewer[0]]["seeds"], _repetitions(rows, fewer[0])
        return Shown(missing=f"{n} of the {most} repetitions that the others have")
    span = interval([mine[cell] for cell in there], _parts(comparison, attack, there, content))
    if span is None:
        return Shown(missing=f"an interval cannot be made of {len(there)} number(s)")
    claimed = [mine[c]["claimed"] for c in there] if comparison.claims else []
    majority = [mine[cell]["majority"] for cell in there]
    return Shown(
        fmean(claimed) if claimed and None not in claimed else None,
        fmean(mine[cell]["measured"] for cell in there),
        *span,
        None if None in majority else fmean(majority),
        _over(cells, there, mine, _parts(comparison, attack, there, content)),
    )


def _rows(comparison: Comparison, attack: str, content: Content) -> dict[Cell, Row]:
    """An attack's rows by cell; where there are means over clients, these alone."""
    method = comparison.methods[attack]
    found = {
        (row["setting"], row["client"]): row
        for row in content["rows"]
        if (row["method"], row["measure"]) == (method, comparison.measure)
        and comparison.setting in ("", row["setting"])
        and comparison.client in ("", row["client"])
    }
    if not found:
        raise ValueError(
            f"{comparison.experiment} has no row of {method!r} for {attack}; mend "
            "docs/tools/comparisons.py"
        )
    means = {cell: row for cell, row in found.items() if cell[1] == MEAN}
    return means or found


def _cells(
    comparison: Comparison, rows: Mapping[str, Mapping[Cell, Row]], content: Content
) -> list[Cell]:
    """The cells that the paper prints for any method of the experiment; if none, all of ours."""
    ours = list(dict.fromkeys(cell for mine in rows.values() for cell in mine))
    printed = {
        (row["setting"], row["client"])
        for row in content["rows"]
        if row["claimed"] is not None and row["measure"] == comparison.measure
    }
    wanted = {
        cell
        for cell in printed
        if comparison.setting in ("", cell[0]) and comparison.client in ("", cell[1])
    }
    if any(cell[1] == MEAN for cell in ours):
        return [cell for cell in ours if cell in wanted] or ours
    return sorted(wanted) or ours


def _repetitions(rows: Mapping[str, Mapping[Cell, Row]], cell: Cell) -> int:
    return max(mine[cell]["seeds"] for mine in rows.values() if cell in mine)


def _parts(
    comparison: Comparison, attack: str, cells: Sequence[Cell], content: Content
) -> list[Row]:
    """The rows that the means are means of: every client in the same settings."""
    method = comparison.methods[attack]
    settings = {setting for setting, client in cells if client == MEAN}
    return [
        row
        for row in content["rows"]
        if (row["method"], row["measure"]) == (method, comparison.measure)
        and row["setting"] in settings
        and row["client"] not in OVER_ALL
    ]


def interval(rows: Sequence[Row], parts: Sequence[Row] = ()) -> tuple[float, float] | None:
    """A 95% interval of the mean of the rows; ``parts``: what they are means of, if they are.

    From the repetitions where every row has them: Student's, of the mean over the rows in each
    repetition, which asks nothing of how rows depend on each other. Else the mean of the rows' own
    intervals, which is too wide rather than too narrow, whatever they depend on. Else Student's
    over the rows: how clients differ, and no other doubt.
    """
    each = list(parts or rows)
    if not each:
        return None
    measure = each[0]["measure"]
    repeated = [row.get("repetitions") or () for row in each]
    if len({len(values) for values in repeated}) == 1 and len(repeated[0]) >= FEWEST:
        means = [fmean(values) for values in zip(*repeated, strict=True)]
        if stdev(means) > 0:
            return student(means, measure)
    if all(row["low"] is not None and row["high"] is not None for row in each):
        return fmean(row["low"] for row in each), fmean(row["high"] for row in each)
    if len(each) >= FEWEST:
        return student([row["measured"] for row in each], measure)
    return None


def student(values: Sequence[float], measure: str) -> tuple[float, float]:
    """Student's 95% interval of a mean; it ends where the measure does."""
    mean, n = fmean(values), len(values)
    reach = float(t.ppf(0.975, n - 1)) * stdev(values) / sqrt(n)
    most = 1.0 if any(share in measure for share in SHARES) else float("inf")
    return max(mean - reach, 0.0), min(mean + reach, most)


def _over(
    cells: Sequence[Cell], there: Sequence[Cell], mine: Mapping[Cell, Row], parts: Sequence[Row]
) -> str:
    """Over how much it is a mean, and where the attack gave no answer."""
    seeds = sorted({mine[cell]["seeds"] for cell in there})
    count = len(parts) or len(there)
    times = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    refused = f", none in {len(cells) - len(there)} more" if len(there) < len(cells) else ""
    return f"{count} × {times}{refused}"


COMPARISONS = (
    Comparison(
        "driouich2022-table1-adult",
        "Adult, sex",
        {
            "max_entropy": "max_entropy",
            "model_based_local": "local",
            "model_based_last_returned": "last returned",
            "model_based_global": "global",
            "l2_lbfgs": "l2_lbfgs",
            "gumbel": "gumbel",
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
        {
            "cos_matching": "cos_matching",
            "statistics": "statistics",
            "public_model": "public1000",
            "random": "random",
        },
        setting="location30, c069",
        run="overheard reproduce lyu2021-table3 --seeds 3",
    ),
    Comparison(
        "lyu2021-labels",
        "labels unknown",
        {"joint_decode": "joint_decode"},
    ),
    Comparison(
        "lyu2021-table11",
        "Location-30, membership",
        {"gradient_variance_gmm": "gmm", "candidate_decode": "candidate_decode"},
    ),
    Comparison(
        "xu2021-table1",
        "LEAF synthetic",
        {
            name: name for name in ("structured", "learned_map", "last_returned", "global_model")
        },
        measure="local accuracy",
        run="overheard reproduce xu2021-table1 --seeds 5",
    ),
    Comparison(
        "leprovost2023-fig1",
        "wages, error",
        {
            name: name
            for name in (
                "bayes_groups",
                "group_means_pinv",
                "group_means_tikhonov",
                "naive",
                "auxiliary_mean",
            )
        },
        measure="median absolute error of group means",
        setting="epoch 5",
    ),
    Comparison(
        "kerkouche2023-fig3, fashion-10-full",
        "who holds one record, F1 at round 50",
        {
            "gradient_disaggregation": "BASELINE",
            "ols": "OLS",
            "ridge": "REG",
            "prolin": "PROLIN",
        },
        measure="F1",
        client="round 50",
        run="overheard reproduce kerkouche2023-fig3 --seeds 3 --dataset fashion --size 10 "
        "--rounds 100 --shadows 12000",
    ),
    Comparison(
        "kerkouche2023-fig3, fashion-10",
        "who holds each of 12 records, F1 at round 50",
        {"matched_filter": "matched_filter"},
        measure="F1",
        client="round 50",
    ),
)  # fmt: skip


def comparison_of(attack: str) -> Comparison | None:
    """The comparison in which an attack is shown."""
    return next((c for c in COMPARISONS if attack in c.methods), None)
