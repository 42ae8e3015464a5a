"""What the federation's model is worth on records that nobody trained on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixRecording
from overheard.federation.server import ServerRule, WeightedMean, aggregate, aggregate_sum
from overheard.programs.losses import loss_named
from overheard.programs.networks import network
from overheard.programs.program import Program
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, encode
from overheard.randomness import stream
from overheard.transcript.messages import TOTAL, Round, returns_gradients
from overheard.transcript.store import Recording

Array = NDArray[np.float64]


def global_model(recording: Recording, recipe: Recipe, rule: ServerRule | None = None) -> Array:
    """The global model after the last round, as the server computes it from what it heard.

    ``rule``: how it does, by default the mean, weighted by the sizes that the clients reported;
    where they reported none, and in sums, they are equal.
    """
    if not recording.rounds:
        raise FixRecording(f"{recording.path}: no round was recorded, so there is no model")
    rule = rule or WeightedMean()
    state = rule.init(recipe.model.size)
    model: NDArray[np.floating[Any]] = np.zeros(recipe.model.size)
    for entry in recording.rounds if state else recording.rounds[-1:]:
        if state or entry.aggregated or returns_gradients(recording.payload):
            model = _message(recording, recipe, entry, "sent", "")
        if entry.aggregated:
            if not entry.participants:
                raise FixRecording(
                    f"{recording.path}: nobody said how many clients are in the sum of round "
                    f"{entry.number}, so there is no mean"
                )
            total, who = _message(recording, recipe, entry, *TOTAL), len(entry.participants)
            model, state = aggregate_sum(rule, state, recipe, model, total, who)
            continue
        clients = [client for way, client in entry.spans if way == "returned"]
        sizes = np.array([entry.weights.get(c, np.nan) for c in clients])
        if not np.isfinite(sizes).all():
            sizes = np.ones(len(clients))
        returned = [_message(recording, recipe, entry, "returned", c) for c in clients]
        model, state = aggregate(rule, state, recipe, model, np.array(returned), sizes)
    return np.asarray(model, np.float64)


def _message(recording: Recording, recipe: Recipe, entry: Round, way: str, client: str) -> Array:
    (arrays,) = recording.messages(entry, [(way, client)])
    flat = [arrays[name].reshape(-1) for name, _ in recipe.model.layout()]
    return np.concatenate(flat).astype(np.float64)


def utility(recipe: Recipe, model: Array, held: Records) -> tuple[float, str]:
    """Accuracy of a classifier, share of explained variance of a regression; and which it is."""
    outputs = np.asarray(network(recipe).predict(model, encode(recipe.encoding, held)), np.float64)
    return _score(outputs, recipe.target.encode(held), loss_named(recipe.loss).classes)


def worth(
    recording: Recording, program: Program, bare: Program, held: Records
) -> tuple[float, str]:
    """The same of the model that a program makes after its last round; where it makes none, how
    close its last release is, over all clients, to what ``bare``, without defences, releases."""
    if not recording.rounds:
        raise FixRecording(f"{recording.path}: no round was recorded, so nothing was released")
    entry = recording.rounds[-1]
    said = [TOTAL] if entry.aggregated else [key for key in entry.spans if key[0] == "returned"]
    sent, *heard = recording.messages(entry, [("sent", ""), *said])
    returned = {client: arrays for (_, client), arrays in zip(said, heard, strict=True)}
    outputs = program.predict(program.following(sent, returned), held)
    if outputs is not None:
        return _score(outputs, program.target.encode(held), bool(program.target.classes))
    rng, truth = stream(0, "worth"), recording.truth()
    true = _added([bare.respond(sent, truth[c], rng) for c in entry.participants or ()])
    found = _added(list(returned.values()))
    off = sum(np.abs(a - b).sum() for a, b in zip(found, true, strict=True))
    return 1 - float(off / max(sum(np.abs(b).sum() for b in true), 1e-300)), "closeness of tables"


def _added(messages: list[Mapping[str, NDArray[Any]]]) -> list[Array]:
    """The numbers of several messages, added up; what is not shown (below 0 in counts) is 0."""
    kept = [[a for n, a in m.items() if not n.endswith("shown")] for m in messages]
    hidden = [[np.where(a < 0, 0, a) if a.dtype.kind == "i" else a for a in one] for one in kept]
    return [np.sum(parts, axis=0, dtype=np.float64) for parts in zip(*hidden, strict=True)]


def _score(outputs: Array, labels: Array, classes: bool) -> tuple[float, str]:
    if not classes:
        left = float(np.mean((outputs[:, 0] - labels) ** 2))
        return 1 - left / float(labels.var()), "r2"
    chosen = (outputs[:, 0] > 0) if outputs.shape[1] == 1 else outputs.argmax(axis=1)
    return float(np.mean(chosen == labels)), "accuracy"
