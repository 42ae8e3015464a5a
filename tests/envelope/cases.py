"""The cases of the envelope: small federations of every kind, and what is asked of them.

A case is a value. What a redesign of the package may rename (attacks, threats, settings) is
written here; how a case is run and judged stands in `tests.envelope.measure`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from federations import (
    ADAM,
    CUTS,
    LINEAR,
    LOGISTIC,
    MOMENTUM,
    NEWTON,
    STATISTICS,
    TREES,
    generated_people,
    with_strangers,
)  # fmt: skip
from generated import with_columns

from overheard.data.dataset import Dataset
from overheard.transcript.knowledge import BatchOrder
from overheard.transcript.threat import SECURE_SERVER, SERVER, Threat

Settings = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """A federation, recorded once a seed, and what is asked of its first client (or, where the
    question is about all of them, of everybody).

    ``people``: arguments of `generated_people`, none if ``config`` names a source; ``change``: of
    these people. ``how``: each attack by itself ("attack"), a whole audit by them and its verdict
    ("verdict"), or what is learned on each rung of the ladder of knowledge ("ladder").
    ``declared``: the recording says that it is of this federation, which it is not. ``quick``: it
    runs among the tests.
    """

    family: str
    asks: str
    attacks: tuple[str, ...]
    config: Settings
    people: Settings | None = None
    change: Callable[[Dataset], Dataset] = lambda dataset: dataset
    threat: Threat = SERVER
    seeds: int = 5
    how: Literal["attack", "verdict", "ladder"] = "attack"
    declared: Case | None = None
    quick: bool = False

    def dataset(self, seed: int) -> Dataset | None:
        """The people of a seed; None if a source has them."""
        if self.people is None:
            return None
        return self.change(generated_people(**self.people, seed=seed))


def normalised() -> Any:
    """A network with layer normalisation and dropout."""
    from torch import nn

    parts = [nn.Linear(5, 16), nn.LayerNorm(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1)]
    return nn.Sequential(*parts)


def three_secrets(dataset: Dataset) -> Dataset:
    """Two more columns of zeros and ones, that nobody knows either."""
    drawn = np.random.default_rng(1).random((2, len(dataset.records))) < 0.5
    return with_columns(dataset, t=drawn[0] * 1.0, u=drawn[1] * 1.0)


def swapped(dataset: Dataset) -> Dataset:
    """Two clients under each other's names."""
    return with_columns(dataset, at=np.array([1, 0, 2])[dataset.records["at"]])


def wrong_labels(dataset: Dataset) -> Dataset:
    """A tenth of the people are declared to be of the other class."""
    some = np.random.default_rng(1).random(len(dataset.records)) < 0.1
    return with_columns(dataset, y=np.where(some, 1 - dataset.records["y"], dataset.records["y"]))


MLP, LARGER = {"name": "mlp", "hidden": [12]}, {"name": "mlp", "hidden": [32, 16]}
MODULE = {"name": "module", "factory": "tests.envelope.cases:normalised"}
COUNTS = {"name": "statistics", "tables": [{"by": ["s", "x0", "x1"]}], "bins": CUTS}
PROGRAMS = ("newton", "xgboost", "statistics")

