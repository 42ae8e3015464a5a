"""Is a decoder of many local steps ever surer than right, without saying so? On unseen tables.

    python -m reliability.collapses [--only NUMBER ...] [--draw 0]

Tables that come with scikit-learn or are generated, on which no decoder was tuned (the cells were
looked at while the decoders were being mended, and are no fresh draw): networks of 16 and 64
units, mini-batches, one and five epochs, balanced and rare secrets of two to four values. Every
yes-or-no secret is asked twice, the second time recoded from x to 1 - x. Labels unknown
(`joint_decode`) and members unknown (`candidate_decode`) are asked too.

A collapse is an answer that is surer than right by more than five points and by more than three
standard errors, and that carries no flag: a fault. A flag where the recipe is right costs the
verdict only; they are counted in words. What is done is kept in reliability/collapses/, cell by
cell, and not done again while it is there. `unseen` asks more of other tables.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

from benchmarks.frame import Results, Row, counted, federation, finish, options, people
from overheard.attacks.attribute.joint_decode import JointDecode
from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.attacks.membership import CandidateDecode
from overheard.data.dataset import Dataset
from overheard.evaluation.metrics import attribute_hits
from overheard.transcript.knowledge import LocalTraining
from overheard.transcript.observe import MEMBER_COLUMN, observe
from overheard.transcript.target import attribute, membership
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch

SURER, ERRORS = 0.05, 3.0
CERTAIN = 0.99
TRAINING = ("rounds", "learning_rate", "epochs", "batch_size", "optimiser")
BESIDE = 40  # records of the other client
Array = NDArray[np.float64]
Cell = dict[str, Any]


def cells(draw: int) -> list[Cell]:
    """Every cell, in order. Draw 0 is measured; others serve whoever changes a decoder."""
    rng = np.random.default_rng([draw, 20240229])

    def drawn(**kinds: Any) -> Cell:
        """One of the choices of each tuple, in order."""
        return {
            name: kind[int(rng.integers(len(kind)))] if isinstance(kind, tuple) else kind
            for name, kind in kinds.items()
        }

    found: list[Cell] = []
    for number in range(18):
        cell = drawn(
            asked="attribute",
            table=("breast_cancer", "wine", "diabetes", "generated", "generated"),
            records=(30, 100, 200, 300),
            units=(16, 64)[number % 2],
            activation=("relu", "tanh"),
            batch_size=(8, 32, 64),
            epochs=(1, 5)[number // 2 % 2],
            rounds=(2, 5, 10),
            learning_rate=(0.01, 0.03, 0.1),
            secret=("balanced", "rare", "balanced", "rare", "three", "four"),
            seed=1000 * (draw + 5) + number,
        )
        if cell["secret"] in ("three", "four"):  # more unknowns a record
            cell["records"] = min(cell["records"], 100)
        found += [{**cell, "recoded": False}]
        found += [{**cell, "recoded": True}] if cell["secret"] in ("balanced", "rare") else []
    for number in range(14):
        joint, turn = number < 5, number if number < 5 else number - 5
        found.append(
            drawn(
                asked="joint" if joint else "members",
                table=("breast_cancer", "wine", "generated"),
                records=(30, 60, 100, 200),
                units=((4, 16) if joint else (16, 64))[turn % 2],
                activation=("relu", "tanh"),
                batch_size=0 if joint or turn % 3 == 0 else (8, 32),
                epochs=1 if joint else (1, 5)[turn // 2 % 2],
                rounds=(1, 2) if joint else (1, 2, 5),
                learning_rate=(0.03, 0.1, 0.3) if joint else (0.01, 0.03, 0.1),
                secret=("balanced", "rare"),
                seed=1000 * (draw + 5) + (100 if joint else 200) + turn,
                recoded=False,
            )
        )
    return found


def table(cell: Cell, rng: np.random.Generator) -> tuple[Array, Array, bool]:
    """Inputs (n, d), labels (n,) and whether these are classes; rows in random order."""
    if cell["table"] == "generated":
        n, d = 700, int(rng.integers(6, 40))
        mix = rng.normal(size=(d, d)) / np.sqrt(d)
        x = rng.normal(size=(n, d)) @ (np.eye(d) + 0.7 * mix)
        if rng.random() < 0.5:
            x[:, d // 2 :] = x[:, d // 2 :] > 0.5
        score = x @ rng.normal(size=d) / np.sqrt(d) + rng.normal(0, 0.7, n)
        classes = cell["asked"] == "joint" or rng.random() < 0.5
        return x, ((score > 0).astype(np.float64) if classes else score), classes
    x, y = getattr(datasets, f"load_{cell['table']}")(return_X_y=True)
    order = rng.permutation(len(y))
    x, y = x[order], y[order].astype(np.float64)
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    if cell["table"] == "diabetes":
        return x, (y - y.mean()) / y.std(), False
    return x, y, True


def dataset(cell: Cell) -> tuple[Dataset, int]:
    """The table with its secret column made, in two clients; and the strangers to keep out."""
    rng = np.random.default_rng([7, cell["seed"]])
    x, y, classes = table(cell, rng)
    column = int(rng.integers(x.shape[1]))
    numbers = x[:, column] + 1e-9 * rng.normal(size=len(x))
    rank = numbers.argsort().argsort() / len(numbers)
    kinds = {"balanced": (0.5,), "rare": (0.9,), "three": (0.3, 0.7), "four": (0.25, 0.5, 0.75)}
    which = np.searchsorted(kinds[cell["secret"]], rank, side="right")
    secret: NDArray[Any] = which.astype(np.float64)
    if cell["recoded"]:
        secret = 1 - secret
    if len(kinds[cell["secret"]]) > 1:
        secret = np.array(["low", "middle", "high", "top"])[which]
    members = cell["asked"] == "members"
    mine = min(cell["records"], (len(y) - BESIDE) // (3 if members else 1))
    strangers = mine if members else 0
    rows = mine + BESIDE + 2 * strangers
    at = np.array(["a"] * (mine + strangers) + ["b"] * (BESIDE + strangers))
    public = {f"x{j}": x[:rows, j] for j in range(x.shape[1]) if j != column}
    columns = {**public, "s": secret[:rows], "y": y[:rows], "at": at}
    origin = "scikit-learn, or generated"
    return people(columns, classes, name=cell["table"], origin=origin), strangers


def decoded(cell: Cell, data: Dataset, strangers: int, folder: Path) -> dict[str, Any]:
    """Accuracy, mean confidence, flag and size of the answer.

    ``told``: the learning rate that the listener believes in, in units of the true one.
    """
    training = {key: cell[key] for key in TRAINING if key in cell}
    model = {"name": "mlp", "hidden": [cell["units"]], "activation": cell["activation"]}
    config = {"seed": cell["seed"], "data": {"source": "file"}, "model": model,
              "training": training, "audit": {"membership": strangers}}  # fmt: skip
    recording = federation(config, data, folder)
    began = time.process_time()
    if cell["asked"] == "members":
        view = observe(recording, EAVESDROPPER, membership("s"), "a")
        truth = recording.truth("Membership", "membership.s")["a"][MEMBER_COLUMN] == 1
        found = launch(CandidateDecode(), view, cell["seed"])
        sure = np.maximum(found.probabilities, 1 - found.probabilities)
        hits = np.asarray(found.choice() == truth, dtype=np.float64)
    else:
        view = observe(recording, EAVESDROPPER, attribute("s"), "a")
        recipe = view.know(LocalTraining).recipe
        rate = recipe.learning_rate * cell.get("told", 1.0)
        view = view.knowing(LocalTraining(recipe.model_copy(update={"learning_rate": rate})))
        truth = recording.truth()["a"]["s"]
        attack = JointDecode(cell["rounds"]) if cell["asked"] == "joint" else MaxEntropy()
        found = launch(attack, view, cell["seed"])
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


KINDS = (
    ("attribute, mini-batches", "attribute", False),
    ("attribute, mini-batches, recoded from x to 1 - x", "attribute", True),
    ("attribute with unknown labels, full batches", "joint", False),
    ("members, full batches and mini-batches", "members", False),
)


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


def summary(done: list[Row]) -> list[Row]:
    """The result of the cells that were measured, kind by kind."""
    kinds = {
        what: [d["result"] for d in done if (d["asked"], d["recoded"]) == (asked, recoded)]
        for what, asked, recoded in KINDS
    }
    return [row(what, here) for what, here in kinds.items() if here]


def measured(
    given: argparse.Namespace, every: list[Cell], made: Callable[[Cell], tuple[Dataset, int]]
) -> list[Row]:
    """Every cell that is done, after those that are asked for."""
    kept = Results(given.out.with_suffix("") / "cells.json", given.command)

    def result(cell: Cell) -> Row:
        with tempfile.TemporaryDirectory() as folder:
            found = decoded(cell, *made(cell), Path(folder) / "run")
        mark = "COLLAPSED" if collapsed(found) and not found["flag"] else ""
        print(f"{cell}: {found} {mark}", flush=True)
        return {**cell, "result": found}

    for number, cell in enumerate(every):
        if not cell.items() <= kept.rows.get(str(number), {}).items():
            kept.rows.pop(str(number), None)
        if number in given.only or not given.only:
            kept.row(str(number), partial(result, cell))
    return [kept.rows[name] for name in map(str, range(len(every))) if name in kept.rows]


def main() -> int:
    given = options(__doc__, __file__, only=[], draw=0)
    rows = summary(measured(given, cells(given.draw), dataset))
    return finish(given, "Decoders of many local steps on tables that they were not made for", rows)


if __name__ == "__main__":
    raise SystemExit(main())
