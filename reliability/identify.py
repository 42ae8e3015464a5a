"""Does `overheard init --data` find how clients trained, and is a wrong description called wrong?

    python -m reliability.identify [--trials 60] [--seed 12]

Federations of three clients and three to five rounds are simulated under every optimiser, batch
size and number of epochs, with columns scaled together or per client and rates spread over a
factor of 100; then their messages alone and the table of records are given to the search. What it
finds is compared with the truth, also by what an attack learns under either. The check of fit that
every audit makes is asked about the true description and about five wrong ones. Trials that are
done are kept, in reliability/identify/: the command goes on where it was stopped.
"""

from __future__ import annotations

import csv
import itertools
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import overheard
from benchmarks import frame
from overheard.attacks.attribute import MaxEntropy
from overheard.data.dataset import Dataset
from overheard.evaluation.replay import replays
from overheard.federation.federation import Federation
from overheard.identify.recording import Found, identify
from overheard.identify.search import OPTIMISERS
from overheard.programs.recipe import Adam, Recipe, Sgd
from overheard.programs.records import Records
from overheard.recorders.describe import describe
from overheard.transcript.kind import recipe_of
from overheard.transcript.store import Recording
from overheard.transcript.threat import EAVESDROPPER

CASES = tuple(itertools.product(OPTIMISERS, (16, 32, 0), (1, 3), ("records", "clients")))
RATES = {"SGD": 0.03, "momentum": 0.01, "Adam": 0.001, "AdamW": 0.001}
"""The middle of the rates of each, which reach a factor of 10 to either side."""


def people(rng: np.random.Generator) -> Dataset:
    """Three clients, who differ in what is common among them and in the units of their columns."""
    sizes = rng.integers(40, 100, 3)
    at = np.repeat(np.arange(3), sizes)
    rows, columns = len(at), 5
    s = (rng.random(rows) < rng.uniform(0.3, 0.6, 3)[at]).astype(np.float64)
    x = rng.normal(size=(rows, columns)) * np.exp(rng.normal(0, 0.2, (3, columns)))[at]
    x += rng.normal(0, 0.4, (3, columns))[at]
    y = x @ rng.normal(size=columns) + s + rng.normal(0, 0.7, rows)
    table = {f"x{j}": x[:, j] for j in range(columns)}
    label = np.where(y > np.median(y), "yes", "no")
    names = np.array(["north", "south", "west"])[at]
    return frame.people({**table, "s": s, "y": label, "at": names}, True)


