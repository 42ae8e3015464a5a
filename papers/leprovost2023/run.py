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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.baselines import AuxiliaryMean, Naive
from overheard.attacks.label import BayesGroups, LinearDecode
from overheard.attacks.papers.leprovost2023 import GroupMeansPinv, GroupMeansTikhonov
from overheard.data.dataset import Dataset
from overheard.decoding.labels import LabelOptions
from overheard.randomness import stream
from overheard.transcript.knowledge import Link
from overheard.transcript.view import Attack, launch
from papers.common import pictures
from papers.common.harness import messages
from papers.common.rows import Experiment, Progress, Reproduction, Row
from papers.data import wages
from papers.leprovost2023.world import (
    GROUP,
    PUBLIC_SEED,
    Protocol,
    World,
    kinds,
    make_world,
    stacked,
    trained,
)

Array = NDArray[np.float64]
ERROR = "median absolute error of group means"
DRAWN = "naive auxiliary_mean group_means_pinv group_means_tikhonov bayes_groups model".split()
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
        world = make_world(dataset, protocol, number, batches)
        heard: list[Link] = []
        for epoch, model in trained(world, protocol, number):
            progress(f"training {number + 1} of {trainings}, epoch {epoch}", done, steps)
            losses[epoch].append(world.test_loss(model))
            heard.append(world.gradients(model, epoch))
            _attack_all(world, heard[-1], f"epoch {epoch}", tally, METHODS)
            _decode_all(world, heard[-1], f"epoch {epoch}", "linear_decode", tally)
            done += 1
        _attack_all(world, stacked(heard), "all epochs", tally, (TOGETHER,))
        wide = world.with_hidden(protocol.wide)
        for epoch, model in trained(wide, protocol, number):
            progress(f"training {number + 1} of {trainings}, wide, epoch {epoch}", done, steps)
            _decode_all(wide, wide.gradients(model, epoch), f"epoch {epoch}", NO_TWINS, tally)
    progress("done", steps, steps)
    return _rows(tally, losses)


def _attack_all(
    world: World, link: Link, setting: str, tally: Tally, methods: tuple[Method, ...]
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
            view = world.view(client, messages(link, rows), method.counts)
            begin = time.perf_counter()
            guess = launch(method.attack, view, PUBLIC_SEED)
            seconds = time.perf_counter() - begin
            misses = np.abs(guess.means - truth)[present]
            covered = float(np.mean(misses <= 1.96 * guess.sd[present]))
            claims = bool(np.isfinite(guess.sd[present]).all())
            key = (setting, method.name, ERROR)
            tally.add(key, float(misses.mean()), covered if claims else np.nan, seconds)


def _decode_all(world: World, link: Link, setting: str, name: str, tally: Tally) -> None:
    """Every label of clients whose inputs are known, and how many of them are identified."""
    label = world.recipe.target.column
    for client, records in enumerate(world.clients):
        view = world.view(client, messages(link, np.array([client])), counts=False)
        begin = time.perf_counter()
        guess = launch(LinearDecode(), view, PUBLIC_SEED)
        seconds = time.perf_counter() - begin
        missed = np.abs(guess.values - records[label])
        sure = guess.sd <= LabelOptions().identified * float(guess.diagnostics["prior_sd"])
        relative = missed / np.abs(records[label])
        covered = float(np.mean(missed <= 1.96 * guess.sd))
        _, times = np.unique(kinds(records.without(label)), return_counts=True)
        tally.add((setting, name, WORST), float(relative.max()), covered, seconds)
        tally.add((setting, name, WORST_SURE), float(relative[sure].max()), np.nan, seconds)
        tally.add((setting, name, SURE), float(sure.sum()), np.nan, seconds)
        tally.add((setting, name, ALONE), float((times == 1).sum()), np.nan, seconds)


def _rows(tally: Tally, losses: Mapping[int, list[float]]) -> tuple[Row, ...]:
    rng = stream(PUBLIC_SEED, "intervals")
    rows: list[Row] = []
    for (setting, method, measure), numbers in tally.errors.items():
        values = np.array(numbers)
        summary = SUMMARIES[measure]
        again = values[rng.integers(0, len(values), (1000, len(values)))]
        low, high = np.quantile(summary(again, axis=1), [0.025, 0.975])
        span = (None, None) if summary is np.max else (float(low), float(high))
        row = Row(setting, "40 records", method, measure, float(summary(values)), *span)
        spent = float(np.mean(tally.seconds[setting, method, measure]))
        rows.append(replace(row, seconds=spent, seeds=len(values)))
    for (setting, method, _), hits in tally.covered.items():
        share = float(np.mean(hits))
        rows.append(Row(setting, "40 records", method, COVERAGE, share, seeds=len(hits)))
    for epoch, loss in losses.items():
        value = float(np.mean(loss))
        rows.append(Row(f"epoch {epoch}", "test set", "model", "test loss", value, seeds=len(loss)))
    return tuple(rows)


def run(quick: bool, seeds: int, progress: Progress) -> Reproduction:
    """Figure 1 on real wages; ``seeds`` batches, 20 of them in each training."""
    dataset = wages.load()
    protocol = Protocol(epochs=(1, 5), per_training=10) if quick else Protocol()
    repetitions = min(seeds, 10) if quick else seeds
    rows = figure1(dataset, protocol, repetitions, progress)
    data = f"{dataset.name}: {dataset.origin}; {', '.join(dataset.inputs())}"
    return Reproduction(rows, data, (wages.SOURCE.note, *NOTES), repetitions)


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
    """Median error by epoch; under it the model's test loss, which the paper has in the same."""
    rows = [
        replace(r, setting=r.measure, client=r.setting)
        for r in outcome.rows
        if r.method in DRAWN and r.measure in (ERROR, "test loss") and r.setting != "epoch 0"
    ]
    pictures.curves("epoch", log=True)(replace(outcome, rows=rows), path)


WORDS = "mean wages of four groups from one gradient, by epoch: the paper's solutions and ours"
EXPERIMENTS = (Experiment("leprovost2023-fig1", WORDS, run, draw, seeds=100),)
