"""leprovost2023, figure 1: mean salaries of four groups of employees from one gradient.

A regression network is trained on 5,000 salaries; at several epochs a client's batch of 40 records
is attacked, 100 times with other batches. The paper compares its pseudo-inverse (MP) and Tikhonov
(T) solutions with the model's own mean predictions (naive) and gives no numbers, only a picture.
We add a stranger's guess (the auxiliary records' mean label), our posterior, and the labels of
single records where the inputs are known.

The paper names neither its data, nor the network, nor the group counts that the attack assumes.
Here (papers/leprovost2023 tells what was tried before): the `wages` source; hidden layers of 64
and 32, ReLU, plain steps of 0.01 on batches of 40 (each batch is a client's round), labels in
the units of the paper's picture (tens of dollars an hour for its tens of thousands a year),
float32 gradients, known counts (and unknown ones in rows of their own); 5,500 records drawn
with groups as even as the table allows, because one in fifty has a PhD and a batch of 40
in the natural mix would mostly hold none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.label.baseline import AuxiliaryMean, Naive
from overheard.attacks.label.bayes_groups import BayesGroups
from overheard.attacks.label.group_means import GroupMeansPinv, GroupMeansTikhonov
from overheard.attacks.label.linear_decode import LinearDecode
from overheard.data import catalogue
from overheard.data.dataset import Dataset
from overheard.decoding.label_solve import IDENTIFIED
from overheard.federation.plan import encoding_for
from overheard.learning.dense import initial, predict
from overheard.learning.recipe import Dense, Recipe, Target
from overheard.learning.records import Records, encode
from overheard.learning.training import local_training, shards
from overheard.randomness import stream
from overheard.reproduce.rows import Experiment, Progress, Reproduction, Row
from overheard.transcript.knowledge import (
    AuxiliaryData,
    GroupCounts,
    Groups,
    Link,
    LocalTraining,
    PublicRecords,
)
from overheard.transcript.target import LABEL
from overheard.transcript.view import Attack, View, launch

Array = NDArray[np.float64]
PAPER = "leprovost2023"
GROUP = "education_group"
PUBLIC_SEED = 2023
ERROR = "median absolute error of group means"
COVERAGE = "share of 95% intervals that cover"
SURE = "labels identified of 40"
ALONE = "records of 40 that share their inputs with no other"
WORST = "largest relative error of all 40 labels, worst batch"
WORST_SURE = "largest relative error of an identified label, worst batch"
NO_TWINS = "linear_decode, hidden 64 and 64, no two records alike"
SUMMARIES: Mapping[str, Callable[..., Any]] = {
    ERROR: np.median,
    SURE: np.mean,
    ALONE: np.mean,
    WORST: np.max,
    WORST_SURE: np.max,
}
Key = tuple[str, str, str]
LINES = {
    "naive": ("#7f7f7f", "--", "naive: mean prediction"),
    "auxiliary_mean": ("#000000", "--", "auxiliary mean: a stranger's guess"),
    "group_means_pinv": ("#1f77b4", "-s", "pseudo-inverse (MP)"),
    "group_means_tikhonov": ("#d62728", "-o", "Tikhonov (T)"),
    "bayes_groups": ("#2ca02c", "-D", "bayes_groups (ours)"),
}


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
class Method:
    """An attack as it stands in a row: by name, with or without the group counts."""

    name: str
    attack: Attack
    counts: bool = True


METHODS = (
    Method("naive", Naive()),
    Method("auxiliary_mean", AuxiliaryMean()),
    Method("group_means_pinv", GroupMeansPinv()),
    Method("group_means_tikhonov", GroupMeansTikhonov()),
    Method("bayes_groups", BayesGroups()),
    Method("bayes_groups, last layer only", BayesGroups(layers="last")),
    Method("group_means_tikhonov, counts unknown", GroupMeansTikhonov(), counts=False),
    Method("bayes_groups, counts unknown", BayesGroups(), counts=False),
)
TOGETHER = Method("bayes_groups, all these epochs together", BayesGroups(rounds=99))


@dataclass
class Tally:
    """What was measured, by (setting, method, measure): one number per attacked batch."""

    errors: dict[Key, list[float]] = field(default_factory=dict)
    covered: dict[Key, list[float]] = field(default_factory=dict)
    seconds: dict[Key, list[float]] = field(default_factory=dict)

    def add(self, key: Key, error: float, covered: float, seconds: float) -> None:
        self.errors.setdefault(key, []).append(error)
        self.seconds.setdefault(key, []).append(seconds)
        if np.isfinite(covered):
            self.covered.setdefault(key, []).append(covered)


def figure1(
    dataset: Dataset,
    protocol: Protocol,
    repetitions: int,
    progress: Progress = lambda what, done, total: None,
) -> tuple[Row, ...]:
    """The rows of the figure, measured on a dataset that has the column ``education_group``."""
    tally, losses = Tally(), {e: list[float]() for e in protocol.epochs}
    trainings = -(-repetitions // protocol.per_training)
    steps, done = trainings * len(protocol.epochs), 0
    for number in range(trainings):
        batches = min(protocol.per_training, repetitions - number * protocol.per_training)
        world = _world(dataset, protocol, number, batches)
        heard: list[Link] = []
        for epoch, model in _training(world, protocol, number):
            progress(f"training {number + 1} of {trainings}, epoch {epoch}", done, steps)
            losses[epoch].append(world.test_loss(model))
            heard.append(world.gradients(model, epoch))
            _attack_all(world, heard[-1], f"epoch {epoch}", tally, METHODS)
            _decode_all(world, heard[-1], f"epoch {epoch}", "linear_decode", tally)
            done += 1
        _attack_all(world, _stacked(heard), "all epochs", tally, (TOGETHER,))
        wide = world.with_hidden(protocol.wide)
        for epoch, model in _training(wide, protocol, number):
            progress(f"training {number + 1} of {trainings}, wide, epoch {epoch}", done, steps)
            _decode_all(wide, wide.gradients(model, epoch), f"epoch {epoch}", NO_TWINS, tally)
    progress("done", steps, steps)
    return _rows(tally, losses)


@dataclass(frozen=True)
class _World:
    """One split of the table: what is trained on, what the adversary holds, who is attacked.

    ``different`` are further clients, no two of whose records have equal inputs.
    """

    recipe: Recipe
    train: Records
    outside: Records
    clients: tuple[Records, ...]
    different: tuple[Records, ...]
    values: tuple[Any, ...]

    def with_hidden(self, hidden: tuple[int, ...]) -> _World:
        """Another network, and the clients no two of whose records have equal inputs."""
        model = self.recipe.dense.model_copy(update={"hidden": hidden})
        recipe = self.recipe.model_copy(update={"model": model})
        return replace(self, recipe=recipe, clients=self.different)

    def test_loss(self, model: NDArray[np.float32]) -> float:
        """Mean squared error on the auxiliary records, which are the paper's test set."""
        outputs = predict(self.recipe.dense, model, encode(self.recipe.encoding, self.outside))
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


