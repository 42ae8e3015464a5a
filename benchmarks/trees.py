"""What do the trees give away that clients of a federated XGBoost send?

    python -m benchmarks.trees [--seeds 3] [--only NAME ...] [--rounds 50]

Flower's bagging, five clients, one tree a round and client (eta 0.1, XGBoost's defaults otherwise).
Adult (needs the data), the attribute ``sex``; RAND, squared error, the attributes ``black`` and
``physlm``. One client is listened to. A row a setting, seed and number of rounds: the share guessed
right with a stranger's probabilities as the prior (learned from auxiliary records) and without, the
best that records alike in everything public allow (to who has the stranger's probabilities, too),
and those alike in all trees; how many records are certain (beyond 99%), how many of those are
wrong, and how many their own probabilities expect to be; how many single leaves prove, and wrongly;
the mean certainty, the majority, the stranger, and processor seconds from the messages to the
answer. `program_defences` says what can be sent otherwise, and what it costs.

``counts`` is the opponent of the literature, who uses split thresholds and node statistics as
constraints and no gradients (Ferry et al. 2024, from forests; the first tree of Di Gennaro et al.
2025): it is told how many records of each label are in every leaf of the client's trees, more than
XGBoost's models say, and which leaves each record may be in. The decoder is the same.

Writes benchmarks/trees.json; what is there is kept. Settings of the decoder were
fixed on seeds from 100 on.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.frame import Results, Row, federation, options, show
from experiments.data import adult
from overheard.attacks import attack_named
from overheard.attacks.prior import imputed_prior
from overheard.data.bundled import randhie
from overheard.data.dataset import Dataset
from overheard.decoding.subset_sums import Conditioning, decode_subset_sums, joined, sums_over_cells
from overheard.programs.families.xgboost import own_trees, read_exchanges
from overheard.programs.program import Candidates
from overheard.programs.records import Records, encode
from overheard.transcript.knowledge import (
    AttributeDomain,
    AuxiliaryData,
    ClientProgram,
    Labels,
    PublicRecords,
    Releases,
)
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import View, launch, observe

CLIENTS = 5
AUXILIARY = 3000
"""Records of nobody's, from which the stranger learns."""
ROUNDS = (1, 2, 3, 5, 10, 20, 50)
CERTAIN = 0.99
OTHERS = 1000
"""Records of each other client, at most."""


@dataclass(frozen=True)
class Case:
    """A setting: the table, the attribute, records a client, the trees, rounds listened to."""

    data: str
    column: str
    records: int
    trees: dict[str, Any]
    rounds: tuple[int, ...] = ROUNDS


PLAIN = {"eta": 0.1, "max_depth": 6}
CASES = {
    **{
        f"Adult, sex, 1000 records, depth {depth}": Case(
            "adult", "sex", 1000, {**PLAIN, "max_depth": depth}
        )
        for depth in (6, 8)
    },
    **{
        f"RAND, {column}, 900 records, depth {depth}": Case(
            "randhie", column, 900, {**PLAIN, "max_depth": depth}, ROUNDS[:-1]
        )
        for column in ("black", "physlm")
        for depth in (6, 8)
    },
    **{
        f"Adult, sex, 3000 records, depth {depth}": Case(
            "adult", "sex", 3000, {**PLAIN, "max_depth": depth}, (10, 50)
        )
        for depth in (6, 8)
    },
}


def people(case: Case, seed: int) -> tuple[Dataset, Records]:
    """Five clients, drawn at random, the first of so many people, and auxiliary records."""
    whole = adult.load() if case.data == "adult" else randhie()
    rows = np.random.default_rng([20261117, seed]).permutation(len(whole.records))
    other = min(case.records, OTHERS)
    size = case.records + (CLIENTS - 1) * other
    taken = whole.records.take(rows[:size]).without(whole.client)
    whose = np.maximum(np.arange(size) - case.records + other, 0) // other
    who = np.array([f"client {n}" for n in whose])
    others = whole.records.take(rows[size : size + AUXILIARY]).without(whole.client)
    for column, values in taken.columns.items():  # words that no client has, no model knows
        if values.dtype.kind == "U":
            others = others.take(np.isin(others[column], values))
    mine = replace(whole, records=Records({**taken.columns, whole.client: who}), outside=None)
    return mine, others


def run(case: Case, seed: int, most: int) -> Row:
    """One federation, listened to for each number of rounds up to the most."""
    rounds = [number for number in case.rounds if number <= most]
    dataset, others = people(case, seed)
    objective = "binary:logistic" if dataset.task == "classification" else "reg:squarederror"
    model = {"name": "xgboost", "objective": objective, **case.trees}
    content = {
        "seed": seed,
        "data": {"source": case.data},
        "model": model,
        "training": {"rounds": max(rounds) + 1},
        "audit": {"attributes": [case.column]},
    }
    with tempfile.TemporaryDirectory() as folder:
        recording = federation(content, dataset, Path(folder) / "run")
        view = observe(recording, EAVESDROPPER, attribute(case.column), "client 0")
        truth = recording.truth()["client 0"][case.column]
        auxiliary = AuxiliaryData.split(others, dataset.target)
        rows = []
        for count in rounds:
            heard = view.knowing(view.know(Releases).first(count))
            row = {"rounds": count, **listened(heard, truth, auxiliary)}
            if case.records <= OTHERS:
                row["counts"] = by_counts(heard.knowing(auxiliary), truth)
            rows.append(row)
        return {"rows": rows}


