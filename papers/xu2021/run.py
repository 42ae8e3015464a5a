"""xu2021: the model that a client would have trained alone, from mini-batch transcripts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.baselines import GlobalModel, LastReturned
from overheard.attacks.local_model import Structured
from overheard.attacks.papers.xu2021 import LearnedMap, learn_maps
from overheard.evaluation import metrics
from overheard.evaluation.baselines import majority_share
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, encode
from overheard.transcript.knowledge import Link
from overheard.transcript.store import Recording
from overheard.transcript.target import LOCAL_MODEL
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import launch, observe
from papers.common import pictures
from papers.common.harness import federation, mean_row, recorded, truth_and_recipe
from papers.common.heterogeneity import AT_INFINITY, mean_distances
from papers.common.rows import Experiment, Progress, Reproduction, Row
from papers.data import adult, leaf_synthetic

Array = NDArray[np.float64]
LOCAL_STEPS = (1, 5, 10)
STEPS_NOTE = "Local steps are the local epochs E of the paper's Algorithm 2."
TABLE1 = {
    # local steps: accuracies (%) of the last returned and of the decoded model, clients 0 to 4
    1: ("53.9 49.7 85.1 28.3 75.8 58.6", "67.0 74.3 80.6 77.9 91.0 78.1"),
    5: ("60.1 54.6 87.6 33.6 79.2 63.0", "65.6 72.9 76.9 72.5 86.2 74.8"),
    10: ("69.4 60.4 90.6 42.3 83.9 69.3", "67.5 79.5 78.1 75.8 88.9 78.0"),
}


def claims(steps: int) -> dict[tuple[str, str], float]:
    """Table 1's row for a number of local steps, by (method, client)."""
    found: dict[tuple[str, str], float] = {}
    for method, numbers in zip(("last_returned", "learned_map"), TABLE1[steps], strict=True):
        for client, number in zip((*map(str, range(5)), "mean"), numbers.split(), strict=True):
            found[method, client] = float(number) / 100
    return found


def local_accuracy(recipe: Recipe, theta: Array, records: Records) -> float:
    """Share of a client's own records that a model classifies right."""
    outputs = network(recipe).predict(theta, encode(recipe.encoding, records))
    labels = recipe.target.encode(records)
    chosen = outputs[:, 0] > 0 if outputs.shape[1] == 1 else outputs.argmax(axis=1)
    return float(np.mean(chosen == labels))


@dataclass(frozen=True)
class Model:
    """One method's guess at one client's local model; ``seconds`` are of the processor.

    ``map_loss``: equation (9) at the end of training, where a map was trained.
    """

    method: str
    client: str
    parameters: Array
    seconds: float
    map_loss: float | None = None


def models(
    recording: Recording, seed: int, learned: LearnedMap | None, clients: tuple[str, ...] = ()
) -> Iterator[Model]:
    """What every method makes of every client; the learned maps are trained all at once."""
    names = clients or recording.clients
    views = {c: observe(recording, EAVESDROPPER, LOCAL_MODEL, c) for c in names}
    for client, view in views.items():
        for attack in (GlobalModel(), LastReturned(), Structured()):
            begin = time.process_time()
            guess = launch(attack, view, seed)
            yield Model(attack.name, client, guess.parameters, time.process_time() - begin)
    if learned is None:
        return
    links = [view.know(Link) for view in views.values()]
    sent = np.stack([link.sent.astype(np.float64) for link in links])
    updates = np.stack([link.updates() for link in links])
    begin = time.process_time()
    fixed, losses, _ = learn_maps(sent, updates, learned, seed)
    each = (time.process_time() - begin) / len(links)
    for client, theta, loss in zip(names, fixed, losses, strict=True):
        yield Model("learned_map", client, theta, each, float(loss))