def _row_of(link: Link, rows: NDArray[np.int64]) -> Link:
    return Link(
        link.payload, link.rounds[rows], link.sent[rows], link.returned[rows], link.weights[rows]
    )


def _stacked(heard: list[Link]) -> Link:
    """Several epochs' links; a client's rows are its own row of each."""
    return Link(
        "gradient",
        np.concatenate([h.rounds for h in heard]),
        np.concatenate([h.sent for h in heard]),
        np.concatenate([h.returned for h in heard]),
        np.concatenate([h.weights for h in heard]),
    )


def _world(dataset: Dataset, protocol: Protocol, number: int, batches: int) -> _World:
    rng = stream(PUBLIC_SEED, "split", number)
    table = dataset.records.without(dataset.client)
    values = tuple(sorted(set(table[GROUP].tolist())))
    pools = [rng.permutation(np.flatnonzero(table[GROUP] == v)) for v in values]
    drawn = rng.permutation(_evenly(pools, protocol.auxiliary + protocol.train))
    outside, train = drawn[: protocol.auxiliary], drawn[protocol.auxiliary :]
    draws = [rng.choice(train, protocol.batch, replace=False) for _ in range(batches)]
    kinds = _kinds(table.without(dataset.target))
    different = []
    for _ in range(batches):
        _, first = np.unique(kinds[shuffled := rng.permutation(train)], return_index=True)
        different.append(shuffled[np.sort(first)[: protocol.batch]])
    encoding = encoding_for(dataset, {})
    recipe = Recipe(
        algorithm="fedsgd",
        model=Dense(inputs=encoding.width, hidden=protocol.hidden),
        loss="squared_error",
        encoding=encoding,
        target=Target(column=dataset.target),
        learning_rate=protocol.learning_rate,
    )
    return _World(
        recipe,
        table.take(train),
        table.take(outside),
        tuple(table.take(rows) for rows in draws),
        tuple(table.take(rows) for rows in different),
        values,
    )


