"""kerkouche2023's figures, drawn from their rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from papers.common import pictures
from papers.common.harness import GIVEN
from papers.common.rows import Reproduction, Row


def draw_f1(outcome: Reproduction, path: Path) -> None:
    """F1 against the round, a panel for each setting."""
    rows = tuple(r for r in outcome.rows if r.measure == "F1")
    pictures.lines(replace(outcome, rows=rows), path, _round, "round")


def draw_overlap(outcome: Reproduction, path: Path) -> None:
    """OVL, or the norm, against the round."""
    wanted = "norm" if outcome.name.endswith("fig6") else "OVL"
    rows = tuple(r for r in outcome.rows if r.measure == wanted)
    pictures.lines(replace(outcome, rows=rows), path, _round, "round")


def draw_features(outcome: Reproduction, path: Path) -> None:
    """The mean feature with its standard deviation, with and without the property."""
    spread = {
        (r.client, r.method): r.measured for r in outcome.rows if r.measure == "standard deviation"
    }
    rows = tuple(
        replace(
            r,
            low=r.measured - spread[r.client, r.method],
            high=r.measured + spread[r.client, r.method],
        )
        for r in outcome.rows
        if r.measure == "mean feature"
    )
    pictures.lines(replace(outcome, rows=rows), path, _round, "round")


def draw_cost(outcome: Reproduction, path: Path) -> None:
    """Seconds by method."""
    rows = tuple(r for r in outcome.rows if r.measure == "CPU seconds")
    pictures.by_client(replace(outcome, rows=rows), path, "CPU seconds a round", "CPU seconds")


def draw_reliability(outcome: Reproduction, path: Path) -> None:
    """The share that had the property against the probability given."""
    given = {(r.setting, r.client): r.measured for r in outcome.rows if r.measure == GIVEN}
    rows = tuple(r for r in outcome.rows if r.measure == "reliability")
    pictures.lines(replace(outcome, rows=rows), path, lambda r: given[r.setting, r.client], "given")


def _round(row: Row) -> float:
    return float(row.client.split()[1])
