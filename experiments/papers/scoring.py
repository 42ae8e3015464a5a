"""What the papers' experiments share: an attack on every client, and how far apart clients are."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.runner import HERE, Values
from overheard.evaluation import metrics
from overheard.evaluation.baselines import Imputer, majority_share
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records
from overheard.transcript.kind import recipe_of
from overheard.transcript.knowledge import Messages
from overheard.transcript.store import Recording
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import Attack, launch, observe

Array = NDArray[np.float64]
OURS, IMPUTATION = "max_entropy", "imputation"
"""`IMPUTATION`: a model of the secret trained on the other clients' records, without listening."""


def printed(paper: str) -> dict[str, Any]:
    """What a paper prints, of its folder's ``claims.toml``."""
    return tomllib.loads((HERE / "papers" / paper / "claims.toml").read_text("utf-8"))


def truth_and_recipe(recording: Recording) -> tuple[dict[str, Records], Recipe]:
    """What scoring needs."""
    recipe = recipe_of(recording)
    assert recipe is not None, "the simulator always writes the recipe"
    return recording.truth(), recipe


def messages(link: Messages, rows: NDArray[np.int64]) -> Messages:
    """These rows of a link alone."""
    parts = ("rounds", "sent", "returned", "weights")
    return replace(link, **{name: getattr(link, name)[rows] for name in parts})


def attribute_values(
    recording: Recording, column: str, attack: Attack | None, seed: int, clients: Sequence[str] = ()
) -> Values:
    """Accuracy, majority and CPU seconds by client; of ours the calibration error too.

    Only clients in whose records the column varies. No attack: the imputation.
    """
    truth, recipe = truth_and_recipe(recording)
    values = tuple(sorted({v for r in truth.values() for v in r[column].tolist()}))
    found: dict[str, dict[str, float]] = {}
    for client in clients or recording.clients:
        secret = truth[client][column]
        if len(set(secret.tolist())) == 1:
            continue
        begin, got = time.process_time(), dict[str, float]()
        if attack is None:
            imputed = Imputer(seed).values(recipe, truth, client, attribute(column), values)
            assert imputed is not None, "there are other clients to learn from"
            got["accuracy"] = float(imputed.hits.mean())
        else:
            view = observe(recording, EAVESDROPPER, attribute(column), client)
            guess = launch(attack, view, seed)
            got["accuracy"] = float(metrics.attribute_hits(guess, secret).mean())
            if attack.name == OURS:
                got["calibration error"] = metrics.calibration_error(guess, secret)
        got["CPU seconds"] = time.process_time() - begin
        got["majority"] = majority_share(secret, values)
        for measure, value in got.items():
            found.setdefault(measure, {})[client] = value
    return found


def relative(model: Array, reference: Array) -> float:
    """||model - reference|| / ||reference||."""
    return float(np.linalg.norm(model - reference) / np.linalg.norm(reference))


def mean_distances(recipe: Recipe, truth: Mapping[str, Records]) -> dict[str, float]:
    """Each client's mean of ||theta_i - theta_j|| / ||theta_j|| over the others' local optima.

    xu2021, Figure 1a; driouich2022, Figure 2. Where a rare category separates the classes a local
    optimum lies at infinity: the distance then says how far the search for it went.
    """
    optima = {c: metrics.local_optimum(recipe, r) for c, r in truth.items()}
    apart: dict[str, list[float]] = {client: [] for client in optima}
    for mine, other in permutations(optima, 2):
        apart[mine].append(relative(optima[mine], optima[other]))
    return {client: float(np.mean(found)) for client, found in apart.items()}


def by_client(methods: Mapping[str, str], clients: Sequence[str]) -> dict[str, dict[str, float]]:
    """A paper's printed rows in per cent, by method and client; the last number is the mean."""
    return {
        method: dict(zip((*clients, "mean"), (float(n) / 100 for n in line.split()), strict=True))
        for method, line in methods.items()
    }