def _evenly(pools: list[NDArray[np.int64]], wanted: int) -> NDArray[np.int64]:
    """So many rows, the groups as even as their sizes allow."""
    taken: list[NDArray[np.int64]] = []
    for done, pool in enumerate(sorted(pools, key=len)):
        share = (wanted - sum(map(len, taken))) // (len(pools) - done)
        taken.append(pool[: min(share, len(pool))])
    return np.concatenate(taken)


def _training(
    world: _World, protocol: Protocol, number: int
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


def _attack_all(
    world: _World, link: Link, setting: str, tally: Tally, methods: tuple[Method, ...]
) -> None:
    label = world.recipe.target.column
    for client, records in enumerate(world.clients):
        rows = np.arange(client, len(link), len(world.clients))
        present = np.array([np.any(records[GROUP] == v) for v in world.values])
        truth = np.array(
            [records[label][records[GROUP] == v].mean() if there else np.nan
             for v, there in zip(world.values, present, strict=True)]
        )  # fmt: skip
        for method in methods:
            view = world.view(client, _row_of(link, rows), method.counts)
            begin = time.perf_counter()
            guess = launch(method.attack, view, PUBLIC_SEED)
            seconds = time.perf_counter() - begin
            misses = np.abs(guess.means - truth)[present]
            covered = float(np.mean(misses <= 1.96 * guess.sd[present]))
            claims = bool(np.isfinite(guess.sd[present]).all())
            key = (setting, method.name, ERROR)
            tally.add(key, float(misses.mean()), covered if claims else np.nan, seconds)


def _decode_all(world: _World, link: Link, setting: str, name: str, tally: Tally) -> None:
    """Every label of clients whose inputs are known, and how many of them are identified."""
    label = world.recipe.target.column
    for client, records in enumerate(world.clients):
        view = world.view(client, _row_of(link, np.array([client])), counts=False)
        begin = time.perf_counter()
        guess = launch(LinearDecode(), view, PUBLIC_SEED)
        seconds = time.perf_counter() - begin
        missed = np.abs(guess.values - records[label])
        sure = guess.sd <= IDENTIFIED * float(guess.diagnostics["prior_sd"])
        relative = missed / np.abs(records[label])
        covered = float(np.mean(missed <= 1.96 * guess.sd))
        _, times = np.unique(_kinds(records.without(label)), return_counts=True)
        tally.add((setting, name, WORST), float(relative.max()), covered, seconds)
        tally.add((setting, name, WORST_SURE), float(relative[sure].max()), np.nan, seconds)
        tally.add((setting, name, SURE), float(sure.sum()), np.nan, seconds)
        tally.add((setting, name, ALONE), float((times == 1).sum()), np.nan, seconds)


def _kinds(records: Records) -> NDArray[np.int64]:
    """A number per record, equal for records that agree in every column."""
    columns = [np.unique(v, return_inverse=True)[1] for v in records.columns.values()]
    return np.asarray(np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1]).ravel()


