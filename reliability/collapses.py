"""Is a decoder of many local steps ever surer than right, without saying so? On unseen tables.

    python reliability/collapses.py [--only NUMBER ...] [--again] [--out reliability/collapses.json]

Tables that come with scikit-learn or are generated, on which no decoder was tuned (the cells were
looked at while the decoders were being mended, and are no fresh draw): networks of 16 and 64
units, mini-batches, one and five epochs, balanced and rare secrets of two to four values. Every
yes-or-no secret is asked twice, the second time recoded from x to 1 - x. Labels unknown
(`joint_decode`) and members unknown (`candidate_decode`) are asked too.

A collapse is an answer that is surer than right by more than five points and by more than three
standard errors, and that carries no flag: a fault. A flag where the recipe is right costs the
verdict only; they are counted in words. What is done is kept beside the result, cell by cell, and
not done again without ``--again``. `unseen` asks more of other tables.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

from overheard.attacks.attribute.joint_decode import JointDecode
from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.attacks.membership.candidate_decode import CandidateDecode
from overheard.data.dataset import Dataset
from overheard.evaluation.metrics import attribute_hits
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.programs.records import Records
from overheard.transcript.knowledge import LocalTraining
from overheard.transcript.observe import MEMBER_COLUMN, observe
from overheard.transcript.store import Recording
from overheard.transcript.target import attribute, membership
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch

HERE = Path(__file__).resolve().parent
SURER, ERRORS = 0.05, 3.0
CERTAIN = 0.99
TRAINING = ("rounds", "learning_rate", "epochs", "batch_size", "optimiser")
BESIDE = 40  # records of the other client
Array = NDArray[np.float64]
Cell = dict[str, Any]
Done = dict[str, dict[str, Any]]
"""What was measured, by the number of the cell: the cell, the code and the result."""


def cells(draw: int) -> list[Cell]:
    """Every cell, in order. Draw 0 is measured; others serve whoever changes a decoder."""
    rng = np.random.default_rng([draw, 20240229])

    def one_of(*choices: Any) -> Any:
        return choices[int(rng.integers(len(choices)))]

    found: list[Cell] = []
    for number in range(18):
        cell = {
            "asked": "attribute",
            "table": one_of("breast_cancer", "wine", "diabetes", "generated", "generated"),
            "records": one_of(30, 100, 200, 300),
            "units": (16, 64)[number % 2],
            "activation": one_of("relu", "tanh"),
            "batch_size": one_of(8, 32, 64),
            "epochs": (1, 5)[number // 2 % 2],
            "rounds": one_of(2, 5, 10),
            "learning_rate": one_of(0.01, 0.03, 0.1),
            "secret": one_of("balanced", "rare", "balanced", "rare", "three", "four"),
            "seed": 1000 * (draw + 5) + number,
        }
        if cell["secret"] in ("three", "four"):  # more unknowns a record
            cell["records"] = min(cell["records"], 100)
        found += [{**cell, "recoded": False}]
        found += [{**cell, "recoded": True}] if cell["secret"] in ("balanced", "rare") else []
    for number in range(5):
        found.append(
            {
                "asked": "joint",
                "table": one_of("breast_cancer", "wine", "generated"),
                "records": one_of(30, 60, 100, 200),
                "units": (4, 16)[number % 2],
                "activation": one_of("relu", "tanh"),
                "batch_size": 0,
                "epochs": 1,
                "rounds": one_of(1, 2),
                "learning_rate": one_of(0.03, 0.1, 0.3),
                "secret": one_of("balanced", "rare"),
                "seed": 1000 * (draw + 5) + 100 + number,
                "recoded": False,
            }
        )
    for number in range(9):
        found.append(
            {
                "asked": "members",
                "table": one_of("breast_cancer", "wine", "generated"),
                "records": one_of(30, 60, 100, 200),
                "units": (16, 64)[number % 2],
                "activation": one_of("relu", "tanh"),
                "batch_size": one_of(8, 32) if number % 3 else 0,
                "epochs": (1, 5)[number // 2 % 2],
                "rounds": one_of(1, 2, 5),
                "learning_rate": one_of(0.01, 0.03, 0.1),
                "secret": one_of("balanced", "rare"),
                "seed": 1000 * (draw + 5) + 200 + number,
                "recoded": False,
            }
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
    return Dataset(
        name=cell["table"],
        records=Records({**public, "s": secret[:rows], "y": y[:rows], "at": at}),
        client="at",
        target="y",
        task="classification" if classes else "regression",
        sensitive=("s",),
        origin="scikit-learn, or generated",
        licence="none",
    ), strangers


def decoded(cell: Cell, data: Dataset, strangers: int, folder: Path) -> dict[str, Any]:
    """Accuracy, mean confidence, flag and size of the answer.

    ``told``: the learning rate that the listener believes in, in units of the true one.
    """
    training = {key: cell[key] for key in TRAINING if key in cell}
    model = {"name": "mlp", "hidden": [cell["units"]], "activation": cell["activation"]}
    config = {"seed": cell["seed"], "data": {"source": "file"}, "model": model,
              "training": training, "audit": {"membership": strangers}}  # fmt: skip
    recording = Recording.open(simulate(plan(parse_config(config), data), folder))
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
        "simulated": said.get("simulated_accuracy", said.get("rehearsed")),
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


def row(what: str, here: list[dict[str, Any]]) -> dict[str, Any]:
    """What some answers come to; a fault is one that is surer than right and says nothing."""
    flagged = [r for r in here if r["flag"]]
    mean = {key: float(np.mean([r[key] for r in here]))
            for key in ("accuracy", "confidence", "majority")}  # fmt: skip
    return {
        "what": what,
        "trials": len(here),
        "faults": sum(collapsed(r) and not r["flag"] for r in here),
        "outcome": f"accuracy {mean['accuracy']:.3f} at confidence {mean['confidence']:.3f} "
        f"(majority {mean['majority']:.3f}); {len(flagged)} flagged, "
        f"{sum(not collapsed(r) for r in flagged)} of them as sure as right",
    }


def summary(done: Done) -> dict[str, Any]:
    """The result of the cells that were measured, kind by kind."""
    made = []
    for what, asked, recoded in KINDS:
        here = [d for d in done.values() if (d["asked"], d["recoded"]) == (asked, recoded)]
        made += [row(what, [d["result"] for d in here])] if here else []
    return {
        "title": "Decoders of many local steps on tables that they were not made for",
        "command": "python reliability/collapses.py",
        "rows": made,
    }


def options(about: str, out: str) -> argparse.ArgumentParser:
    """Of this command and its sibling."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of cells")
    parser.add_argument("--again", action="store_true", help="also what is done")
    parser.add_argument("--out", type=Path, default=HERE / out)
    return parser


