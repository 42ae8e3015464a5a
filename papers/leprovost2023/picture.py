"""leprovost2023's figure 1, drawn from the rows."""

from __future__ import annotations

from pathlib import Path

from papers.common.rows import Reproduction

ERROR = "median absolute error of group means"
LINES = {
    "naive": ("#7f7f7f", "--", "naive: mean prediction"),
    "auxiliary_mean": ("#000000", "--", "auxiliary mean: a stranger's guess"),
    "group_means_pinv": ("#1f77b4", "-s", "pseudo-inverse (MP)"),
    "group_means_tikhonov": ("#d62728", "-o", "Tikhonov (T)"),
    "bayes_groups": ("#2ca02c", "-D", "bayes_groups (ours)"),
}


def draw(outcome: Reproduction, path: Path) -> None:
    """Median error by epoch, and the model's test loss on an axis of its own, as in the paper."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "overheard"
    figure, axes = plt.subplots(figsize=(7, 4.6), layout="constrained")
    losses = axes.twinx()
    for method, (colour, style, words) in LINES.items():
        points = sorted(
            (int(row.setting.split()[1]), row)
            for row in outcome.rows
            if row.method == method and row.measure == ERROR and row.setting != "epoch 0"
        )
        if not points:
            continue
        at = [epoch for epoch, _ in points]
        axes.plot(at, [r.measured for _, r in points], style, color=colour, label=words)
        axes.fill_between(
            at, [r.low or 0 for _, r in points], [r.high or 0 for _, r in points],
            color=colour, alpha=0.12, linewidth=0,
        )  # fmt: skip
    tests = [r for r in outcome.rows if r.measure == "test loss" and r.setting != "epoch 0"]
    epochs = [int(r.setting.split()[1]) for r in tests]
    losses.plot(epochs, [r.measured for r in tests], ":", color="#c9a400", label="test loss")
    losses.set_ylabel("test loss (dotted)", color="#8a7000")
    losses.set_ylim(bottom=0)
    axes.set(xscale="log", xlabel="epoch", ylabel="median error of the groups' mean wages, 10 $/h")
    axes.set_xticks(epochs, [str(e) for e in epochs])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)
    figure.legend(fontsize=8, frameon=False, ncols=3, loc="outside lower center")
    axes.set_title(
        "leprovost2023, figure 1, on other data: batches of 40, four groups", fontsize=10
    )
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)
