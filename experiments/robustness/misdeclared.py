"""Is a wrong description called wrong, the right one not, and does `overheard init` find it?

Federations of three clients and three to five rounds are drawn: every optimiser, batch size and
number of epochs, columns scaled together or per client, rates spread over a factor of 100, some
with noise. Their messages alone and a table of records are then described rightly, or wrongly in
one thing, and audited: a wrong description must end *not measured*, or be called so beside the
verdict. ``init``: the messages and the table are given to the search, and what it finds is
compared with the truth.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import overheard
from experiments.recordings import people, simulated, write_csv
from experiments.robustness.promises import total, tried
from experiments.runner import Cell, Experiment, Result, cell
from overheard.evaluation.decision import NOT_MEASURED
from overheard.federation.federation import Federation
from overheard.identify.search import OPTIMISERS, Options, identify
from overheard.programs.recipe import Adam
from overheard.recorders.describe import describe
from overheard.transcript.store import Recording
from overheard.transcript.threat import EAVESDROPPER

Settings = dict[str, Any]
Columns = dict[str, NDArray[Any]]
CASES = tuple(product(OPTIMISERS, (16, 32, 0), (1, 3), ("records", "clients")))
RATES = {"SGD": 0.03, "momentum": 0.01, "Adam": 0.001, "AdamW": 0.001}
"""The middle of the rates of each, which reach a factor of 10 to either side."""
NAMES = ("north", "south", "west")
FEDERATIONS = 24
WRONG = (
    "rate x2", "rate x1.5", "epochs +1", "other optimiser", "other batch size", "other scaling",
    "clients swapped", "a tenth of the labels",
)  # fmt: skip
NOTICED = 0.95
"""The share of wrong descriptions that has to be noticed."""


@dataclass(frozen=True)
class Drawn:
    """A federation: its table, and its true description without the table's path."""

    columns: Columns
    about: Settings
    rounds: int


def drawn(number: int) -> Drawn:
    """The federation of this number; any prefix of them is fair."""
    rng = np.random.default_rng([12, number])
    optimiser, batch, epochs, scale = CASES[29 * number % len(CASES)]
    at = np.repeat(np.arange(3), rng.integers(40, 150, 3))
    rows, width = len(at), 5
    s = (rng.random(rows) < rng.uniform(0.3, 0.6, 3)[at]).astype(np.float64)
    x = rng.normal(size=(rows, width)) * np.exp(rng.normal(0, 0.2, (3, width)))[at]
    x += rng.normal(0, 0.4, (3, width))[at]
    y = x @ rng.normal(size=width) + s + rng.normal(0, 0.7, rows)
    columns: Columns = {f"x{j}": x[:, j] for j in range(width)}
    columns |= {"s": s, "y": np.where(y > np.median(y), "yes", "no"), "at": np.array(NAMES)[at]}
    activation = str(rng.choice(["relu", "tanh", "sigmoid"]))
    about = {
        "data": {"source": "file", "client": "at", "target": "y", "scale": scale},
        "model": {"name": "mlp", "hidden": [8], "activation": activation},
        "training": {
            "learning_rate": RATES[optimiser] * float(10 ** rng.uniform(-1, 1)),
            "epochs": epochs,
            "batch_size": batch,
            "optimiser": OPTIMISERS[optimiser].model_dump(),
        },
        "audit": {"attributes": ["s"]},
        "defence": [{"name": "gaussian", "sd": 0.001}] if number % 6 == 5 else [],
    }
    return Drawn(columns, about, int(rng.integers(3, 6)))


def changed(true: Drawn, wrong: str, rng: np.random.Generator) -> tuple[Columns, Settings]:
    """The table and the description, wrong in one thing ("": in nothing)."""
    columns, about = dict(true.columns), {**true.about}
    training, data = dict(about["training"]), dict(about["data"])
    adaptive = training["optimiser"]["name"] == "adam"
    match wrong.split(" x"):
        case ["rate", factor]:
            training["learning_rate"] *= float(factor)
        case ["epochs +1"]:
            training["epochs"] += 1
        case ["other optimiser"]:
            other = "SGD" if adaptive else "Adam"
            training |= {"optimiser": OPTIMISERS[other].model_dump(), "learning_rate": RATES[other]}
        case ["other batch size"]:
            training["batch_size"] = 32 if training["batch_size"] == 16 else 16
        case ["other scaling"]:
            data["scale"] = "clients" if data["scale"] == "records" else "records"
        case ["clients swapped"]:
            turned = dict(zip(NAMES, NAMES[1:] + NAMES[:1], strict=True))
            columns["at"] = np.array([turned[name] for name in columns["at"]])
        case ["a tenth of the labels"]:
            flip = rng.random(len(columns["y"])) < 0.1
            swapped = np.where(columns["y"] == "yes", "no", "yes")
            columns["y"] = np.where(flip, swapped, columns["y"])
    return columns, {**about, "training": training, "data": data}


