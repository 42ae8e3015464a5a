"""Before anything is sent: what would this client's update reveal, and what would stop it?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import ChooseAnotherAttack, FixConfig
from overheard.federation.config import Config
from overheard.federation.defences.catalogue import build_all
from overheard.federation.defences.contract import told
from overheard.federation.defences.gaussian import GaussianConfig
from overheard.federation.plan import Plan, plan
from overheard.federation.simulate import client_shards, updates_of
from overheard.guard.exposure import Exposure, Secret, exposure, worst
from overheard.learning.dense import initial
from overheard.learning.recipe import Recipe
from overheard.learning.training import local_training
from overheard.randomness import stream
from overheard.transcript.knowledge import AppliedDefence

Array = NDArray[np.floating[Any]]
Progress = Callable[[str, int, int], None]
NOISES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
EPOCHS = (2, 5, 10)
BATCHES = (64, 32, 8)


@dataclass(frozen=True)
class Change:
    """One way to leak less, measured: what it is called, how to set it, and what is left.

    ``strength`` orders the changes of a kind from the smallest.
    """

    kind: str
    strength: float
    words: str
    found: tuple[Exposure, ...]

    @property
    def bits(self) -> float:
        """Of the attribute that leaks most."""
        return worst(self.found).bits

    @property
    def doubtful(self) -> bool:
        """The decoder failed on an attribute: what is left is not known, and may be more."""
        return any(e.doubtful for e in self.found)

    def enough(self, limit: float) -> bool:
        """Is what is left below the limit, as measured by a decoder that worked?"""
        return self.bits <= limit and not self.doubtful


@dataclass(frozen=True)
class Preflight:
    """What a client's update would reveal, by attribute, and the changes that were tried."""

    client: str
    rounds: int
    limit: float
    found: tuple[Exposure, ...]
    changes: tuple[Change, ...]

    @property
    def passes(self) -> bool:
        """Is the attribute that leaks most below the limit?"""
        return not worst(self.found).exceeds(self.limit)

    def smallest(self) -> list[Change]:
        """Of each kind of change the smallest that gets below the limit."""
        kinds = dict.fromkeys(change.kind for change in self.changes)
        enough = [
            next((c for c in self.changes if c.kind == k and c.enough(self.limit)), None)
            for k in kinds
        ]
        return [change for change in enough if change is not None]


def preflight(
    config: Config,
    client: str = "",
    limit: float = 0.1,
    rounds: int = 1,
    progress: Progress = lambda what, done, total: None,
) -> Preflight:
    """Decode a client's own updates, and try what would bring them below ``limit`` bits a record.

    The client trains alone for ``rounds`` rounds from the federation's first model. Without a name
    it is the config's only client.
    """
    ready = plan(config)
    name = _only(ready, client)
    steps = list(_changes(ready, name))
    progress("as configured", 0, len(steps) + 1)
    found, typical = _measured(ready, name, rounds)
    if not worst(found).exceeds(limit):
        return Preflight(name, rounds, limit, found, ())
    tried: list[Change] = []
    settled: set[str] = set()
    for number, (kind, strength, words, make) in enumerate(steps, 1):
        progress(words, number, len(steps) + 1)
        if kind in settled:
            continue
        try:
            left, _ = _measured(make(typical), name, rounds)
            change = Change(kind, strength, words.format(sd=strength * typical), left)
        except ChooseAnotherAttack:
            settled.add(kind)  # no decoder of ours reads such updates: nothing is measured
            continue
        tried.append(change)
        if change.enough(limit):
            settled.add(kind)
    progress("done", len(steps) + 1, len(steps) + 1)
    return Preflight(name, rounds, limit, found, tuple(tried))


def _only(ready: Plan, client: str) -> str:
    if not ready.attributes:
        raise FixConfig("no sensitive attribute is named; set audit.attributes")
    if client in ready.clients:
        return client
    if not client and len(ready.clients) == 1:
        return next(iter(ready.clients))
    given = f"no client {client!r}" if client else "there are several clients; name yours"
    raise FixConfig(f"{given}; the clients are {', '.join(ready.clients)}")


Make = Callable[[float], Plan]


def _changes(ready: Plan, client: str) -> Iterator[tuple[str, float, str, Make]]:
    """What is tried, from the smallest of each kind; ``make`` is told the update's typical size."""
    for times in NOISES:
        words = f"Gaussian noise of {times:g} times the update's typical coordinate (sd {{sd:.3g}})"
        yield "noise", times, words, partial(_with_noise, ready, times)
    own, recipe = len(ready.clients[client]), ready.recipe
    if recipe.algorithm != "fedsgd":
        for epochs in EPOCHS:
            if epochs > recipe.epochs:
                make = partial(_with_recipe, ready, {"epochs": epochs})
                yield "epochs", epochs, f"{epochs} local epochs", make
        for batch in BATCHES:
            if batch < min(recipe.batch_size or own, own):
                make = partial(_with_recipe, ready, {"batch_size": batch})
                yield "batch", 1 / batch, f"batches of {batch}", make


def _with_noise(ready: Plan, times: float, size: float) -> Plan:
    defences = (*ready.config.defence, GaussianConfig(sd=times * size))
    return replace(ready, config=ready.config.model_copy(update={"defence": defences}))


def _with_recipe(ready: Plan, changes: dict[str, Any], size: float) -> Plan:
    return replace(ready, recipe=ready.recipe.model_copy(update=changes))


def _measured(ready: Plan, client: str, rounds: int) -> tuple[tuple[Exposure, ...], float]:
    """The exposure of each attribute, and the typical size of an update's coordinate."""
    recipe, records = ready.recipe, ready.clients[client]
    sent, returned, defence, typical = _trained_alone(ready, recipe, client, rounds)
    found = tuple(
        exposure(recipe, Secret(records, column, values), sent, returned, defence)
        for column, values in ready.attributes.items()
    )
    return found, typical


def _trained_alone(
    ready: Plan, recipe: Recipe, client: str, rounds: int
) -> tuple[Array, Array, AppliedDefence | None, float]:
    """The messages of a federation of one, with the defences at work."""
    seed, config = ready.config.seed, ready.config
    data = client_shards(recipe, {client: ready.clients[client]})
    defence = build_all(config.defence)
    state = defence.init(1, recipe.model.size)
    model = initial(recipe.dense, seed, config.model.initial).astype(recipe.wire)
    payload = "gradient" if recipe.algorithm == "fedsgd" else "model"
    sent, returned, sizes = [], [], []
    for number in range(rounds):
        answer = local_training(recipe, model, data, stream(seed, "preflight", number))
        rng = stream(seed, "preflight defence", number)
        plain = updates_of(payload, model, answer)
        update, state = defence.upload(state, plain, np.zeros(1, dtype=np.int64), rng)
        said = update if payload == "gradient" else model.astype(np.float64) - update
        sent.append(model)
        returned.append(said[0].astype(recipe.wire))
        sizes.append(float(np.sqrt(np.mean(plain**2))))
        step = recipe.learning_rate if payload == "gradient" else 1.0
        model = (model.astype(np.float64) - step * update[0]).astype(recipe.wire)
    about = told(defence.claim)
    applied = None
    if defence.claim:
        applied = AppliedDefence(tuple(about["names"]), about["clip_norm"], about["noise_sd"])
    return np.array(sent), np.array(returned), applied, float(np.mean(sizes))
