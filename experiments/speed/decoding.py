"""Attributes: decoding against searching."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.speed.measure import Comparison, Facts, Job, Party, Sizes
from overheard.data.dataset import Dataset
from overheard.randomness import stream
from overheard.transcript.view import View, launch, observe

Array = NDArray[Any]


def dataset(sizes: Sizes) -> Dataset:
    """Generated users of one client: public zeros and ones, a secret with K candidates, classes."""
    from experiments.recordings import people

    rng = stream(0, "bench", "attribute")
    records, inputs, classes = sizes["records"], sizes["inputs"], sizes["classes"]
    public = (rng.random((records, inputs - 1)) < 0.1).astype(np.float64)
    secret = rng.integers(sizes["candidates"], size=records).astype(np.float64)
    scores = public @ rng.normal(size=(inputs - 1, classes)) + np.outer(
        secret, rng.normal(size=classes)
    )
    columns: dict[str, Array] = {f"x{j}": public[:, j] for j in range(inputs - 1)}
    columns["s"] = secret
    columns["y"] = np.array([f"c{k}" for k in scores.argmax(axis=1)])
    columns["at"] = np.repeat("victim", records)
    return people(columns, classes=True)


def view_of(sizes: Sizes, folder: Path) -> tuple[View, Array]:
    """What an eavesdropper holds after ``rounds`` full-batch rounds, and the truth."""
    from experiments.recordings import federation, simulated
    from overheard.transcript.store import Recording
    from overheard.transcript.target import attribute
    from overheard.transcript.threat import EAVESDROPPER

    run = folder / "run"
    if not run.exists():
        model: dict[str, Any] = {"name": "logistic"}
        if sizes["hidden"]:
            model = {"name": "mlp", "hidden": [sizes["hidden"]] * sizes.get("layers", 1)}
        training = {"rounds": sizes.get("rounds", 1), "learning_rate": 0.1}
        simulated(federation(0, "file", model, training), dataset(sizes), run)
    recording = Recording.open(run)
    view = observe(recording, EAVESDROPPER, attribute("s"), "victim")
    return view, recording.truth()["victim"]["s"]


def attacked(attack: Any, view: View, truth: Array) -> Facts:
    """Run an attack; the accuracy of its choices."""
    guess = launch(attack, view, 0)
    values = np.asarray(guess.values)[guess.probabilities.argmax(axis=1)]
    return {"accuracy": float((values == truth).mean())}


def attribute(sizes: Sizes, folder: Path) -> Job:
    from overheard.attacks.attribute import MaxEntropy

    view, truth = view_of(sizes, folder)
    return Job(lambda: attacked(MaxEntropy(), view, truth))


def _cosine(sizes: Sizes, folder: Path) -> Job:
    from overheard.attacks.papers.lyu2021 import CosMatching

    view, truth = view_of(sizes, folder)
    search = CosMatching(phases=("pre1",), temperatures=(1.0,), steps=sizes["steps"])
    warm = CosMatching(phases=("pre1",), temperatures=(1.0,), steps=1)
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


LINES = (
    # One search is a hundred passes through the network, forwards and backwards twice. A solve of
    # all equations cannot do without two passes, the records' Gram matrix and a factor of it, in
    # float64: what is possible is these alone. Ours encodes the records, makes both from a part of
    # the equations in float32, and holds the answer against every number observed, in float64. It
    # is one solve where the papers try several rounds, temperatures and starts.
    Comparison(
        "attribute-decoding",
        "a two-valued attribute of 1000 records, MLP 446-128-30, one full-batch float32 round",
        attribute,
        Party("cos-matching (100 Adam steps)", _cosine),
        {
            "records": 1000,
            "inputs": 446,
            "hidden": 128,
            "classes": 30,
            "candidates": 2,
            "steps": 100,
        },
        {"records": 60, "inputs": 20, "hidden": 8, "classes": 3, "candidates": 2, "steps": 5},
        goal=50,
        limit=_algebra,
        check=lambda ours, theirs: bool(ours["accuracy"] > theirs["accuracy"]),
    ),
)