@contextmanager
def messages(true: Drawn, number: int) -> Iterator[tuple[Recording, Path]]:
    """The federation's messages and nothing else, and a folder to work in."""
    config = {
        **{name: true.about[name] for name in ("model", "defence")},
        "seed": number,
        "data": {"source": "file", "scale": true.about["data"]["scale"]},
        "training": {**true.about["training"], "rounds": true.rounds},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = simulated(config, people(true.columns, classes=True), folder / "run")
        shutil.copytree(run.path / "messages", folder / "bare" / "messages")
        yield Recording.open(folder / "bare"), folder


def written(columns: Columns, folder: Path) -> str:
    """The table as a file."""
    path = folder / "people.csv"
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    write_csv(path, [columns, *rows])
    return str(path)


def audited(each: Cell) -> dict[str, Any]:
    """Whether a description that is wrong in ``wrong``, or in nothing, is called wrong."""
    number, wrong = each["federation"], each["wrong"]
    true = drawn(number)
    columns, about = changed(true, wrong, np.random.default_rng([13, number]))
    with messages(true, number) as (bare, folder):
        about["data"]["path"] = written(columns, folder)
        describe(bare, Federation.model_validate(about), folder / "side")
        options = overheard.AuditOptions(seed=number, rounds=False)
        record = overheard.audit(
            bare.described_in(folder / "side"), EAVESDROPPER, ["max_entropy"], options=options
        )
    called = bool(record.unfit) or record.level == NOT_MEASURED
    said = f"{record.level}; {len(record.unfit)} clients do not fit; {' '.join(record.notes)[:200]}"
    return tried(1, called != bool(wrong), said) | {"called": called}


def identified(each: Cell) -> dict[str, Any]:
    """What `overheard init` finds from the messages and the table, beside the truth."""
    true = drawn(each["federation"])
    with messages(true, each["federation"]) as (bare, folder):
        path = written(true.columns, folder)
        data = {"source": "file", "client": "at", "target": "y", "path": path}
        found = identify(bare, {"data": data, "audit": true.about["audit"]}, Options())
    training = true.about["training"]
    best, *others = [f.program for f in (found.ranking[0], *found.open)]
    asked = ("optimiser", "batch_size", "epochs")

    def same(recipe: Any) -> bool:
        told = recipe.model_dump(include=set(asked))
        return all((told[name] or 0) == training[name] for name in asked)

    right = {
        "adaptive": isinstance(best.optimiser, Adam) == (training["optimiser"]["name"] == "adam"),
        "full batch": best.full_batch == (training["batch_size"] == 0),
        "rate within 5%": abs(best.learning_rate / training["learning_rate"] - 1) <= 0.05,
        "scaling": found.ranking[0].whole.data.scale == true.about["data"]["scale"],
        "recipe": same(best),
        "recipe, or named as open": any(map(same, (best, *others))),
    }
    missed = [name for name, held in right.items() if not held]
    fault = not right["recipe, or named as open"]
    return tried(1, fault, f"missed: {', '.join(missed)}") | {"right": right}


def _called(found: Sequence[Result]) -> str:
    wrong = [r for r in found if r.setting["wrong"]]
    right = [r for r in found if not r.setting["wrong"]]
    missed = total(wrong, "faults")
    said = f"{len(wrong) - missed} of {len(wrong)} wrong descriptions are noticed "
    return said + f"({NOTICED:.0%} wanted), {total(right, 'faults')} of {len(right)} right ones are"


def _found(found: Sequence[Result]) -> str:
    names = found[0].values["right"]
    return ", ".join(f"{n} {sum(r.values['right'][n] for r in found)}" for n in names)


EXPERIMENTS = (
    Experiment(
        "robustness-misdeclared",
        "descriptions that are wrong in one thing, and right ones",
        audited,
        lambda: [
            cell(federation=number, wrong=wrong, cost=20, quick=number < 1)
            for number in range(FEDERATIONS)
            for wrong in ("", *WRONG)
        ],
        must="A wrong description is called wrong",
        came=_called,
    ),
    Experiment(
        "robustness-init",
        "descriptions found by overheard init",
        identified,
        lambda: [cell(federation=number, cost=60, quick=number < 1) for number in range(60)],
        must="`overheard init --data` finds the description",
        came=_found,
    ),
)
