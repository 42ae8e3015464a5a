"""leprovost2023's world: records split into training set, auxiliary set and clients, and a network
trained on batches of 40.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.data.dataset import Dataset
from overheard.federation.federation import DataConfig
from overheard.federation.plan import encoding_for
from overheard.programs.networks import initial, network
from overheard.programs.recipe import Dense, Recipe, Target
from overheard.programs.records import Records, encode
from overheard.programs.training import local_training, shards
from overheard.randomness import stream
from overheard.transcript.knowledge import (
    AuxiliaryData,
    Broadcast,
    GroupCounts,
    Groups,
    Link,
    LocalTraining,
    PublicRecords,
)
from overheard.transcript.target import LABEL
from overheard.transcript.view import View

GROUP = "education_group"
PUBLIC_SEED = 2023


@dataclass(frozen=True)
class Protocol:
    """Figure 1's protocol; ``per_training`` batches are attacked in each of several trainings.

    ``wide`` is a second network, with more last-layer parameters than a batch has records, on
    which the labels of records that all differ are decoded.
    """

    train: int = 5000
    auxiliary: int = 500
    batch: int = 40
    hidden: tuple[int, ...] = (64, 32)
    wide: tuple[int, ...] = (64, 64)
    learning_rate: float = 0.01
    epochs: tuple[int, ...] = (0, 1, 2, 5, 10, 20)
    per_training: int = 20


@dataclass(frozen=True)
class World:
    """One split of the table: what is trained on, what the adversary holds, who is attacked.

    ``different`` are further clients, no two of whose records have equal inputs.
    """

    recipe: Recipe
    train: Records
    outside: Records
    clients: tuple[Records, ...]
    different: tuple[Records, ...]
    values: tuple[Any, ...]

    def with_hidden(self, hidden: tuple[int, ...]) -> World:
        """Another network, and the clients no two of whose records have equal inputs."""
        model = self.recipe.dense.model_copy(update={"hidden": hidden})
        recipe = self.recipe.model_copy(update={"model": model})
        return replace(self, recipe=recipe, clients=self.different)

    def test_loss(self, model: NDArray[np.float32]) -> float:
        """Mean squared error on the auxiliary records, which are the paper's test set."""
        outputs = network(self.recipe).predict(model, encode(self.recipe.encoding, self.outside))
        return float(np.mean((outputs[:, 0] - self.recipe.target.encode(self.outside)) ** 2))

    def gradients(self, model: NDArray[np.float32], epoch: int) -> Link:
        """All clients' gradients as one link whose rows are the clients."""
        data = shards(
            [encode(self.recipe.encoding, c) for c in self.clients],
            [self.recipe.target.encode(c) for c in self.clients],
            self.recipe.wire,
        )
        returned = local_training(self.recipe, model, data, stream(0, "unused"))
        sent = np.broadcast_to(model, returned.shape)
        weights = np.array([len(c) for c in self.clients], dtype=np.float64)
        return Link("gradient", np.full(len(returned), epoch), sent, returned, weights)

    def view(self, client: int, link: Link, counts: bool) -> View:
        """What the adversary holds about one client, whose rows of the link these are."""
        records, label = self.clients[client], self.recipe.target.column
        knowledge: dict[type[Any], Any] = {
            Link: link,
            Broadcast: Broadcast((), link.sent[-1]),
            LocalTraining: LocalTraining(self.recipe),
            PublicRecords: PublicRecords(records.without(label)),
            AuxiliaryData: AuxiliaryData(self.outside.without(label), self.outside[label]),
            Groups: Groups(GROUP, self.values),
        }
        if counts:
            column = records[GROUP]
            knowledge[GroupCounts] = GroupCounts(
                tuple(int(np.sum(column == v)) for v in self.values)
            )
        return View(f"batch {client}", LABEL, "server", knowledge)


def stacked(heard: list[Link]) -> Link:
    """Several epochs' links; a client's rows are its own row of each."""
    parts = ("rounds", "sent", "returned", "weights")
    together: dict[str, Any] = {
        name: np.concatenate([getattr(one, name) for one in heard]) for name in parts
    }
    return replace(heard[0], **together)


def make_world(dataset: Dataset, protocol: Protocol, number: int, batches: int) -> World:
    rng = stream(PUBLIC_SEED, "split", number)
    table = dataset.records.without(dataset.client)
    values = tuple(sorted(set(table[GROUP].tolist())))
    pools = [rng.permutation(np.flatnonzero(table[GROUP] == v)) for v in values]
    drawn = rng.permutation(evenly(pools, protocol.auxiliary + protocol.train))
    outside, train = drawn[: protocol.auxiliary], drawn[protocol.auxiliary :]
    draws = [rng.choice(train, protocol.batch, replace=False) for _ in range(batches)]
    alike = kinds(table.without(dataset.target))
    different = []
    for _ in range(batches):
        _, first = np.unique(alike[shuffled := rng.permutation(train)], return_index=True)
        different.append(shuffled[np.sort(first)[: protocol.batch]])
    how = DataConfig(source=dataset.name)
    encoding = encoding_for(dataset, {}, how, dataset.records, dataset.records)
    recipe = Recipe(
        algorithm="fedsgd",
        model=Dense(inputs=encoding.width, hidden=protocol.hidden),
        loss="squared_error",
        encoding=encoding,
        target=Target(column=dataset.target),
        learning_rate=protocol.learning_rate,
    )
    return World(
        recipe,
        table.take(train),
        table.take(outside),
        tuple(table.take(rows) for rows in draws),
        tuple(table.take(rows) for rows in different),
        values,
    )


def evenly(pools: list[NDArray[np.int64]], wanted: int) -> NDArray[np.int64]:
    """So many rows, the groups as even as their sizes allow."""
    taken: list[NDArray[np.int64]] = []
    for done, pool in enumerate(sorted(pools, key=len)):
        share = (wanted - sum(map(len, taken))) // (len(pools) - done)
        taken.append(pool[: min(share, len(pool))])
    return np.concatenate(taken)


def trained(
    world: World, protocol: Protocol, number: int
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """The global model at each epoch asked for: every step is one client's batch of 40."""
    recipe = world.recipe
    inputs = encode(recipe.encoding, world.train).astype(recipe.wire)
    labels = recipe.target.encode(world.train).astype(recipe.wire)
    model = initial(recipe.dense, PUBLIC_SEED + number).astype(recipe.wire)
    rng = stream(PUBLIC_SEED, "order", number)
    rate = model.dtype.type(recipe.learning_rate)
    for epoch in range(max(protocol.epochs) + 1):
        if epoch in protocol.epochs:
            yield epoch, model
        order = rng.permutation(len(labels))
        for begin in range(0, len(order), protocol.batch):
            rows = order[begin : begin + protocol.batch]
            batch = shards([inputs[rows]], [labels[rows]], recipe.wire)
            model = model - rate * local_training(recipe, model, batch, rng)[0]


def kinds(records: Records) -> NDArray[np.int64]:
    """A number per record, equal for records that agree in every column."""
    columns = [np.unique(v, return_inverse=True)[1] for v in records.columns.values()]
    return np.asarray(np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1]).ravel()
