"""What was found of every recipe: the table of docs/recipes.md.

``python -m experiments.recipes RECIPE OUT`` writes down what `run.sh OUT` found, as
examples/recipes/RECIPE/expected.json, from which the table is made. Tests hold new
runs against it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

from experiments.pages import ROOT, table

RECIPES = ROOT / "examples" / "recipes"


class Row(NamedTuple):
    """A recipe, its folders (none: not yet), what may be asked of it, and what is to be known."""

    recipe: str
    folders: tuple[str, ...]
    asked: str
    known: str


ALL = "attribute"
ROWS = (
    Row("small CNN, SGD with momentum, batches of 32", ("cnn", "hello_pt"), ALL, ""),
    Row("tabular network, Adam, batches of 32, scaled by each client", ("tabular",), ALL, ""),
    Row("network with LayerNorm, Adam, batches of 32", ("norm",), ALL,
        "BatchNorm: its running means are left out; decoded of full batches"),
    Row("U-Net-like segmentation", (), "", "later"),
    Row("XGBoost, bagging and cyclic", ("boosted_trees",), ALL,
        "cyclic: by the order of the sites, which the server draws, more or less"),
    Row("LoRA on a small transformer, AdamW", (), "", "later"),
    Row("frozen backbone, trained head, Adam", ("frozen",), ALL,
        "the backbone's weights come from the app's own code"),
    Row("scikit-learn's SGDClassifier", ("sgd_classifier",), f"{ALL}, local model", ""),
    Row("GLM by Newton's method", ("newton",), ALL, ""),
    Row("ridge regression, scikit-learn's SGDRegressor", ("ridge",), f"{ALL}, local model", ""),
    Row("Kaplan and Meier's curve from counts; statistics", ("survival", "column_statistics"), ALL,
        "of a column by itself one learns how many, and not who"),
    Row("network under secure aggregation (SecAgg+)", ("secure_sum",), ALL,
        "of the sum; sites of equal size"),
    Row("network with clipped updates and central DP", ("clipped",), ALL,
        "the clipping norm is stated in audit.toml"),
    Row("vertical", (), "", "later"),
)  # fmt: skip
FRAMEWORKS = {"flower.py": "Flower", "job.py": "FLARE", "loop.py": "plain loop"}


def figures(out: Path) -> dict[str, Any]:
    """Of every audit below a run's folder: the attack on the first secret that listens."""
    from overheard.attacks import attack_named, listens
    from overheard.evaluation.record import read_audit

    found = {}
    for file in sorted(out.rglob("audit.json")):
        record = read_audit(file)
        row = next(r for r in record.pooled if listens(attack_named(r.attack)))
        assert not row.flag, (str(file), row.flag)
        found[str(file.parent.relative_to(out))] = {
            "secret": row.attribute,
            "attack": row.attack,
            "value": round(row.value, 3),
            "interval": [round(row.low, 3), round(row.high, 3)],
            "majority": round(row.majority or 0.0, 3),
            "n": row.n,
            "rounds": record.run.rounds,
            "replays": [r.outcome for r in record.replays],
        }
    return found


def recipe_table() -> str:
    """Every recipe, and what its runs found."""
    lines = []
    for number, row in enumerate(ROWS, 1):
        cells = [str(number), row.recipe, "", row.asked, "", "", row.known]
        if not row.folders:
            lines.append(cells)
        for folder in row.folders:
            run = (RECIPES / folder / "run.sh").read_text("utf-8")
            how = next(words for file, words in FRAMEWORKS.items() if file in run)
            for name, one in json.loads((RECIPES / folder / "expected.json").read_text()).items():
                inside = f" {name.removesuffix('/audit')}" if "/" in name else ""
                low, high = (f"{100 * end:.0f}" for end in one["interval"])
                right = f"{100 * one['value']:.0f}% ({low}–{high}) of {one['n']}"
                found = (right, f"{100 * one['majority']:.0f}%")
                ran = f"`{folder}`{inside}, {how}"
                lines.append([*cells[:2], ran, row.asked, *found, row.known])
    return table(["", "recipe", "run", "ask", "right", "commonest value", "remarks"], lines)


TABLES = {"recipes": recipe_table}

if __name__ == "__main__":
    _, recipe, out = sys.argv
    found = json.dumps(figures(Path(out)), indent=1)
    (RECIPES / recipe / "expected.json").write_text(found + "\n", "utf-8")
