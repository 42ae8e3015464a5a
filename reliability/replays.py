"""Does the replay check cry wolf, and does it see what is wrong?

    python -m reliability.replays [--trials 250] [--seed 0]

Small federations of every kind (models, sizes, learning rates, mini-batches, epochs, noise) are
simulated and checked: as they were declared, and declared wrongly. A false alarm is a client that
trained as declared and is called unfit. ``tests/evaluation/test_replay.py`` does so with fewer.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import frame
from overheard.data.dataset import Dataset
from overheard.errors import FixConfig
from overheard.evaluation.replay import replays
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records
from overheard.transcript.kind import recipe_of
from overheard.transcript.store import Recording

Rng = np.random.Generator
Truth = dict[str, Records]
MOST_FALSE = 0.01
WRONG = 5  # so many times fewer federations are declared wrongly than rightly


def people(rng: Rng, clients: int, classify: bool) -> Dataset:
    """Clients of 20 to 200 people, who differ in what is common among them."""
    sizes = rng.integers(20, 200, clients)
    at = np.repeat(np.arange(clients), sizes)
    rows, columns = len(at), int(rng.integers(2, 9))
    s = (rng.random(rows) < rng.uniform(0.2, 0.6, clients)[at]).astype(np.float64)
    x = rng.normal(size=(rows, columns)) + rng.normal(0, 0.3, (clients, columns))[at]
    y = x @ rng.normal(size=columns) + s + rng.normal(0, 0.7, rows)
    label = (y > np.median(y)).astype(np.float64) if classify else y
    table = {f"x{j}": x[:, j] for j in range(columns)}
    return frame.people({**table, "s": s, "y": label, "at": at}, classify)


def federation(rng: Rng, path: Path, batches: bool, **defence: Any) -> Recording:
    """A recording of one such federation."""
    kind = str(rng.choice(["linear", "logistic", "mlp"]))
    model: dict[str, Any] = {"name": kind}
    if kind == "mlp":
        model |= {"hidden": [int(rng.choice([8, 32]))]}
        model |= {"activation": str(rng.choice(["relu", "tanh"]))}
    classify = kind == "logistic" or (kind == "mlp" and rng.random() < 0.5)
    training = {
        "rounds": int(rng.integers(2, 12)),
        "learning_rate": float(10 ** rng.uniform(-2.5, -0.7)),
        "epochs": int(rng.choice([1, 1, 2, 5])),
        "batch_size": int(rng.choice([4, 16, 32])) if batches else 0,
        "participation": float(rng.choice([0.6, 1.0])),
    }
    config = {"seed": int(rng.integers(1 << 30)), "data": {"source": "file"}, "model": model,
              "training": training, "defence": [defence] if defence else []}  # fmt: skip
    data = people(rng, int(rng.integers(2, 6)), classify)
    try:
        return frame.federation(config, data, path)
    except FixConfig:  # it diverged: another one
        shutil.rmtree(path)
        return federation(rng, path, batches, **defence)


def declared(recipe: Recipe, truth: Truth) -> tuple[Recipe, Truth]:
    return recipe, truth


def other_rate(recipe: Recipe, truth: Truth) -> tuple[Recipe, Truth]:
    return recipe.model_copy(update={"learning_rate": 1.5 * recipe.learning_rate}), truth


def another_epoch(recipe: Recipe, truth: Truth) -> tuple[Recipe, Truth]:
    return recipe.model_copy(update={"epochs": recipe.epochs + 1}), truth


def swapped(recipe: Recipe, truth: Truth) -> tuple[Recipe, Truth]:
    names = list(truth)
    return recipe, {
        name: truth[other] for name, other in zip(names, names[1:] + names[:1], strict=True)
    }


def hidden_truth(recipe: Recipe, truth: Truth) -> tuple[Recipe, Truth]:
    """A third of the secrets are other than the records that are given say."""
    changed = {}
    for name, records in truth.items():
        s = np.where(np.arange(len(records)) % 3 == 0, 1 - records["s"], records["s"])
        changed[name] = Records({**records.columns, "s": s})
    return recipe, changed


NOISE = {"name": "gaussian", "sd": 0.01}
CASES: tuple[
    tuple[str, Callable[[Recipe, Truth], tuple[Recipe, Truth]], bool, dict[str, Any]], ...
] = (
    ("as declared, full batches", declared, False, {}),
    ("as declared, mini-batches", declared, True, {}),
    ("as declared, mini-batches and noise", declared, True, NOISE),
    ("as declared, mini-batches, clipped", declared, True, {"name": "clip", "norm": 0.05}),
    ("the learning rate is half as much again, full batches", other_rate, False, {}),
    ("the learning rate is half as much again, mini-batches", other_rate, True, {}),
    ("one epoch more, mini-batches", another_epoch, True, {}),
    ("clients are swapped, full batches", swapped, False, {}),
    ("clients are swapped, mini-batches", swapped, True, {}),
    ("a third of the secrets is wrong, mini-batches", hidden_truth, True, {}),
)


def counted(case: int, trials: int, seed: int = 0) -> tuple[int, int, int, int]:
    """Of so many federations: clients checked, called unfit; federations with an unfit client."""
    _, change, batches, defence = CASES[case]
    rng = np.random.default_rng([seed, case])
    clients = unfit = strange = made = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(trials):
            recording = federation(rng, Path(folder) / str(number), batches, **defence)
            recipe = recipe_of(recording)
            assert recipe is not None
            recipe, truth = change(recipe, recording.truth())
            found = [r for r in replays(recording, recipe, truth, recording.clients, number)
                     if r.outcome != "cannot be checked"]  # fmt: skip
            bad = sum(r.outcome == "does not fit" for r in found)
            clients, unfit, made = clients + len(found), unfit + bad, made + 1
            strange += bad > 0
    return made, clients, unfit, strange


def line(case: int, trials: int, seed: int = 0) -> frame.Row:
    """What a case comes to."""
    what, change, _, _ = CASES[case]
    right = change is declared
    made, clients, unfit, strange = counted(case, trials if right else trials // WRONG, seed)
    said = f"{unfit} of {clients} clients called unfit ({unfit / clients:.1%}), in {strange} of "
    said += f"{made} federations"
    bad = right and unfit > MOST_FALSE * clients
    said += (": too many" if bad else ": as it must be") if right else ""
    return frame.counted(what, made, bad, said)


def main() -> int:
    given = frame.options(__doc__, __file__, trials=250, seed=0)
    rows = [line(case, given.trials, given.seed) for case in range(len(CASES))]
    return frame.finish(given, "Replays of clients that trained as declared, and of others", rows)


if __name__ == "__main__":
    raise SystemExit(main())