def compare(
    setting: str,
    config: Mapping[str, Any],
    seeds: int,
    learned: LearnedMap | None,
    claimed: Mapping[tuple[str, str], float],
    progress: Progress,
    clients: tuple[str, ...] = (),
) -> list[Row]:
    """Local accuracy (where the target is a class), excess loss and seconds, over seeds.

    Every method on the same seeds: between seeds the last returned model's accuracy varies more
    than methods differ.
    """
    found: dict[tuple[str, str, str], list[float]] = {}
    seconds: dict[str, list[float]] = {}
    commonest: dict[str, dict[int, float]] = {}
    for seed in range(seeds):
        progress(f"{setting}, seed {seed}", seed, seeds)
        options = dict(config["data"].get("options", {}))
        if config["data"]["source"] != "randhie":
            options["seed"] = seed
        data = {**config["data"], "options": options}
        with recorded({**config, "seed": seed, "data": data}) as recording:
            truth, recipe = truth_and_recipe(recording)
            for guess in models(recording, seed, learned, clients):
                records = truth[guess.client]
                optimum = metrics.local_optimum(recipe, records)
                best = metrics.client_losses(recipe, optimum, records).mean()
                loss = metrics.client_losses(recipe, guess.parameters, records).mean()
                key = (guess.method, guess.client)
                found.setdefault((*key, "excess loss"), []).append(float(loss - best))
                if recipe.loss == "cross_entropy":
                    share = local_accuracy(recipe, guess.parameters, records)
                    found.setdefault((*key, "local accuracy"), []).append(share)
                    labels = records[recipe.target.column]
                    majority = majority_share(labels, recipe.target.classes)
                    commonest.setdefault(guess.client, {})[seed] = majority
                seconds.setdefault(guess.method, []).append(guess.seconds)
    rows = []
    for (method, client, measure), values in found.items():
        number, spent = client.removeprefix("client "), float(np.mean(seconds[method]))
        row = mean_row(setting, number, method, measure, values, seconds=spent)
        if measure == "local accuracy":
            majority = float(np.mean(list(commonest[client].values())))
            row = replace(row, claimed=claimed.get((method, number)), majority=majority)
        rows.append(row)
    return rows + pooled(setting, rows, claimed)


def pooled(setting: str, rows: list[Row], claimed: Mapping[tuple[str, str], float]) -> list[Row]:
    """Means over clients; and the median ratio of a method's excess loss to the last returned's."""
    out = []
    base = {r.client: r.measured for r in rows
            if (r.method, r.measure) == ("last_returned", "excess loss")}  # fmt: skip
    for method, measure in dict.fromkeys((r.method, r.measure) for r in rows):
        mine = [r for r in rows if (r.method, r.measure) == (method, measure)]
        shares = [r.majority for r in mine if r.majority is not None]
        out.append(
            replace(
                mine[0],
                client="mean",
                measured=float(np.mean([r.measured for r in mine])),
                low=None,
                high=None,
                claimed=claimed.get((method, "mean")) if measure == "local accuracy" else None,
                majority=float(np.mean(shares)) if shares else None,
                repetitions=(),
            )
        )
        if measure == "excess loss":
            ratio = float(np.median([r.measured / base[r.client] for r in mine]))
            name = "excess / last returned's"
            out.append(Row(setting, "median", method, name, ratio, seeds=mine[0].seeds))
    return out


def table1(quick: bool, seeds: int, progress: Progress) -> Reproduction:
    """LEAF synthetic, batches of 256."""
    learned = LearnedMap(hidden=200, steps=300, search_steps=300) if quick else LearnedMap()
    rows: list[Row] = []
    for steps in LOCAL_STEPS:
        training = {"rounds": 300, "learning_rate": 0.01, "batch_size": 256, "epochs": steps}
        config = federation(0, "leaf_synthetic", "logistic", training)
        setting = f"{steps} local step{'s' if steps > 1 else ''}"
        rows += compare(
            setting, config, min(seeds, 2) if quick else seeds, learned, claims(steps), progress
        )
    notes = (
        leaf_synthetic.SOURCE.note,
        STEPS_NOTE,
        "The paper does not state its rounds; here: 300.",
    )
    return Reproduction(rows, "leaf_synthetic", notes, seeds)


