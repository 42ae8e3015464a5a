"""Pictures like the papers': methods by client, lines over a size, points over a ratio."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from papers.common.rows import Reproduction, Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# colour-blind safe (Okabe and Ito), and every method has a marker of its own
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKERS = "os^Dv<>P"


def by_client(outcome: Reproduction, path: Path, label: str, measure: str = "accuracy") -> None:
    """One panel per setting: a mark per client and method, claimed numbers hollow."""
    rows = [r for r in outcome.rows if r.measure == measure]
    settings = list(dict.fromkeys(r.setting for r in rows))
    figure, axes = _panels(len(settings), height=3.6)
    for axis, setting in zip(axes, settings, strict=True):
        here = [r for r in rows if r.setting == setting]
        clients = list(dict.fromkeys(r.client for r in here))
        for i, method in enumerate(dict.fromkeys(r.method for r in here)):
            mine = [r for r in here if r.method == method]
            x = [clients.index(r.client) + 0.08 * (i - 3) for r in mine]
            axis.plot(
                x, [r.measured for r in mine], MARKERS[i % 8], color=COLOURS[i % 8], label=method
            )
            told = [(at, r.claimed) for at, r in zip(x, mine, strict=True) if r.claimed is not None]
            if told:
                axis.plot(
                    *zip(*told, strict=True), MARKERS[i % 8], mfc="none", color=COLOURS[i % 8]
                )
        for at, client in enumerate(clients):
            majority = next((r.majority for r in here if r.client == client), None)
            if majority is not None:
                axis.hlines(majority, at - 0.4, at + 0.4, color="grey", linestyles="dashed")
        axis.set_xticks(range(len(clients)), clients, rotation=30, ha="right")
        axis.set_title(f"{setting} (dashed: majority; hollow: claimed)", fontsize=9)
        axis.set_ylabel(label)
        axis.legend(fontsize=7, ncols=3)
    _save(figure, path)


def lines(
    outcome: Reproduction, path: Path, x: Callable[[Row], float], label: str, log: bool = False
) -> None:
    """One panel per setting: a line per method over ``x``, with intervals and the majority."""
    settings = list(dict.fromkeys(r.setting for r in outcome.rows))
    figure, axes = _panels(len(settings), height=3.2)
    for axis, setting in zip(axes, settings, strict=True):
        here = [r for r in outcome.rows if r.setting == setting]
        for i, method in enumerate(dict.fromkeys(r.method for r in here)):
            mine = sorted((r for r in here if r.method == method), key=x)
            at, value = [x(r) for r in mine], [r.measured for r in mine]
            axis.plot(at, value, f"{MARKERS[i % 8]}-", color=COLOURS[i % 8], label=method)
            low = [r.measured if r.low is None else r.low for r in mine]
            high = [r.measured if r.high is None else r.high for r in mine]
            axis.fill_between(at, low, high, color=COLOURS[i % 8], alpha=0.15)
        majority = sorted({(x(r), r.majority) for r in here if r.majority is not None})
        if majority:
            axis.plot(*zip(*majority, strict=True), "--", color="grey", label="majority")
        if log:
            axis.set_xscale("log")
        axis.set_title(setting, fontsize=9)
        axis.set_xlabel(label)
        axis.set_ylabel(here[0].measure)
        axis.legend(fontsize=7)
    _save(figure, path)


def scatter(
    outcome: Reproduction, path: Path, x: Callable[[Row], float], label: str, log: bool = False
) -> None:
    """A point per row."""
    figure, (axis,) = _panels(1, height=3.6)
    for i, method in enumerate(dict.fromkeys(r.method for r in outcome.rows)):
        mine = [r for r in outcome.rows if r.method == method]
        at, value = [x(r) for r in mine], [r.measured for r in mine]
        axis.plot(at, value, MARKERS[i % 8], color=COLOURS[i % 8], label=method)
    if log:
        axis.set_xscale("log")
    axis.set_xlabel(label)
    axis.set_ylabel(outcome.rows[0].measure)
    axis.legend(fontsize=7)
    _save(figure, path)


def _panels(count: int, height: float) -> tuple[Figure, list[Any]]:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(count, 1, figsize=(8, height * count), squeeze=False)
    return figure, list(axes[:, 0])


def _save(figure: Figure, path: Path) -> None:
    """Write an SVG without dates and random identifiers: the same rows, the same bytes."""
    import matplotlib as mpl
    from matplotlib import pyplot

    figure.tight_layout()
    with mpl.rc_context({"svg.hashsalt": "overheard"}):
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": "overheard"})
    pyplot.close(figure)
