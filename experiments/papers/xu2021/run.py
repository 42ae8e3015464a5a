"""xu2021: the model that a client would have trained alone, from what it sends.

Table 1 on LEAF synthetic (the paper does not state its rounds; here 300; local steps are the local
epochs E of its Algorithm 2), with both rules of its labels, as it does not say which version of
LEAF it ran; Figure 1 on Adult. Every method on the same seeds: between seeds the last returned
model's accuracy varies more than methods differ.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from experiments.papers.scoring import by_client, mean_distances, printed, truth_and_recipe
from experiments.recordings import federation, recorded
from experiments.runner import Cell, Experiment, Values, cell
from overheard.attacks.baselines import GlobalModel, LastReturned
from overheard.attacks.local_model import Structured
from overheard.attacks.papers.xu2021 import LearnedMap
from overheard.evaluation import metrics
from overheard.evaluation.baselines import majority_share
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, encode
from overheard.transcript.guess import LocalModel
from overheard.transcript.store import Recording
from overheard.transcript.target import LOCAL_MODEL
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import Attack, launch, observe

Array = NDArray[np.float64]
LEARNED = "learned_map"
METHODS: dict[str, Attack] = {
    attack.name: attack for attack in (GlobalModel(), LastReturned(), Structured(), LearnedMap())
}
CLIENTS = tuple(f"client {i}" for i in range(5))
TABLE1 = {int(s): by_client(rows, CLIENTS) for s, rows in printed("xu2021")["table1"].items()}
"""By local steps."""


def local_accuracy(recipe: Recipe, theta: Array, records: Records) -> float:
    """Share of a client's own records that a model classifies right."""
    outputs = network(recipe).predict(theta, encode(recipe.encoding, records))
    labels = recipe.target.encode(records)
    chosen = outputs[:, 0] > 0 if outputs.shape[1] == 1 else outputs.argmax(axis=1)
    return float(np.mean(chosen == labels))


def models(
    recording: Recording, method: str, seed: int, clients: Sequence[str] = ()
) -> dict[str, LocalModel]:
    """What a method makes of every client."""
    views = {
        client: observe(recording, EAVESDROPPER, LOCAL_MODEL, client)
        for client in clients or recording.clients
    }
    return {client: launch(METHODS[method], view, seed) for client, view in views.items()}


def table1(one: Cell) -> Values:
    """Accuracy on the client's own records, and excess loss over its local optimum, by client."""
    training = {"rounds": 300, "learning_rate": 0.01, "batch_size": 256, "epochs": one["steps"]}
    options = {"seed": one.seed, "labels": one["labels"]}
    config = federation(one.seed, "leaf_synthetic", "logistic", training, options)
    with recorded(config, shared=True) as recording:
        begin = time.process_time()
        guesses = models(recording, one.method, one.seed)
        seconds = time.process_time() - begin
        return {**local_scores(recording, guesses), "CPU seconds": seconds}


def local_scores(
    recording: Recording, guesses: Mapping[str, LocalModel]
) -> dict[str, dict[str, float]]:
    """Of each client's guessed model: its accuracy beside the majority's, and its excess loss."""
    truth, recipe = truth_and_recipe(recording)
    found: dict[str, dict[str, float]] = {}
    for client, guess in guesses.items():
        records, theta = truth[client], guess.parameters
        best = metrics.client_losses(recipe, metrics.local_optimum(recipe, records), records).mean()
        labels = records[recipe.target.column]
        for measure, value in (
            ("local accuracy", local_accuracy(recipe, theta, records)),
            ("majority", majority_share(labels, recipe.target.classes)),
            ("excess loss", metrics.client_losses(recipe, theta, records).mean() - best),
        ):
            found.setdefault(measure, {})[client] = float(value)
    return found


def fig1(one: Cell) -> Values:
    """Adult: how far local optima lie apart (a), the map's loss (b), test accuracy (c).

    The map's loss is equation (9)'s: the sum over the rounds of the squared distance between the
    update that the map says and the update observed. The client's data are all used for training,
    so the test set is what the other PhDs hold: people like the client's that it never saw.
    """
    steps = {"batch_size": one["batch"], "steps": 1 if one["batch"] else 0}
    training = {"rounds": 300, "learning_rate": 0.001, **steps}
    config = federation(one.seed, "adult", "logistic", training, {"seed": one.seed})
    with recorded(config, shared=True) as recording:
        truth, recipe = truth_and_recipe(recording)
        if one.method == "local optima":
            return {"mean distance to others": mean_distances(recipe, truth)}
        guess = models(recording, one.method, one.seed, ["client 1"])["client 1"]
        others = [truth[c] for c in ("client 0", "client 2")]
        score = np.mean([local_accuracy(recipe, guess.parameters, o) for o in others])
        loss = {"map loss": guess.diagnostics["map_loss"]} if one.method == LEARNED else {}
        return {"test accuracy": float(score), **loss}


def cost(method: str) -> float:
    return 40.0 if method == LEARNED else 2.0


def table1_cells() -> list[Cell]:
    return [
        cell(method, seed, cost(method), seed == 0 and method != LEARNED, labels=rule, steps=steps)
        for rule in ("before 2019", "published")
        for steps in TABLE1
        for method in METHODS
        for seed in range(10)
    ]


def fig1_cells() -> list[Cell]:
    return [cell("local optima", batch=0, cost=20, quick=True)] + [
        cell(method, seed, cost(method), seed == 0 and method != LEARNED, batch=batch)
        for batch in (32, 64, 128, 0)
        for method in METHODS
        for seed in range(10)
    ]


def table1_claims(one: Cell) -> Values:
    return {"local accuracy": TABLE1[one["steps"]].get(one.method, {})}


EXPERIMENTS = (
    Experiment(
        "xu2021-table1", "local models, LEAF synthetic", table1, table1_cells, claims=table1_claims
    ),
    Experiment("xu2021-fig1", "Adult: local optima, the map's loss, test", fig1, fig1_cells),
)
