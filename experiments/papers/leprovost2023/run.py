"""leprovost2023, figure 1: mean salaries of four groups of employees from one gradient.

A regression network is trained on 5,000 salaries; at several epochs a client's batch of 40 records
is attacked, 100 times with other batches. The paper compares its pseudo-inverse (MP) and Tikhonov
(T) solutions with the model's own mean predictions (naive) and gives no numbers, only a picture;
its statement is that T has the smallest error. We add a guess without listening (the auxiliary
records' mean label), our posterior, and the labels of single records where the inputs are known.

The paper names neither its data, nor the network, nor the group counts that the attack assumes.
Here: two tables, `salary`, very likely the paper's, and `wages`, of more people; hidden layers of
64 and 32, ReLU, plain steps of 0.01 on batches of 40 (each batch is a client's round), labels in
the units of the paper's picture (10k$ a year, or tens of dollars an hour), float32 gradients, known
counts (and unknown ones in rows of their own); 5,500 records drawn with groups as even as the table
allows, because in the natural mix of `wages` one in fifty has a PhD, and a batch of 40 would mostly
hold none. Epoch 0 is the untrained model, which the picture leaves out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.data import salary, wages
from experiments.papers.scoring import messages
from experiments.runner import Cell, Experiment, Values, cell
from overheard.attacks.baselines import AuxiliaryMean, Naive
from overheard.attacks.label import BayesGroups, LinearDecode
from overheard.attacks.papers.leprovost2023 import GroupMeansPinv, GroupMeansTikhonov, SingleRecord
from overheard.data.dataset import Data, Dataset
from overheard.decoding.labels import LabelOptions
from overheard.federation.plan import encoding_for
from overheard.programs.networks import initial, network
from overheard.programs.recipe import Dense, Recipe, Target
from overheard.programs.records import Records, encode
from overheard.programs.training import local_training, shards
from overheard.randomness import stream
from overheard.transcript.knowledge import (
    AuxiliaryData,
    Broadcast,
    ClientProgram,
    GroupCounts,
    Groups,
    Messages,
    PublicRecords,
)
from overheard.transcript.target import LABEL
from overheard.transcript.view import Attack, View, launch

GROUP = "education_group"
PUBLIC_SEED = 2023


@dataclass(frozen=True)
class Protocol:
    """Figure 1's protocol; ``per_training`` batches are attacked in each of 20 trainings.

    All batches of a training meet the same auxiliary records, whose chance they share: with 20 in
    each of 5 trainings the intervals' coverage moved by .04 from one training to the next.
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
    per_training: int = 5


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
        model = self.recipe.model.model_copy(update={"hidden": hidden})
        recipe = self.recipe.model_copy(update={"model": model})
        return replace(self, recipe=recipe, clients=self.different)

    def test_loss(self, model: NDArray[np.float32]) -> float:
        """Mean squared error on the auxiliary records, which are the paper's test set."""
        outputs = network(self.recipe).predict(model, encode(self.recipe.encoding, self.outside))
        return float(np.mean((outputs[:, 0] - self.recipe.target.encode(self.outside)) ** 2))

    def gradients(self, model: NDArray[np.float32], epoch: int) -> Messages:
        """All clients' gradients as one link whose rows are the clients."""
        data = shards(
            [encode(self.recipe.encoding, c) for c in self.clients],
            [self.recipe.target.encode(c) for c in self.clients],
            self.recipe.precision,
        )
        returned = local_training(self.recipe, model, data, stream(0, "unused"))
        sent = np.broadcast_to(model, returned.shape)
        weights = np.array([len(c) for c in self.clients], dtype=np.float64)
        return Messages("gradient", np.full(len(returned), epoch), sent, returned, weights)

    def view(self, client: int, link: Messages, counts: bool) -> View:
        """What the adversary holds about one client, whose rows of the link these are."""
        records, label = self.clients[client], self.recipe.target.column
        knowledge: dict[type[Any], Any] = {
            Messages: link,
            Broadcast: Broadcast((), link.sent[-1]),
            ClientProgram: ClientProgram(self.recipe),
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


def stacked(observed: list[Messages]) -> Messages:
    """Several epochs' links; a client's rows are its own row of each."""
    parts = ("rounds", "sent", "returned", "weights")
    together: dict[str, Any] = {
        name: np.concatenate([getattr(one, name) for one in observed]) for name in parts
    }
    return replace(observed[0], **together)


def make_world(dataset: Dataset, protocol: Protocol, number: int) -> World:
    rng = stream(PUBLIC_SEED, "split", number)
    table = dataset.records.without(dataset.client)
    values = tuple(sorted(set(table[GROUP].tolist())))
    pools = [rng.permutation(np.flatnonzero(table[GROUP] == v)) for v in values]
    drawn = rng.permutation(evenly(pools, protocol.auxiliary + protocol.train))
    outside, train = drawn[: protocol.auxiliary], drawn[protocol.auxiliary :]
    draws = [rng.choice(train, protocol.batch, replace=False) for _ in range(protocol.per_training)]
    alike = kinds(table.without(dataset.target))
    different = []
    for _ in range(protocol.per_training):
        _, first = np.unique(alike[shuffled := rng.permutation(train)], return_index=True)
        different.append(shuffled[np.sort(first)[: protocol.batch]])
    how = Data(source=dataset.name)
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
    inputs = encode(recipe.encoding, world.train).astype(recipe.precision)
    labels = recipe.target.encode(world.train).astype(recipe.precision)
    model = initial(recipe.model, PUBLIC_SEED + number).astype(recipe.precision)
    rng = stream(PUBLIC_SEED, "order", number)
    rate = model.dtype.type(recipe.learning_rate)
    for epoch in range(max(protocol.epochs) + 1):
        if epoch in protocol.epochs:
            yield epoch, model
        order = rng.permutation(len(labels))
        for begin in range(0, len(order), protocol.batch):
            rows = order[begin : begin + protocol.batch]
            batch = shards([inputs[rows]], [labels[rows]], recipe.precision)
            model = model - rate * local_training(recipe, model, batch, rng)[0]


def kinds(records: Records) -> NDArray[np.int64]:
    """A number per record, equal for records that agree in every column."""
    columns = [np.unique(v, return_inverse=True)[1] for v in records.columns.values()]
    return np.asarray(np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1]).ravel()


