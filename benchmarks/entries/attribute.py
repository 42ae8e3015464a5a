"""Attributes: decoding against searching, and model-based inference against a loop over records."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.runner.entry import Check, Entry, Facts, Job, Opponent, Side, Sizes
from overheard.data.dataset import Dataset
from overheard.programs.records import Records
from overheard.randomness import stream
from overheard.transcript.view import View

Array = NDArray[Any]
SECRET = "secret"  # nosec B105  # the name of a column


def dataset(sizes: Sizes) -> Dataset:
    """Generated users of one client: public zeros and ones, a secret with K values, classes."""
    rng = stream(0, "bench", "attribute")
    records, inputs, classes = sizes["records"], sizes["inputs"], sizes["classes"]
    public = (rng.random((records, inputs - 1)) < 0.1).astype(np.float64)
    secret = rng.integers(sizes["values"], size=records).astype(np.float64)
    scores = public @ rng.normal(size=(inputs - 1, classes)) + np.outer(
        secret, rng.normal(size=classes)
    )
    columns: dict[str, Array] = {f"x{j}": public[:, j] for j in range(inputs - 1)}
    columns[SECRET] = secret
    columns["class"] = np.array([f"c{k}" for k in scores.argmax(axis=1)])
    columns["client"] = np.repeat("victim", records)
    return Dataset(
        name="generated users",
        records=Records(columns),
        client="client",
        target="class",
        task="classification",
        sensitive=(SECRET,),
        origin="generated",
        licence="none",
    )


def view_of(sizes: Sizes, folder: Path) -> tuple[View, Array]:
    """What an eavesdropper holds after ``rounds`` full-batch rounds, and the truth."""
    from overheard.federation.federation import parse_config
    from overheard.federation.plan import plan
    from overheard.federation.simulate import simulate
    from overheard.transcript.store import Recording
    from overheard.transcript.target import attribute
    from overheard.transcript.threat import EAVESDROPPER
    from overheard.transcript.view import observe

    run = folder / "run"
    if not run.exists():
        model: dict[str, Any] = {"name": "logistic"}
        if sizes["hidden"]:
            model = {"name": "mlp", "hidden": [sizes["hidden"]] * sizes.get("layers", 1)}
        config = parse_config(
            {
                "data": {"source": "file"},
                "model": model,
                "training": {"rounds": sizes.get("rounds", 1), "learning_rate": 0.1},
            }
        )
        simulate(plan(config, dataset(sizes)), run)
    recording = Recording.open(run)
    view = observe(recording, EAVESDROPPER, attribute(SECRET), "victim")
    return view, recording.truth()["victim"][SECRET]


def attacked(attack: Any, view: View, truth: Array) -> Facts:
    """Run an attack; the accuracy of its choices."""
    from overheard.transcript.view import launch

    guess = launch(attack, view, 0)
    values = np.asarray(guess.values)[guess.probabilities.argmax(axis=1)]
    return {"accuracy": float((values == truth).mean())}


def _max_entropy(sizes: Sizes, folder: Path) -> Job:
    from overheard.attacks.attribute import MaxEntropy

    view, truth = view_of(sizes, folder)
    return Job(lambda: attacked(MaxEntropy(), view, truth))


def _cosine(sizes: Sizes, folder: Path) -> Job:
    from overheard.attacks.papers.lyu2021 import CosMatching

    view, truth = view_of(sizes, folder)
    search = CosMatching(phases=("pre1",), temperatures=(1.0,), steps=sizes["adam_steps"])
    warm = CosMatching(phases=("pre1",), temperatures=(1.0,), steps=1)
    return Job(lambda: attacked(search, view, truth), warm=lambda: attacked(warm, view, truth))


def _lbfgs(sizes: Sizes, folder: Path) -> Job:
    from overheard.attacks.papers.lyu2021 import L2Lbfgs

    view, truth = view_of(sizes, folder)
    search = L2Lbfgs(last=(0,), step=(10,), iterations=sizes["lbfgs_steps"])
    warm = L2Lbfgs(last=(0,), step=(10,), iterations=1)
    return Job(lambda: attacked(search, view, truth), warm=lambda: attacked(warm, view, truth))


def _algebra(sizes: Sizes, folder: Path) -> Job:
    """The products and the factor that a solve of all unknowns cannot do without."""
    rng = stream(0, "bench", "algebra")
    records, inputs, hidden = sizes["records"], sizes["inputs"], sizes["hidden"]
    x, w = rng.normal(size=(records, inputs)), rng.normal(size=(inputs, hidden))

    def run() -> Facts:
        for _ in range(2):
            h = x @ w
        gram = (x @ x.T) * (h @ h.T)
        gram[np.diag_indices(records)] += 1 + np.abs(gram).sum(axis=1)
        np.linalg.cholesky(gram)
        return {}

    return Job(run)


HIGHER = Check(
    "accuracy is higher", lambda ours, theirs: bool(ours["accuracy"] > theirs["accuracy"])
)


def _many(sizes: Sizes, folder: Path) -> Job:
    from overheard.attacks.papers.driouich2022 import algorithm_4
    from overheard.transcript.knowledge import Link

    view, _ = view_of(sizes, folder)
    theta = view.know(Link).returned[-1].astype(np.float64)

    def run() -> Facts:
        guess = algorithm_4(view, theta)
        return {"decisions": "".join(map(str, guess.probabilities.argmax(axis=1)))}

    return Job(run)


def _record_by_record(sizes: Sizes, folder: Path) -> Job:
    """Algorithm 4 as it is written: for each record, for each value, what would the model say?"""
    from overheard.attacks.papers.driouich2022 import squared_errors
    from overheard.programs.records import encode
    from overheard.transcript.knowledge import (
        AttributeDomain,
        Labels,
        Link,
        LocalTraining,
        PublicRecords,
    )

    view, _ = view_of(sizes, folder)
    theta = view.know(Link).returned[-1].astype(np.float64)
    recipe, domain = view.know(LocalTraining).recipe, view.know(AttributeDomain)
    records, labels = view.know(PublicRecords).records, view.know(Labels).values
    some = sizes["records_shown"]

    def run() -> Facts:
        chosen = []
        for i in range(some):
            one = records.take(np.array([i]))
            label = recipe.target.encode_values(labels[i : i + 1])
            errors = [
                squared_errors(
                    recipe, theta, encode(recipe.encoding, one, {domain.column: v})[None], label
                )[0, 0]
                for v in domain.values
            ]
            chosen.append(int(np.argmin(errors)))
        return {"decisions": "".join(map(str, chosen))}

    return Job(run, some / sizes["records"])


def _lean_loop(sizes: Sizes, folder: Path) -> Job:
    """The same loop at its leanest: inputs encoded beforehand, a few numpy calls a record."""
    from overheard.programs.networks import split
    from overheard.programs.records import encode_each
    from overheard.transcript.knowledge import (
        AttributeDomain,
        Labels,
        Link,
        LocalTraining,
        PublicRecords,
    )

    view, _ = view_of(sizes, folder)
    recipe = view.know(LocalTraining).recipe
    theta = view.know(Link).returned[-1].astype(np.float64)
    known, settings = view.know(PublicRecords).records, view.know(AttributeDomain).settings
    labels = recipe.target.encode_values(view.know(Labels).values).astype(int)
    candidates = np.ascontiguousarray(
        encode_each(recipe.encoding, known, settings).transpose(1, 0, 2)
    )
    ((weight, bias),) = split(recipe.dense, theta)
    assert bias is not None
    one_hot = np.eye(sizes["classes"])

    def run() -> Facts:
        chosen = []
        for inputs, label in zip(candidates, labels, strict=True):
            outputs = inputs @ weight.T + bias
            shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
            chosen.append(int(((shares - one_hot[label]) ** 2).sum(axis=1).argmin()))
        return {"decisions": "".join(map(str, chosen))}

    return Job(run)


LIMIT = (
    "One search is a hundred passes through the network, forwards and backwards twice; a solve "
    "cannot do without two passes, the records' Gram matrix and a factor of it, in float64. The "
    "ratio at the limit is that of these alone. Ours factors three matrices of that size (is every "
    "direction above the noise; a root of the Gram matrix; the posterior) and solves for all "
    "records: by cProfile half of its time. It is one solve where the papers try several rounds, "
    "temperatures and starts."
)
SAME = Check(
    "identical decisions",
    lambda ours, theirs: str(ours["decisions"]).startswith(str(theirs["decisions"])),
)
ENTRIES = (
    Entry(
        "attribute-decoding",
        "a two-valued attribute of 1000 records, MLP 446-128-30, one full-batch float32 round",
        Side("ours", _max_entropy),
        (
            Opponent(
                Side("cos-matching (100 Adam steps)", _cosine),
                goal=100,
                checks=(HIGHER,),
                note=LIMIT,
            ),
            Opponent(Side("L2-LBFGS", _lbfgs), goal=100, checks=(HIGHER,), note=LIMIT),
        ),
        {"records": 1000, "inputs": 446, "hidden": 128, "classes": 30, "values": 2}
        | {"adam_steps": 100, "lbfgs_steps": 200},
        {"records": 60, "inputs": 20, "hidden": 8, "classes": 3, "values": 2}
        | {"adam_steps": 5, "lbfgs_steps": 5},
        Side("two passes, Gram matrix and Cholesky factor alone", _algebra),
    ),
    Entry(
        "model-based",
        "model-based attribute inference, 10,000 records, K = 4, softmax regression of 50 inputs",
        Side("ours", _many),
        (
            Opponent(
                Side("loop over records and values", _record_by_record), goal=500, checks=(SAME,)
            ),
            Opponent(
                Side("leanest loop over records", _lean_loop),
                checks=(SAME,),
                note="encoding left out and all values of a record at once: shown so that nobody "
                "thinks the loop above was made slow",
            ),
        ),
        {"records": 10_000, "inputs": 47, "hidden": 0, "classes": 3, "values": 4}
        | {"records_shown": 1000},
        {"records": 80, "inputs": 8, "hidden": 0, "classes": 3, "values": 4, "records_shown": 40},
    ),
)