def listened(heard: View, truth: NDArray[Any], auxiliary: AuxiliaryData) -> dict[str, Any]:
    """What is known from what was heard."""
    attack = attack_named("max_entropy")
    began = time.process_time()
    plain = launch(attack, heard, 0)
    seconds = time.process_time() - began
    guess = launch(attack, heard.knowing(auxiliary), 0)
    prior = imputed_prior(heard.knowing(auxiliary))
    values = np.asarray(guess.values)
    secret = (truth[:, None] == values).argmax(axis=1)
    confidence = guess.probabilities.max(axis=1)
    right = guess.choice() == truth
    certain = confidence > CERTAIN
    alone = plain.probabilities.max(axis=1) > CERTAIN
    equations = heard.know(ClientProgram).program.equations(
        heard.know(Releases).exchanges, candidates(heard)
    )
    assert equations is not None
    cells = Conditioning(equations)
    proven = cells.values()
    said = np.asarray(plain.values)[proven]
    return {
        "accuracy": float(right.mean()),
        "without_auxiliary": float((plain.choice() == truth).mean()),
        "ceiling": ceiling(_public(heard), secret, prior),
        "ceiling_of_trees": ceiling(cells.group, secret, prior),
        "certain": int(certain.sum()),
        "certain_wrong": int((~right & certain).sum()),
        "certain_expected_wrong": float((1 - confidence[certain]).sum()),
        "certain_without_auxiliary": int(alone.sum()),
        "certain_wrong_without_auxiliary": int(((plain.choice() != truth) & alone).sum()),
        "proven": plain.diagnostics.get("proven", 0),
        "proven_wrong": int((cells.proven() & (said != truth)).sum()),
        "confidence": float(confidence.mean()),
        "calibration_error": calibration_error(confidence, right),
        "majority": float(max(np.mean(truth == v) for v in np.unique(truth))),
        "stranger": float((values[prior.argmax(axis=1)] == truth).mean()),
        "records": len(truth),
        "flag": guess.diagnostics.get("flag", ""),
        "seconds": seconds,
    }


def candidates(view: View) -> Candidates:
    """Every record under every value."""
    labels, domain = view.know(Labels).values, view.know(AttributeDomain)
    column = view.know(ClientProgram).program.target.column
    known = {**view.know(PublicRecords).records.columns, column: labels}
    return Candidates(Records(known), domain.settings, len(labels))


def by_counts(view: View, truth: NDArray[Any]) -> dict[str, Any]:
    """What the opponent gets who counts the records of each label in every leaf of the trees."""
    program, possible = view.know(ClientProgram).program, candidates(view)
    values = np.asarray(view.know(AttributeDomain).values)
    inputs = np.stack([encode(program.encoding, t) for t in possible.tables if t is not None])
    labels = np.unique(view.know(Labels).values, return_inverse=True)[1]
    if not program.target.classes:
        labels = np.zeros_like(labels)  # numbers are nobody's to count
    secret = (truth[:, None] == values).argmax(axis=1)
    shape, parts = inputs.shape[:2], []
    for exchange in read_exchanges(view.know(Releases).exchanges):
        for tree in own_trees(*exchange):
            leaf = tree.leaves(inputs.reshape(-1, inputs.shape[2]).astype(np.float32))
            cell = leaf.reshape(shape) * (labels.max() + 1) + labels
            true = np.bincount(cell[secret, np.arange(len(truth))], minlength=cell.max() + 1)
            exact = np.zeros(len(true))
            parts.append(
                sums_over_cells(np.ones(shape), cell, true.astype(np.float64), exact, exact)
            )
    found = decode_subset_sums(joined(parts), imputed_prior(view)).posterior
    right = found.guess == secret
    certain = found.confidence > CERTAIN
    return {
        "accuracy": float(right.mean()),
        "certain": int(certain.sum()),
        "certain_wrong": int((~right & certain).sum()),
    }


def _public(view: View) -> NDArray[np.intp]:
    """A number per record, equal where everything public is."""
    columns = [*view.know(PublicRecords).records.columns.values(), view.know(Labels).values]
    codes = np.stack([np.unique(c, return_inverse=True)[1] for c in columns], axis=1)
    return np.asarray(np.unique(codes, axis=0, return_inverse=True)[1].ravel(), dtype=np.intp)


def ceiling(group: NDArray[np.intp], secret: NDArray[np.intp], prior: NDArray[np.float64]) -> float:
    """The share right of who knows how many of a group's records have each value, and of each of
    them what a stranger says: its probabilities, scaled until their sums are the counts."""
    counts = np.zeros((group.max() + 1, prior.shape[1]))
    np.add.at(counts, (group, secret), 1)
    p = np.maximum(prior, 1e-12)
    for _ in range(200):
        p = p / p.sum(axis=1, keepdims=True)
        sums = np.stack([np.bincount(group, column) for column in p.T], axis=1)
        p = p * (counts / np.maximum(sums, 1e-300))[group]
    return float((p.argmax(axis=1) == secret).mean())


def calibration_error(confidence: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    """Expected calibration error over ten equal bins of confidence from one half to one."""
    bins = np.minimum(((confidence - 0.5) * 20).astype(int), 9)
    gaps = [
        abs(confidence[bins == b].mean() - right[bins == b].mean()) * np.mean(bins == b)
        for b in np.unique(bins)
    ]
    return float(sum(gaps))


def main() -> None:
    """Run what is missing, and print the table."""
    given = options(__doc__, __file__, seeds=3, rounds=50, only=list(CASES))
    kept = Results(given.out, given.command)
    for name, seed in product(given.only, range(given.seeds)):
        key = f"{name}; seed {seed}"
        for row in kept.row(key, partial(run, CASES[name], seed, given.rounds))["rows"]:
            figures = (n for n, figure in row.items() if isinstance(figure, int | float))
            show(key, [row], *figures)


if __name__ == "__main__":
    main()
