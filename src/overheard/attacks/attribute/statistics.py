"""Which value does the client's own model like best? (lyu2021 section 4.3, "stats")

For every record and candidate value the adversary asks the models that the client returned: one
statistic per value and epoch, a K x E matrix a record. Six heuristics choose a row each, the
seventh is their majority. They read the models only, never the updates' sums.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.wire import spread
from overheard.errors import ChooseAnotherAttack
from overheard.programs.losses import loss_named
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.programs.records import encode
from overheard.transcript.guess import AttributeValues, certain
from overheard.transcript.knowledge import (
    AttributeDomain,
    Labels,
    Link,
    LocalTraining,
    PublicRecords,
)
from overheard.transcript.view import View

Array = NDArray[np.float64]
Rule = Literal[
    "majority",
    "label_status",
    "probability",
    "loss_norm",
    "final_loss",
    "gradient_norm",
    "true_label_gradient",
]


def statistic_matrices(recipe: Recipe, models: Array, candidates: Array, labels: Array) -> Array:
    """Statistics (5, K, m, E) under each of the E models: was the label predicted (1 or 0), its
    probability, the loss, the norm of the last layer's gradient, and the sum of that gradient over
    the weights that lead to the true label (which is negative).
    """
    made = [_statistics(recipe, theta, candidates, labels) for theta in models]
    return np.stack(made, axis=-1)


def _statistics(recipe: Recipe, theta: Array, candidates: Array, labels: Array) -> Array:
    net, loss = network(recipe), loss_named(recipe.loss)
    outputs = np.asarray(net.predict(theta, candidates), dtype=np.float64)
    chances = loss.chances(outputs)
    true = labels.astype(np.int64)
    people = np.arange(len(true))
    chance = chances[:, people, true]
    found = [
        chances.argmax(axis=-1) == true,
        chance,
        np.stack([loss.values(out, labels) for out in outputs]),
    ]
    norms, leading = [], []
    for inputs in candidates:
        last = net.rows(theta, inputs, labels).output_layer
        a, delta, bias = last.inputs, last.errors, float(last.bias)
        norms.append(np.sqrt(last.lengths()))
        # one output stands for two classes: towards the true one its error is |p - y|
        error = delta[people, true] if delta.shape[1] > 1 else -np.abs(delta[:, 0])
        leading.append(error * (a.sum(axis=1) + bias))
    return np.stack([*found, np.stack(norms), np.stack(leading)]).astype(np.float64)


def votes(matrices: Array) -> dict[str, NDArray[np.int64]]:
    """The row (m,) that each of the seven heuristics chooses; the first among equals."""
    right, chance, loss, norm, leading = matrices
    chosen = {
        "label_status": right.sum(axis=-1).argmax(axis=0),
        "probability": chance.sum(axis=-1).argmax(axis=0),
        "loss_norm": np.abs(loss).sum(axis=-1).argmin(axis=0),
        "final_loss": loss[..., -1].argmin(axis=0),
        "gradient_norm": norm.sum(axis=-1).argmax(axis=0),
        "true_label_gradient": leading.sum(axis=-1).argmax(axis=0),
    }
    rows = np.stack(list(chosen.values()))
    counts = (rows[:, None, :] == np.arange(len(right))[None, :, None]).sum(axis=0)
    return {"majority": counts.argmax(axis=0), **chosen}


@dataclass(frozen=True)
class Statistics:
    """Asks the client's returned models, epoch by epoch, about every candidate value of every
    record and follows simple heuristics: the value with which the label is predicted more often or
    more surely, the loss is less, the last layer's gradient larger; by default the majority of six.

    Settings: ``rule``, the heuristic to follow; ``epochs``, how many of the returned models are
    asked (spread evenly).
    """

    name: ClassVar[str] = "statistics"
    paper: ClassVar[str] = "lyu2021"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {Link, LocalTraining, PublicRecords, Labels, AttributeDomain}
    )

    rule: Rule = "majority"
    epochs: int = 20

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        values = view.know(AttributeDomain).values
        choice = votes(matrices_of(view, self.epochs))[self.rule]
        return AttributeValues(certain(choice, values), values, claims=False)


def matrices_of(view: View, epochs: int) -> Array:
    """The statistics of the client's records under the models that it returned."""
    recipe, link, domain = (
        view.know(LocalTraining).recipe,
        view.know(Link),
        view.know(AttributeDomain),
    )
    if not recipe.target.classes:
        raise ChooseAnotherAttack(
            "counts predicted classes and their probabilities; here the label is a number"
        )
    records = view.know(PublicRecords).records
    candidates = np.stack([encode(recipe.encoding, records, s) for s in domain.settings])
    used = spread(len(link), epochs)
    models = link.returned[used].astype(np.float64)
    if link.gradients:
        models = link.sent[used].astype(np.float64) - recipe.learning_rate * models
    labels = recipe.target.encode_values(view.know(Labels).values)
    return statistic_matrices(recipe, models, candidates, labels)