# ------------------------------------------------------------------------------------ the figure

SALARIES = {"salary": salary.load, "wages": wages.load}
UNKNOWN = ", counts unknown"
DECODE, DECODE_WIDE = "linear_decode", "linear_decode, hidden 64 and 64, no two records alike"
TOGETHER = "bayes_groups, all epochs together"
METHODS: dict[str, Attack] = {
    "naive": Naive(),
    "auxiliary_mean": AuxiliaryMean(),
    "group_means_pinv": GroupMeansPinv(),
    "group_means_tikhonov": GroupMeansTikhonov(),
    "bayes_groups": BayesGroups(),
    "bayes_groups, last layer only": BayesGroups(layers="last"),
    f"group_means_tikhonov{UNKNOWN}": GroupMeansTikhonov(),
    f"bayes_groups{UNKNOWN}": BayesGroups(),
    TOGETHER: BayesGroups(rounds=99),
    DECODE: LinearDecode(),
    DECODE_WIDE: LinearDecode(),
}


def fig1(one: Cell) -> Values:
    """One training: each measure by epoch, over its batches."""
    return figure1(SALARIES[one["table"]](), Protocol(), one.method, one.seed)


def figure1(dataset: Dataset, protocol: Protocol, method: str, number: int) -> Values:
    """The figure on a dataset that has the column ``education_group``."""
    world = make_world(dataset, protocol, number)
    if method == DECODE_WIDE:
        world = world.with_hidden(protocol.wide)
    found: dict[str, dict[str, float]] = {}
    links: list[Messages] = []
    for epoch, model in trained(world, protocol, number):
        links.append(world.gradients(model, epoch))
        if method == TOGETHER and epoch < max(protocol.epochs):
            continue
        link = stacked(links) if method == TOGETHER else links[-1]
        attacked = labels_of if method in (DECODE, DECODE_WIDE) else group_means
        begin = time.process_time()
        values = attacked(world, link, method)
        values["CPU seconds of a batch"] = (time.process_time() - begin) / len(world.clients)
        values["test loss"] = world.test_loss(model)
        for measure, value in values.items():
            found.setdefault(measure, {})[str(epoch)] = value
    return found


