"""What was found of every recipe: the table of docs/your-federation.md.

``python -m experiments.recipes RECIPE OUT expected`` writes down what `run.sh OUT` found, as
examples/recipes/RECIPE/expected.json, from which the table is made. Tests hold new
runs against it. With the word `init`: what such audits find by a description that `overheard
init` alone wrote, as init.json; of a recipe for which it wrote none that file says so.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from experiments.pages import ROOT, table

RECIPES = ROOT / "examples" / "recipes"


ROWS = {
    "small CNN, SGD with momentum, batches of 32": ("cnn", "hello_pt"),
    "tabular network, Adam, batches of 32, scaled by each client": ("tabular",),
    "network with LayerNorm, Adam, batches of 32": ("norm",),
    "XGBoost, bagging and cyclic": ("boosted_trees",),
    "frozen backbone, trained head, Adam": ("frozen",),
    "scikit-learn's SGDClassifier": ("sgd_classifier",),
    "GLM by Newton's method": ("newton",),
    "ridge regression, scikit-learn's SGDRegressor": ("ridge",),
    "Kaplan and Meier's curve from counts": ("survival",),
    "statistics of single columns": ("column_statistics",),
    "network under secure aggregation (SecAgg+)": ("secure_sum",),
    "network with clipped updates and central DP": ("clipped",),
}
"""What was run, and the folders that it is in."""

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
    """Every recipe that was run, and what its runs found."""
    lines = []
    for recipe, folders in ROWS.items():
        for folder in folders:
            run = (RECIPES / folder / "run.sh").read_text("utf-8")
            how = next(words for file, words in FRAMEWORKS.items() if file in run)
            alone = json.loads((RECIPES / folder / "init.json").read_text())
            for name, one in json.loads((RECIPES / folder / "expected.json").read_text()).items():
                inside = f" {name.removesuffix('/audit')}" if "/" in name else ""
                low, high = (f"{100 * end:.0f}" for end in one["interval"])
                right = f"{100 * one['value']:.0f}% ({low}–{high}) of {one['n']}"
                found = alone.get("not") or f"{100 * alone[name]['value']:.0f}%"
                majority = f"{100 * one['majority']:.0f}%"
                lines.append([recipe, f"`{folder}`{inside}, {how}", right, found, majority])
    return table(["recipe", "run", "inferred correctly", "by `init` alone", "majority"], lines)


TABLES = {"recipes": recipe_table}

if __name__ == "__main__":
    _, recipe, out, kind = sys.argv
    found = json.dumps(figures(Path(out)), indent=1)
    (RECIPES / recipe / f"{kind}.json").write_text(found + "\n", "utf-8")