def trial(number: int, seed: int, folder: Path) -> dict[str, Any]:
    """One federation: what is found, what that costs an attack, and what the check of fit says."""
    rng = np.random.default_rng([seed, number])
    optimiser, batch, epochs, scale = CASES[29 * number % len(CASES)]  # mixed: any prefix is fair
    rate = RATES[optimiser] * float(10 ** rng.uniform(-1, 1))
    training = {
        "learning_rate": rate,
        "epochs": epochs,
        "batch_size": batch,
        "optimiser": OPTIMISERS[optimiser].model_dump(),
    }
    activation = str(rng.choice(["relu", "tanh", "sigmoid"]))
    model = {"name": "mlp", "hidden": [8], "activation": activation}
    rounds, dataset = int(rng.integers(3, 6)), people(rng)
    config = {"seed": number, "data": {"source": "file", "scale": scale}, "model": model,
              "training": {**training, "rounds": rounds}}  # fmt: skip
    run = frame.federation(config, dataset, folder / "run")
    shutil.copytree(run.path / "wire", folder / "bare" / "wire")
    bare = Recording.open(folder / "bare")
    columns = dataset.records.columns
    with (folder / "people.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*(values.tolist() for values in columns.values()), strict=True))
    data = {"source": "file", "path": str(folder / "people.csv"), "client": "at", "target": "y"}
    given = {"data": data, "audit": {"attributes": ["s"]}}
    began = time.process_time()
    found = identify(bare, given, folder / "work")
    spent = time.process_time() - began
    truth = Federation.model_validate(
        {**given, "data": {**data, "scale": scale}, "model": model, "training": training}
    )
    described = {
        name: told(bare, description, folder / name)
        for name, description in (("true", truth), ("found", found.description))
    }
    recipe = recipe_of(described["true"])
    assert recipe is not None
    same = compared(found, recipe, scale)
    accuracy = {name: decoded(recording) for name, recording in described.items()}
    other = truth.model_copy(
        update={"data": truth.data.model_copy(update={"scale": SCALES[scale]})}
    )
    wrong = told(bare, other, folder / "other")
    return {
        "truth": f"{optimiser} at {rate:.4g}, {batch or 'full'}, {epochs}, {scale}, {activation}",
        "found": found.ranking[0].words,
        **same,
        "accuracy": accuracy,
        "unfit": {
            what: unfit(*case) for what, case in descriptions(described["true"], wrong, recipe, rng)
        },
        "seconds": round(spent, 1),
    }


DECODING = "accuracy of decoding, at most a point below that under the true recipe"
"""Of all clients' records together, some 200, flagged or not: the same on either side."""
DRAWS = 4
"""Seeds of the attack that accuracies are the mean of: it draws at random, and told a rate 0.1% off
ends elsewhere by chance, up or down. What counts against a recipe is what it costs."""
SCALES = {"records": "clients", "clients": "records"}


def told(bare: Recording, description: Federation, folder: Path) -> Recording:
    """The recording with what a description adds."""
    describe(bare, description, folder)
    return bare.described_in(folder)


def way(recipe: Recipe, records: int) -> float:
    """How far a client of so many records goes at rate 1 if all gradients are alike."""
    steps = recipe.local_steps(records)
    kept = recipe.optimiser.momentum if isinstance(recipe.optimiser, Sgd) else 0.0
    return float((steps - kept * (1 - kept**steps) / (1 - kept)) / (1 - kept))


def compared(found: Found, recipe: Recipe, scale: str) -> dict[str, Any]:
    """The best recipe beside the true one, and whether the true one is the best or still open."""
    best = found.ranking[0].recipe
    asked = ("optimiser", "batch_size", "epochs")
    others = [f.recipe for f in (found.ranking[0], *found.open)]
    same = [r for r in others if all(getattr(r, name) == getattr(recipe, name) for name in asked)]
    return {
        "adaptive": isinstance(best.optimiser, Adam) == isinstance(recipe.optimiser, Adam),
        "batch": best.full_batch == recipe.full_batch,
        "rate": best.learning_rate / recipe.learning_rate,
        "way": best.learning_rate * way(best, 70) / (recipe.learning_rate * way(recipe, 70)),
        "scale": found.description.data.scale == scale,
        "recipe": bool(same) and same[0] is best,
        "open": len(found.open),
        "inside": bool(same),
        "explained": found.explained,
    }


def decoded(recording: Recording) -> float:
    """Part of all clients' records that an attack gets right from their first message, told so."""
    recording = replace(recording, rounds=recording.rounds[:1])
    right = 0.0
    for seed in range(DRAWS):
        options = overheard.AuditOptions(seed=seed, rounds=False)
        record = overheard.audit(recording, EAVESDROPPER, [MaxEntropy(seeds=0)], [], ["s"], options)
        right += sum(found.value * found.n for found in record.findings)
    return right / DRAWS / sum(map(len, recording.truth().values()))


def descriptions(
    known: Recording, other: Recording, recipe: Recipe, rng: np.random.Generator
) -> Iterator[tuple[str, tuple[Recording, Recipe, dict[str, Records]]]]:
    """The true description, and five that are wrong in one thing each."""
    truth = known.truth()
    names = list(truth)
    yield "right", (known, recipe, truth)
    turned = {a: truth[b] for a, b in zip(names, names[1:] + names[:1], strict=True)}
    yield "clients swapped", (known, recipe, turned)
    half = recipe.model_copy(update={"learning_rate": recipe.learning_rate / 2})
    yield "half the rate", (known, half, truth)
    adaptive = isinstance(recipe.optimiser, Adam)
    family = "SGD" if adaptive else "Adam"
    changed = {"optimiser": OPTIMISERS[family], "learning_rate": RATES[family]}
    yield "other family", (known, recipe.model_copy(update=changed), truth)
    scaled = recipe_of(other)
    assert scaled is not None
    yield "other scaling", (other, scaled, other.truth())
    mistaken = {}
    for name, records in truth.items():
        label = records["y"].copy()
        rows = rng.permutation(len(label))[: max(1, round(0.1 * len(label)))]
        label[rows] = np.where(label[rows] == "yes", "no", "yes")
        mistaken[name] = Records({**records.columns, "y": label})
    yield "a tenth of the labels wrong", (known, recipe, mistaken)


def unfit(recording: Recording, recipe: Recipe, truth: dict[str, Records]) -> bool:
    """Whether the check of fit calls the description wrong: of any client."""
    return any(
        r.outcome == "does not fit" for r in replays(recording, recipe, truth, recording.clients)
    )


def table(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The shares that are asked for; a fault is a trial in which it was missed."""
    wrong = [kind for kind in rows[0]["unfit"] if kind != "right"]
    decoded = [r["accuracy"] for r in rows]
    apart = [told["found"] - told["true"] for told in decoded]
    off = [abs(r["rate"] - 1) for r in rows]
    asked = {
        "adaptive or not": ([r["adaptive"] for r in rows], 0.99),
        "full batch or not": ([r["batch"] for r in rows], 0.97),
        "the rate, within 5%": ([o <= 0.05 for o in off], 0.95),
        "the rate times the steps, within 5%": ([abs(r["way"] - 1) <= 0.05 for r in rows], 0.95),
        "columns scaled together or per client": ([r["scale"] for r in rows], 0.95),
        "optimiser, batch size and epochs": ([r["recipe"] for r in rows], 0.0),
        "the same, or named as still open": ([r["inside"] for r in rows], 0.95),
        DECODING: ([a >= -0.01 for a in apart], 0.95),
        "the true description is not called wrong": ([not r["unfit"]["right"] for r in rows], 0.99),
        **{f"called wrong: {kind}": ([r["unfit"][kind] for r in rows], 0.99) for kind in wrong},
    }
    more = {
        "the rate, within 5%": f"; median error {np.median(off):.2%}",
        DECODING: (
            f"; {np.mean([d['found'] for d in decoded]):.3f} found, "
            f"{np.mean([d['true'] for d in decoded]):.3f} true on the whole"
        ),
    }
    made = []
    for what, (hits, least) in asked.items():
        good = sum(hits)
        said = f"{good} of {len(hits)} ({good / len(hits):.1%})"
        if least:
            reached = good >= least * len(hits)
            said += f", {least:.0%} wanted: {'reached' if reached else 'missed'}"
        made.append(frame.counted(what, len(hits), len(hits) - good, said + more.get(what, "")))
    return made


def main() -> None:
    given = frame.options(__doc__, __file__, trials=60, seed=12)
    kept = frame.Results(given.out.with_suffix("") / "trials.json", given.command)

    def tried(number: int) -> frame.Row:
        with tempfile.TemporaryDirectory() as folder:
            found = trial(number, given.seed, Path(folder))
        print(number, found["truth"], "|", found["found"], flush=True)
        return found

    done = [kept.row(str(number), partial(tried, number)) for number in range(given.trials)]
    frame.finish(given, "Recordings that say themselves how their clients trained", table(done))


if __name__ == "__main__":
    main()