def group_means(world: World, link: Messages, method: str) -> dict[str, float]:
    """Median over clients of the mean absolute error over the groups present; and coverage."""
    label = world.recipe.target.column
    errors, covered = list[float](), list[float]()
    for client, records in enumerate(world.clients):
        rows = np.arange(client, len(link), len(world.clients))
        groups = {v: records[label][records[GROUP] == v] for v in world.values}
        present = np.array([len(labels) > 0 for labels in groups.values()])
        truth = np.array([labels.mean() for labels in groups.values() if len(labels)])
        view = world.view(client, messages(link, rows), counts=UNKNOWN not in method)
        guess = launch(METHODS[method], view, PUBLIC_SEED)
        misses, sd = np.abs(guess.means[present] - truth), guess.sd[present]
        errors.append(float(misses.mean()))
        if np.isfinite(sd).all():
            covered.append(float(np.mean(misses <= 1.96 * sd)))
    coverage = {"95% intervals that cover": float(np.mean(covered))} if covered else {}
    return {"error of group means": float(np.median(errors)), **coverage}


def labels_of(world: World, link: Messages, method: str) -> dict[str, float]:
    """Every label of clients whose inputs are known, and how many of 40 are identified."""
    label = world.recipe.target.column
    found: dict[str, list[float]] = {}
    for client, records in enumerate(world.clients):
        view = world.view(client, messages(link, np.array([client])), counts=False)
        guess = launch(METHODS[method], view, PUBLIC_SEED)
        missed = np.abs(guess.values - records[label])
        relative = missed / np.abs(records[label])
        sure = guess.sd <= LabelOptions().identified * float(guess.diagnostics["prior_sd"])
        _, times = np.unique(kinds(records.without(label)), return_counts=True)
        for measure, value in (
            ("relative error, worst label", relative.max()),
            ("relative error, worst identified label", relative[sure].max()),
            ("labels identified of 40", sure.sum()),
            ("records of 40 without a twin", (times == 1).sum()),
            ("95% intervals that cover", np.mean(missed <= 1.96 * guess.sd)),
        ):
            found.setdefault(measure, []).append(float(value))
    worst = {m: float(np.max(v)) for m, v in found.items() if m.startswith("relative")}
    return {m: float(np.mean(v)) for m, v in found.items()} | worst


def single(one: Cell) -> Values:
    """K = 1: how far the closed formula is from the label, at worst of 20 lone records."""
    world = make_world(SALARIES[one["table"]](), Protocol(batch=1, per_training=20), one.seed)
    label, worst = world.recipe.target.column, dict[str, float]()
    for epoch, model in trained(world, Protocol(), one.seed):
        link = world.gradients(model, epoch)
        views = (world.view(i, messages(link, np.array([i])), False) for i in range(len(link)))
        found = [float(launch(SingleRecord(), view, PUBLIC_SEED).values[0]) for view in views]
        truth = np.array([float(records[label][0]) for records in world.clients])
        worst[str(epoch)] = float(np.abs(found / truth - 1).max())
    return {"relative error, worst of 20": worst}


EXPERIMENTS = (
    Experiment(
        "leprovost2023-single",
        "K = 1: a lone record's label",
        single,
        lambda: [cell("single_record", s, 2, s == 0, table=t) for t in SALARIES for s in range(5)],
    ),
    Experiment(
        "leprovost2023-fig1",
        "mean salaries of four groups from one gradient, by epoch",
        fig1,
        lambda: [
            cell(m, seed, 3, quick=seed == 0, table=table)
            for table in SALARIES
            for m in METHODS
            for seed in range(20)
        ],
    ),
)