def measure(
    given: argparse.Namespace,
    every: list[Cell],
    made: Callable[[Cell], tuple[Dataset, int]],
    told: Callable[[Done], dict[str, Any]],
) -> None:
    """Every cell that is asked for and not done yet; ends with 1 if there is a fault."""
    kept = given.out.parent / given.out.stem / "cells.json"
    kept.parent.mkdir(exist_ok=True)
    done: Done = json.loads(kept.read_text()) if kept.exists() else {}
    for number, cell in enumerate(every):
        name = str(number)
        same = cell.items() <= done.get(name, {}).items()
        if (given.only and number not in given.only) or (same and not given.again):
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = decoded(cell, *made(cell), Path(folder) / "run")
        done[name] = {**cell, "result": found}
        kept.write_text(json.dumps(done, indent=1) + "\n")
        mark = "COLLAPSED" if collapsed(found) and not found["flag"] else ""
        print(
            f"{number}: {' '.join(str(v) for v in cell.values())}: {found['accuracy']:.3f} at "
            f"{found['confidence']:.3f} (majority {found['majority']:.3f}, simulated "
            f"{found['simulated']}, misfit {found['misfit']}) {found['flag'][:40]} {mark} "
            f"{found['seconds']:.1f} s",
            flush=True,
        )
    content = told({name: done[name] for name in map(str, range(len(every))) if name in done})
    given.out.write_text(json.dumps(content, indent=2) + "\n")
    raise SystemExit(any(line["faults"] for line in content["rows"]))


def main() -> None:
    parser = options(__doc__.split("\n")[0], "collapses.json")
    parser.add_argument("--draw", type=int, default=0)
    given = parser.parse_args()
    measure(given, cells(given.draw), dataset, summary)


if __name__ == "__main__":
    main()