def _rows(tally: Tally, losses: Mapping[int, list[float]]) -> tuple[Row, ...]:
    rng = stream(PUBLIC_SEED, "intervals")
    rows: list[Row] = []
    for (setting, method, measure), numbers in tally.errors.items():
        values = np.array(numbers)
        summary = SUMMARIES[measure]
        again = values[rng.integers(0, len(values), (1000, len(values)))]
        low, high = np.quantile(summary(again, axis=1), [0.025, 0.975])
        rows.append(
            Row(
                setting,
                "40 records",
                method,
                measure,
                float(summary(values)),
                None if summary is np.max else float(low),
                None if summary is np.max else float(high),
                seconds=float(np.mean(tally.seconds[setting, method, measure])),
                seeds=len(values),
            )
        )
    for (setting, method, _), hits in tally.covered.items():
        share = float(np.mean(hits))
        rows.append(Row(setting, "40 records", method, COVERAGE, share, seeds=len(hits)))
    for epoch, loss in losses.items():
        value = float(np.mean(loss))
        rows.append(Row(f"epoch {epoch}", "test set", "model", "test loss", value, seeds=len(loss)))
    return tuple(rows)


def run(quick: bool, seeds: int, progress: Progress) -> Reproduction:
    """Figure 1 on real wages; ``seeds`` batches, 20 of them in each training."""
    dataset = catalogue.load("wages")
    protocol = Protocol(epochs=(1, 5), per_training=10) if quick else Protocol()
    repetitions = min(seeds, 10) if quick else seeds
    rows = figure1(dataset, protocol, repetitions, progress)
    return Reproduction(
        name=FIGURE1.name,
        paper=PAPER,
        rows=rows,
        data=f"{dataset.name}: {dataset.origin}; {', '.join(dataset.inputs())}",
        notes=(catalogue.about("wages").note, *NOTES),
        quick=quick,
        seeds=repetitions,
    )


NOTES = (
    "The paper prints a picture and no numbers, so nothing is claimed in the rows; its statement "
    "is that Tikhonov (T) has the smallest error.",
    "Errors are in tens of dollars an hour: medians over batches of the mean absolute error over "
    "the groups present, with the interval of the median by bootstrap over batches.",
    "Tikhonov's strength is the best on simulated clients drawn from the auxiliary records; the "
    "paper does not say how it was chosen.",
    "epoch 0 is the untrained model, which the picture leaves out.",
)


def draw(outcome: Reproduction, path: Path) -> None:
    """Median error by epoch, and the model's test loss on an axis of its own, as in the paper."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "overheard"
    figure, axes = plt.subplots(figsize=(7, 4.6), layout="constrained")
    losses = axes.twinx()
    for method, (colour, style, words) in LINES.items():
        points = sorted(
            (int(row.setting.split()[1]), row)
            for row in outcome.rows
            if row.method == method and row.measure == ERROR and row.setting != "epoch 0"
        )
        if not points:
            continue
        at = [epoch for epoch, _ in points]
        axes.plot(at, [r.measured for _, r in points], style, color=colour, label=words)
        axes.fill_between(
            at, [r.low or 0 for _, r in points], [r.high or 0 for _, r in points],
            color=colour, alpha=0.12, linewidth=0,
        )  # fmt: skip
    tests = [r for r in outcome.rows if r.measure == "test loss" and r.setting != "epoch 0"]
    epochs = [int(r.setting.split()[1]) for r in tests]
    losses.plot(epochs, [r.measured for r in tests], ":", color="#c9a400", label="test loss")
    losses.set_ylabel("test loss (dotted)", color="#8a7000")
    losses.set_ylim(bottom=0)
    axes.set(xscale="log", xlabel="epoch", ylabel="median error of the groups' mean wages, 10 $/h")
    axes.set_xticks(epochs, [str(e) for e in epochs])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.grid(axis="y", alpha=0.3)
    figure.legend(fontsize=8, frameon=False, ncols=3, loc="outside lower center")
    axes.set_title(
        "leprovost2023, figure 1, on other data: batches of 40, four groups", fontsize=10
    )
    figure.savefig(path, format="svg", metadata={"Date": None})
    plt.close(figure)


FIGURE1 = Experiment(
    name="leprovost2023-fig1",
    paper=PAPER,
    words="mean wages of four groups from one gradient, by epoch: the paper's solutions and ours",
    seeds=100,
    run=run,
    draw=draw,
)
EXPERIMENTS = (FIGURE1,)