def minibatch(quick: bool, seeds: int, progress: Progress) -> Reproduction:
    """Beyond the paper: least squares on RAND and logistic regression on Adult, mini-batches."""
    rows: list[Row] = []
    for steps in (1,) if quick else LOCAL_STEPS:
        for source, model, rate, batch, clients in (
            ("randhie", "linear", 0.05, 64, ()),
            ("adult", "logistic", 0.01, 64, ("client 0", "client 1", "client 2")),
        ):
            training = {"rounds": 300, "learning_rate": rate, "batch_size": batch, "steps": steps}
            config = federation(0, source, model, training)
            setting = f"{source}, batches of {batch}, {steps} local step{'s' if steps > 1 else ''}"
            rows += compare(setting, config, seeds, None, {}, progress, clients)
    notes = (
        adult.SOURCE.note,
        "Local steps are mini-batches here, the same number for every client.",
        "The learned map is not trained here: xu2021-table1 compares with it.",
    )
    return Reproduction(rows, "randhie, adult", notes, seeds)


def fig1(quick: bool, seeds: int, progress: Progress) -> Reproduction:
    """Adult: how far local optima lie apart, the map's loss and test accuracy by batch size."""
    rows: list[Row] = []
    sizes = (32, 0) if quick else (32, 64, 128, 0)
    learned = LearnedMap(hidden=200, steps=200, search_steps=200) if quick else LearnedMap()
    for at, batch in enumerate(sizes):
        values: dict[tuple[str, str], list[float]] = {}
        for seed in range(seeds):
            progress(f"batches of {batch or 'all'}", at * seeds + seed, len(sizes) * seeds)
            steps = {"batch_size": batch, "steps": 1 if batch else 0}
            training = {"rounds": 300, "learning_rate": 0.001, **steps}
            config = federation(seed, "adult", "logistic", training, {"seed": seed})
            with recorded(config) as recording:
                truth, recipe = truth_and_recipe(recording)
                client = "client 1"
                if at == 0 and seed == 0:
                    rows += heterogeneity(recipe, truth)
                # train and test: the client's data are all used for training here, so the test
                # set is what the other PhDs hold: people like the client's that it never saw
                others = [truth[c] for c in ("client 0", "client 2")]
                for guess in models(recording, seed, learned, (client,)):
                    score = float(
                        np.mean([local_accuracy(recipe, guess.parameters, o) for o in others])
                    )
                    values.setdefault((guess.method, "test accuracy"), []).append(score)
                    if guess.map_loss is not None:
                        loss = values.setdefault((guess.method, "map loss (equation 9)"), [])
                        loss.append(guess.map_loss)
        rows += [
            mean_row(f"batches of {batch or 'all'}", "1", method, measure, found)
            for (method, measure), found in values.items()
        ]
    notes = (
        adult.SOURCE.note,
        "The map's loss is equation (9)'s: the sum over the rounds of the squared distance between "
        "the update that the map says and the update heard.",
        AT_INFINITY,
        "Test accuracy is on the other PhD clients' records, which the client never saw.",
    )
    return Reproduction(rows, "adult", notes, seeds)


def heterogeneity(recipe: Recipe, truth: Mapping[str, Records]) -> list[Row]:
    """Figure 1a: relative distances between the clients' local optima."""
    optima = {c: metrics.local_optimum(recipe, r) for c, r in truth.items()}
    return [
        Row("local optima", c.removeprefix("client "), "exact", "mean distance to others", apart)
        for c, apart in mean_distances(optima).items()
    ]


EXPERIMENTS = tuple(
    Experiment(f"xu2021-{name}", words, run, pictures.marks(measure), seeds)
    for name, words, run, measure, seeds in (
        ("table1", "local models, LEAF synthetic", table1, "local accuracy", 10),
        ("fig1", "Adult: heterogeneity, map, test", fig1, "test accuracy", 5),
        ("minibatch", "RAND and Adult", minibatch, "excess loss", 5),
    )
)
