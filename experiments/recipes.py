"""What was found of every recipe: the table of docs/your-federation.md.

``python -m experiments.recipes expected RECIPE OUT`` writes down what `run.sh OUT` found, as
examples/recipes/RECIPE/expected.json, from which the table is made. Tests hold new runs against it.
``python -m experiments.recipes init OUT [RECIPE ...]`` records each (what is in OUT stays) and
audits it by the description that `overheard init` alone writes, and writes init.json: what was
found, in how many minutes of processor time, and which keys are ``off``: not as in the recipe's
own description, from which `init` is told the table, its columns and a torch module's name.
"""

from __future__ import annotations

import json
import os
import re
import subprocess  # nosec B404  # the recipes' own scripts
import sys
import tomllib
from pathlib import Path
from typing import Any

from experiments.pages import ROOT, table
from experiments.robustness.real_apps import flat

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
        found[str(file.parent.relative_to(out))] = {
            "secret": row.attribute,
            "attack": row.attack,
            "value": round(row.value, 3),
            "interval": [round(row.low, 3), round(row.high, 3)],
            "majority": round(row.majority or 0.0, 3),
            "n": row.n,
            "rounds": record.run.rounds,
            "replays": [r.outcome for r in record.replays],
        } | ({"flag": row.flag} if row.flag else {})
    return found


def recipe_table() -> str:
    """Every recipe that was run, and what its runs found."""
    lines = []
    for recipe, folders in ROWS.items():
        for folder in folders:
            run = (RECIPES / folder / "run.sh").read_text("utf-8")
            how = next(words for file, words in FRAMEWORKS.items() if file in run)
            ours = json.loads((RECIPES / folder / "init.json").read_text())
            for name, one in json.loads((RECIPES / folder / "expected.json").read_text()).items():
                inside = f" {name.removesuffix('/audit')}" if "/" in name else ""
                low, high = (f"{100 * end:.0f}" for end in one["interval"])
                right = f"{100 * one['value']:.0f}% ({low}–{high}) of {one['n']}"
                found = ours.get("not") or f"{100 * ours[name]['value']:.0f}%"
                found = "not measured" if "flag" in ours.get(name, {}) else found
                if "minutes" in ours.get(name, {}):
                    found += f" in {ours[name]['minutes']} minutes"
                    found += "".join(f"; not {key}" for key in ours[name]["off"])
                majority = f"{100 * one['majority']:.0f}%"
                lines.append([recipe, f"`{folder}`{inside}, {how}", right, found, majority])
    return table(["recipe", "run", "inferred correctly", "by `init` alone", "majority"], lines)


AUDIT = re.compile(r'overheard audit "(\S+)/run" --with "\S+/(\w+\.toml)"')


def alone(folder: Path, out: Path) -> dict[str, Any]:
    """What its audits find where `overheard init` wrote the description; else why it wrote none."""
    lines = (folder / "run.sh").read_text("utf-8").splitlines()

    def ran(*begins: str) -> str:
        text = "\n".join(AUDIT.sub(described, line) for line in lines if line.startswith(begins))
        words = ["sh", "-c", text, str(folder / "run.sh"), str(out)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)  # nosec B603 B607
        return done.stderr.strip().splitlines()[-1] if done.returncode else ""

    def described(found: re.Match[str]) -> str:
        run, own = f'"{found[1]}/run"', tomllib.loads((folder / found[2]).read_text("utf-8"))
        data, factory = own["data"], own["model"].get("factory")
        words = [f"--{key} {data[key]}" for key in ("client", "target")]
        words += [f"--drop {column}" for column in data.get("drop", ())]
        words += [f"--secret {column}" for column in own["audit"]["attributes"]]
        words += [f"--trust-code --model {factory}"] if factory else []
        told = f'--data "{found[1]}/{data["path"]}" {" ".join(words)}'
        file = f"{run}/audit.toml"
        return f"rm -f {file}; overheard init {run} {told} && overheard audit {run} --with {file}"

    failed = "" if (out / "run").exists() else ran("set", "OUT", "python", "cp")
    began = os.times().children_user
    if failed := failed or ran("set", "OUT", "overheard"):
        return {"not": failed.replace(str(out), "OUT")}
    found = figures(out)
    minutes = round((os.times().children_user - began) / 60 / len(found), 1)
    for place, name in AUDIT.findall("\n".join(lines)):
        run = Path(place.replace("$OUT", str(out))) / "run" / "audit.toml"
        own, ours = (flat(tomllib.loads(f.read_text("utf-8"))) for f in (folder / name, run))
        own = {k: v for k, v in own.items() if k != "data.path" and "sent_names" not in k}
        off = [k for k, v in own.items() if not _same(ours.get(k), v)]
        found[str(Path(place, "audit").relative_to("$OUT"))] |= {"minutes": minutes, "off": off}
    return found


def _same(one: Any, other: Any) -> bool:
    numbers = isinstance(one, float) and isinstance(other, float)
    return abs(one - other) <= 0.1 * abs(other) if numbers else bool(one == other)


TABLES = {"recipes": recipe_table}

if __name__ == "__main__":
    kind, *words = sys.argv[1:]
    if kind == "expected":
        made = {words[0]: figures(Path(words[1]))}
    else:
        place = Path(words[0]).resolve()
        names = words[1:] or [folder for folders in ROWS.values() for folder in folders]
        made = {name: alone(RECIPES / name, place / name) for name in names}
    for name, found in made.items():
        (RECIPES / name / f"{kind}.json").write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    print(recipe_table())