ONCE, MANY, HALF = {"rounds": 1}, {"rounds": 20}, {"rounds": 20, "participation": 0.5}
SGD, PROX = {"algorithm": "fedsgd"}, {"algorithm": "fedprox", "proximal": 0.5}
BATCHES, LARGE, EPOCHS = {"batch_size": 8}, {"batch_size": 32}, {"epochs": 3}
SEEDED, ONE_ADAM = {"shuffle": {"seed": 42}}, {**ONCE, **ADAM}
SECURE = [{"name": "secure_sum"}]
DECODE, TABLES = ("max_entropy",), ("linear",)
ATTRIBUTE = ("max_entropy", "partial_decode", "model_based_global", "majority")
JOINT = ("max_entropy", "joint_decode", "statistics")
MEMBERS = ("candidate_decode", "gradient_variance_gmm", "coin")
MODELS = ("exact_linear", "structured", "last_returned")
GROUPS = ("auxiliary_mean", "bayes_groups", "group_means_pinv", "group_means_tikhonov")
IMPUTED = ("model_based_linear", "model_based_last_returned", "public_model")
PROPERTY = ("prolin", "ridge", "gradient_disaggregation", "ols")
KNOWN_ORDER = SERVER.granting(BatchOrder)
POOL, LABEL = {"membership": 20}, {"attributes": [], "label": True}
THREE = {"attributes": [["s", "t", "u"]]}
BY_GROUP = {**LABEL, "group": "s", "auxiliary": 30}
FEW, ALONE = {"clients": 2, "people": 20}, {"clients": 10, "people": 1}
NOISE, PRIVATE = {"name": "gaussian", "sd": 0.01}, {"name": "dp_sgd", "clip": 1.0, "noise": 0.5}


def case(
    family: str, model: Settings, attacks: tuple[str, ...] = DECODE, asks: str = "s", **given: Any
) -> Case:
    """Generated people who train a network, or run a program. ``given``: more of them, of the parts
    of the config, and of the case."""
    rate = {} if model["name"] in PROGRAMS else {"learning_rate": 0.5 if model is LOGISTIC else 0.1}
    usual = {"clients": 3, "people": 40, "columns": 3, "classify": model in (LOGISTIC, NEWTON)}
    config = {name: given.pop(name) for name in ("audit", "defence") if name in given}
    config |= {"data": {"source": "file"}, "model": model}
    config["training"] = {"rounds": 3, **rate, **given.pop("training", {})}
    return Case(family, asks, attacks, config, usual | given.pop("people", {}), **given)


def summed(**training: Any) -> dict[str, Any]:
    """Digits of which only sums are observed."""
    options = {"victim": 25, "participants": 5, "attributes": ["c043"]}
    return {"data": {"source": "digits", "options": options}, "defence": SECURE,
            "model": {"name": "mlp", "hidden": [24]},
            "training": {"rounds": 4, "learning_rate": 0.1, "weighting": "equal", **training},
            }  # fmt: skip


def prop(kind: str, positives: int = 3) -> dict[str, Any]:
    """Images of digits and secure aggregation: who of the clients has the property?"""
    options = {"clients": 10, "records": 8, "auxiliary": 300}
    return {"data": {"source": "digits_images", "options": options}, "model": LOGISTIC,
            "training": {"rounds": 20, "learning_rate": 0.01, "participation": 0.4},
            "property": {"kind": kind, "positives": positives}, "defence": SECURE}  # fmt: skip


RAND = {"data": {"source": "randhie"}, "model": {"name": "mlp", "hidden": [32]},
        "training": {"rounds": 1, "learning_rate": 0.05},
        "audit": {"attributes": ["female", "black"]}}  # fmt: skip
CLASSES = {"classify": True, "columns": 4, "clients": 2, "people": 60}
linear, logistic = partial(case, "linear", LINEAR), partial(case, "logistic", LOGISTIC)
network = partial(case, "network", MLP)
module = partial(case, "any training", MODULE, people=CLASSES)
columns = partial(case, "several columns", MLP, asks="s+t+u", change=three_secrets, audit=THREE)
some = partial(case, "partial knowledge", attacks=("partial_decode",), audit={"coverage": 0.5})
message = partial(case, "any training", LARGER, people=CLASSES)
ordered = partial(case, "orders", LARGER, people=CLASSES)
members = partial(case, "members", MLP, attacks=MEMBERS, asks="membership.s", audit=POOL)
sums = partial(Case, "sums", "c043", ("sum_decode",), threat=SECURE_SERVER)
ladder = partial(case, "ladder", how="ladder", change=with_strangers)
trees = partial(case, "trees", TREES, people={"clients": 2, "people": 60}, training={"rounds": 10})
newton = partial(case, "newton", NEWTON, training={"rounds": 6})
tables = partial(case, "statistics", attacks=TABLES, people={"people": 80}, training=ONCE)
detect = partial(Case, "detect", threat=SECURE_SERVER, seeds=4)
models = partial(case, "local models", LINEAR, asks="local_model")
labels = partial(case, "labels", asks="label", audit=LABEL, training={**ONCE, **SGD})
defended = partial(case, "defended", MLP)
audited = partial(case, "misdeclared", MLP, people={"classify": True, "people": 60}, how="verdict")
null = partial(
    case, "null", MLP, ("max_entropy", "model_based_global", "statistics"), how="verdict"
)
DOUBLED = audited(training={**BATCHES, "learning_rate": 0.2})
rand = partial(Case, "real people", attacks=DECODE, config=RAND, seeds=3)

