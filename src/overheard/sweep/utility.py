"""What the federation's model is worth on records that nobody trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixRecording
from overheard.learning.recipe import Recipe
from overheard.learning.records import Records, encode
from overheard.programs.networks import network
from overheard.transcript.messages import TOTAL, layout_for, message_arrays, read_message
from overheard.transcript.store import Recording

Array = NDArray[np.float64]


def global_model(recording: Recording, recipe: Recipe, weighting: str = "size") -> Array:
    """The global model after the last round, as the server computes it from what it heard.

    ``weighting``: clients count by the ``size`` they reported, or are ``equal``. Under secure
    aggregation the server holds the sum, in which they are equal.
    """
    if not recording.rounds:
        raise FixRecording(f"{recording.path}: no round was recorded, so there is no model")
    last, folder = recording.rounds[-1], recording.path / "wire"

    def message(way: str, client: str) -> Array:
        layout = layout_for(last.layout, way)
        arrays = dict(message_arrays(layout, read_message(folder, last, way, client)))
        flat = [arrays[name].reshape(-1) for name, _ in recipe.model.layout()]
        return np.concatenate(flat).astype(np.float64)

    if last.aggregated:
        if not last.participants:
            raise FixRecording(
                f"{recording.path}: nobody said how many clients are in the sum of round "
                f"{last.number}, so there is no mean"
            )
        rate = recipe.learning_rate if recording.payload == "gradient" else 1.0
        return message("sent", "") - rate * message(*TOTAL) / len(last.participants)
    who = [client for way, client in last.spans if way == "returned"]
    sizes = np.array([last.weights.get(c, np.nan) for c in who])
    if weighting == "equal" or not np.isfinite(sizes).all():
        sizes = np.ones(len(who))
    mean = np.average([message("returned", c) for c in who], axis=0, weights=sizes)
    if recording.payload == "gradient":
        return message("sent", "") - recipe.learning_rate * mean
    return np.asarray(mean)


def utility(recipe: Recipe, model: Array, held: Records) -> tuple[float, str]:
    """Accuracy of a classifier, share of explained variance of a regression; and which it is."""
    inputs, labels = encode(recipe.encoding, held), recipe.target.encode(held)
    outputs = np.asarray(_predicted(recipe, model, inputs), dtype=np.float64)
    if recipe.loss == "squared_error":
        left = float(np.mean((outputs[:, 0] - labels) ** 2))
        return 1 - left / float(labels.var()), "r2"
    chosen = (outputs[:, 0] > 0) if outputs.shape[1] == 1 else outputs.argmax(axis=1)
    return float(np.mean(chosen == labels)), "accuracy"


def _predicted(recipe: Recipe, model: Array, inputs: Array) -> NDArray[np.floating[Any]]:
    return network(recipe).predict(model, inputs)
