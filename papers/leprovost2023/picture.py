"""leprovost2023's figure 1, drawn from the rows."""

from __future__ import annotations

from pathlib import Path

from overheard.plot import Axis, Panel, Series, figure
from papers.common.rows import Reproduction

ERROR = "median absolute error of group means"
LINES = {
    "naive": ("#7f7f7f", "dashed", None, "naive: mean prediction"),
    "auxiliary_mean": ("#000000", "dashed", None, "auxiliary mean: a stranger's guess"),
    "group_means_pinv": ("#1f77b4", "solid", 1, "pseudo-inverse (MP)"),
    "group_means_tikhonov": ("#d62728", "solid", 0, "Tikhonov (T)"),
    "bayes_groups": ("#2ca02c", "solid", 3, "bayes_groups (ours)"),
}


def draw(outcome: Reproduction, path: Path) -> None:
    """Median error by epoch; under it the model's test loss, which the paper has in the same."""
    errors = []
    for method, (colour, line, mark, words) in LINES.items():
        points = sorted(
            (int(row.setting.split()[1]), row)
            for row in outcome.rows
            if row.method == method and row.measure == ERROR and row.setting != "epoch 0"
        )
        if points:
            rows = [row for _, row in points]
            errors.append(
                Series(
                    [epoch for epoch, _ in points],
                    [row.measured for row in rows],
                    words,
                    colour,
                    line,
                    mark,
                    low=[row.low or 0 for row in rows],
                    high=[row.high or 0 for row in rows],
                )
            )
    tests = [r for r in outcome.rows if r.measure == "test loss" and r.setting != "epoch 0"]
    epochs = [int(r.setting.split()[1]) for r in tests]
    loss = Series(epochs, [r.measured for r in tests], "test loss", "#8a7000", "dotted")
    x = Axis("epoch", log=True, ticks=[(epoch, str(epoch)) for epoch in epochs])
    title = "leprovost2023, figure 1, on other data: batches of 40, four groups"
    panels = [
        Panel(errors, x, Axis("median error of mean wages, 10 $/h", least=0)),
        Panel([loss], x, Axis("test loss", least=0)),
    ]
    path.write_text(figure(panels, title, size=(560, 230)), encoding="utf-8")