CASES: dict[str, Case] = {
    "linear": linear(ATTRIBUTE, training={"rounds": 8}, quick=True),
    "linear, wide numbers": linear(training={"precision": "float64"}),
    "linear, gradients": linear(ATTRIBUTE, training=SGD, quick=True),
    "linear, epochs": linear(ATTRIBUTE, training=EPOCHS, quick=True),
    "linear, batches": linear(ATTRIBUTE, training=BATCHES),
    "linear, proximal": linear(training=PROX),
    "linear, isolated": linear(training={"isolate": "0"}),
    "linear, numbers in bins": linear(asks="x1", audit={"attributes": ["x1"]}),
    "linear, strangers known": linear(IMPUTED, people={"people": 60}, change=with_strangers),
    "linear, learned map": linear(("model_based_local",), training=HALF),
    "logistic": logistic(JOINT, training={"rounds": 8}, quick=True),
    "logistic, gradients": logistic(JOINT, training=SGD),
    "logistic, searches": logistic(("cos_matching", "gumbel", "l2_lbfgs"), seeds=3),
    "logistic, epochs": logistic(training=EPOCHS),
    "logistic, batches": logistic(training=BATCHES),
    "network": network(ATTRIBUTE, quick=True),
    "network, tanh": case("network", {**MLP, "activation": "tanh"}, quick=True),
    "network, gradients": network(("max_entropy", "partial_decode"), training=SGD),
    "network, wide numbers": network(training={"precision": "float64"}),
    "network, epochs": network(training=EPOCHS, quick=True),
    "network, batches": network(training=BATCHES, seeds=3, quick=True),
    "network, batches and epochs": network(training={**BATCHES, **EPOCHS}),
    "network, proximal epochs": network(training={**PROX, **EPOCHS}),
    "network, two layers": case("network", {**MLP, "hidden": [10, 6]}),
    "any training: SGD, batches": message(training={**ONCE, **BATCHES}),
    "any training: momentum, batches": message(training={**ONCE, **MOMENTUM, **BATCHES}),
    "any training: Adam, batches": message(training={**ONE_ADAM, **BATCHES}),
    "any training: Adam, 5 epochs": message(training={**ONE_ADAM, **BATCHES, "epochs": 5}, seeds=3),
    "any training: momentum, full": message(training={**ONCE, **MOMENTUM}, quick=True),
    "any training: Adam, one full step": message(training=ONE_ADAM, quick=True),
    "any training: normalised, dropout": module(training={**ONCE, **MOMENTUM, **BATCHES}, seeds=3),
    "orders: SGD, 5 full steps": ordered(training={**ONCE, "epochs": 5}),
    "orders: Adam, 5 full steps": ordered(training={**ONE_ADAM, "epochs": 5}, quick=True),
    "orders: Adam, known": ordered(training={**ONE_ADAM, **BATCHES, **SEEDED}, threat=KNOWN_ORDER),
    "orders: SGD, guessed": ordered(training={**ONCE, **BATCHES, **SEEDED}, seeds=3),
    "members": members(quick=True),
    "members, gradients": members(training=SGD),
    "members, batches": members(training=BATCHES, seeds=3),
    "members, epochs": members(training=EPOCHS),
    "members, Adam batches": members(attacks=MEMBERS[:1], training={**ADAM, **BATCHES}),
    "sums: one step": sums(summed(), quick=True),
    "sums: 3 epochs": sums(summed(epochs=3), seeds=3),
    "sums: batches": sums(summed(batch_size=5, epochs=2), seeds=3),
    "three columns": columns(),
    "three columns, Adam": columns(training={**ADAM, **EPOCHS}, seeds=3),
    "some records, linear": some(LINEAR, quick=True),
    "some records, network": some(MLP, seeds=40),
    "ladder, linear": ladder(LINEAR),
    "ladder, network": ladder(MLP, seeds=3),
    "trees": trees(TABLES, quick=True),
    "trees, members": trees(("linear_membership",), "membership.s", audit={"membership": 40}),
    "trees, labels": trees(("linear_label",), "label", audit=LABEL),
    "newton": newton(TABLES, quick=True),
    "newton, models": newton(("own_release",), "local_model", quick=True),
    "newton, members": newton(("linear_membership",), "membership.s", audit=POOL),
    "newton, sums": newton(("linear_sum",), people=FEW, defence=SECURE, threat=SECURE_SERVER),
    "statistics: counts": tables(COUNTS, quick=True),
    "statistics: counts and sums": tables(STATISTICS),
    "statistics: no small cells": tables(COUNTS, defence=[{"name": "suppress_cells", "below": 3}]),
    "detect: membership": detect("property.membership", PROPERTY, prop("membership"), quick=True),
    "detect: inversion": detect("property.poisoning", PROPERTY, prop("inversion")),
    "detect: ascent": detect("property.poisoning", PROPERTY, prop("ascent")),
    "detect: nobody": detect(
        "property.membership", PROPERTY[:2], prop("membership", 0), seeds=10),
    "models": models(MODELS, training=HALF, quick=True),
    "models, gradients": models(MODELS, training={**HALF, **SGD}),
    "models, batches": models(("structured",), training={**MANY, **BATCHES}),
    "models, learned map": models(("learned_map",), training=HALF),
    "models, logistic": logistic(MODELS[1:], "local_model", training=MANY),
    "labels": labels(MLP, ("linear_decode", "naive"), quick=True),
    "labels by group": labels(MLP, GROUPS, audit=BY_GROUP, people={"people": 80}, quick=True),
    "label of one record": labels(LINEAR, ("single_record",), people=ALONE, quick=True),
    "clipped": defended(defence=[{"name": "clip", "norm": 0.1}], quick=True),
    "noisy": defended(defence=[NOISE], quick=True),
    "noisy batches": defended(defence=[NOISE], training=BATCHES, seeds=3, quick=True),
    "private steps": defended(defence=[PRIVATE], training=BATCHES, seeds=3),
    "quantised": defended(defence=[{"name": "quantise", "bits": 8}]),
    "largest tenth": defended(defence=[{"name": "top_k", "share": 0.1}]),
    "declared rightly": audited(quick=True),
    "declared rightly, batches": audited(training=BATCHES, seeds=3),
    "rate twice as large": audited(declared=audited(training={"learning_rate": 0.2}), quick=True),
    "rate twice as large, batches": audited(training=BATCHES, declared=DOUBLED, seeds=3),
    "other batch size": audited(training=BATCHES, declared=audited(training=LARGE), seeds=3),
    "other optimiser": audited(training=EPOCHS, declared=audited(training={**EPOCHS, **ADAM})),
    "swapped clients": audited(declared=audited(change=swapped), quick=True),
    "wrong labels": audited(declared=audited(change=wrong_labels), quick=True),
    "null: not an input": null(defence=[{"name": "drop_column", "columns": ["s"]}], quick=True),
    "null: drowned in noise": null(defence=[{"name": "gaussian", "sd": 100.0}], training=ONCE),
    "real people: female": rand("female"),
    "real people: black": rand("black"),
}  # fmt: skip
