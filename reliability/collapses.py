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
not done again unless the code of the decoders changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn import datasets

import overheard
from overheard.attacks.attribute.joint_decode import JointDecode
from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.attacks.membership.candidate_decode import CandidateDecode
from overheard.data.dataset import Dataset
from overheard.evaluation.metrics import attribute_hits
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.programs.records import Records
from overheard.transcript.observe import MEMBER_COLUMN, observe
from overheard.transcript.store import Recording
from overheard.transcript.target import attribute, membership
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch

HERE = Path(__file__).resolve().parent
CODE = "attacks/attribute attacks/membership attacks/rehearsal.py decoding programs"
"""What of the package the results depend on."""
SURER, ERRORS = 0.05, 3.0
BESIDE = 40  # records of the other client
Array = NDArray[np.float64]
Cell = dict[str, Any]


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


def decoded(cell: Cell, folder: Path) -> dict[str, Any]:
    """Accuracy, mean confidence, flag and size of the answer."""
    data, strangers = dataset(cell)
    training = {key: cell[key] for key in ("rounds", "learning_rate", "epochs", "batch_size")}
    model = {"name": "mlp", "hidden": [cell["units"]], "activation": cell["activation"]}
    config = {"seed": cell["seed"], "data": {"source": "file"}, "model": model,
              "training": training, "audit": {"membership": strangers}}  # fmt: skip
    recording = Recording.open(simulate(plan(parse_config(config), data), folder))
    if cell["asked"] == "members":
        view = observe(recording, EAVESDROPPER, membership("s"), "a")
        truth = recording.truth("Membership", "membership.s")["a"][MEMBER_COLUMN] == 1
        found = launch(CandidateDecode(), view, cell["seed"])
        sure = np.maximum(found.probabilities, 1 - found.probabilities)
        hits = np.asarray(found.choice() == truth, dtype=np.float64)
    else:
        view = observe(recording, EAVESDROPPER, attribute("s"), "a")
        truth = recording.truth()["a"]["s"]
        attack = JointDecode(cell["rounds"]) if cell["asked"] == "joint" else MaxEntropy()
        found = launch(attack, view, cell["seed"])
        sure = found.probabilities.max(axis=1)
        hits = attribute_hits(found, truth)
    _, counts = np.unique(truth, return_counts=True)
    return {
        "n": len(hits),
        "accuracy": float(hits.mean()),
        "confidence": float(sure.mean()),
        "promised": float((sure * (1 - sure)).sum()) / len(hits) ** 2,
        "majority": float(counts.max() / counts.sum()),
        "flag": str(found.diagnostics.get("flag", "")),
        "rehearsed": [
            found.diagnostics.get("rehearsed"),
            found.diagnostics.get("rehearsed_sureness"),
        ],
        "misfit": found.diagnostics.get("misfit"),
    }


def collapsed(one: dict[str, Any]) -> bool:
    """Is it surer than right, beyond five points and three standard errors?"""
    gap = one["confidence"] - one["accuracy"]
    own = one["accuracy"] * (1 - one["accuracy"]) / one["n"]
    return bool(gap > SURER and gap > ERRORS * np.sqrt(max(one["promised"], own)))


def digest() -> str:
    """Of the code that the results depend on, and of this file."""
    package = Path(overheard.__file__).parent
    sources = [Path(__file__)]
    for part in CODE.split():
        path = package / part
        sources += sorted(path.rglob("*.py")) if path.is_dir() else [path] * path.exists()
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]


KINDS = (
    ("attribute, mini-batches", "attribute", False),
    ("attribute, mini-batches, recoded from x to 1 - x", "attribute", True),
    ("attribute with unknown labels, full batches", "joint", False),
    ("members, full batches and mini-batches", "members", False),
)


def rows(done: list[tuple[Cell, dict[str, Any]]]) -> list[dict[str, Any]]:
    """What the cells come to, kind by kind."""
    made = []
    for what, asked, recoded in KINDS:
        here = [r for c, r in done if c["asked"] == asked and c["recoded"] == recoded]
        if not here:
            continue
        bad = [r for r in here if collapsed(r) and not r["flag"]]
        flagged = [r for r in here if r["flag"]]
        sound = sum(not collapsed(r) for r in flagged)
        mean = {key: float(np.mean([r[key] for r in here]))
                for key in ("accuracy", "confidence", "majority")}  # fmt: skip
        made.append(
            {
                "what": what,
                "trials": len(here),
                "faults": len(bad),
                "outcome": f"accuracy {mean['accuracy']:.3f} at confidence "
                f"{mean['confidence']:.3f} (majority {mean['majority']:.3f}); {len(flagged)} "
                f"flagged, {sound} of them as sure as right",
            }
        )
    return made


def summary(every: list[Cell], done: dict[str, Any], code: str) -> dict[str, Any]:
    """The result of the cells that were measured with this code."""
    names = [str(n) for n in range(len(every)) if done.get(str(n), {}).get("code") == code]
    return {
        "title": "Decoders of many local steps on tables that they were not made for",
        "command": "python reliability/collapses.py",
        "rows": rows([(every[int(n)], done[n]["result"]) for n in names]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", type=int, nargs="*", help="numbers of cells")
    parser.add_argument("--draw", type=int, default=0)
    parser.add_argument("--again", action="store_true", help="also what is done")
    parser.add_argument("--out", type=Path, default=HERE / "collapses.json")
    given = parser.parse_args()
    kept = given.out.parent / given.out.stem / "cells.json"
    kept.parent.mkdir(exist_ok=True)
    code = digest()
    done: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    every = cells(given.draw)
    for number, cell in enumerate(every):
        if given.only and number not in given.only:
            continue
        name = str(number)
        if not given.again and done.get(name, {}).get("code") == code:
            continue
        begin = time.process_time()
        with tempfile.TemporaryDirectory() as folder:
            found = decoded(cell, Path(folder) / "run")
        done[name] = {**cell, "code": code, "result": found}
        kept.write_text(json.dumps(done, indent=1) + "\n")
        content = summary(every, done, code)
        given.out.write_text(json.dumps(content, indent=2) + "\n")
        mark = "COLLAPSED" if collapsed(found) and not found["flag"] else ""
        print(
            f"{number}: {' '.join(str(v) for v in cell.values())}: {found['accuracy']:.3f} at "
            f"{found['confidence']:.3f} (majority {found['majority']:.3f}, rehearsed "
            f"{found['rehearsed']}, misfit {found['misfit']}) {found['flag'][:40]} {mark} "
            f"{time.process_time() - begin:.1f} s",
            flush=True,
        )
    content = summary(every, done, code)
    given.out.write_text(json.dumps(content, indent=2) + "\n")
    raise SystemExit(any(row["faults"] for row in content["rows"]))


if __name__ == "__main__":
    main()
