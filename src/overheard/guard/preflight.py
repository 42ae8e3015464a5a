"""Before anything is sent: what would this client's update reveal, and what would stop it?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import ChooseAnotherAttack, FixConfig
from overheard.federation.behaviours import initial_of
from overheard.federation.config import Config
from overheard.federation.defences.catalogue import build_all
from overheard.federation.defences.contract import told
from overheard.federation.defences.drop_column import DropColumnConfig
from overheard.federation.defences.gaussian import GaussianConfig
from overheard.federation.plan import Plan, plan
from overheard.federation.simulate import client_shards, updates_of
from overheard.guard.exposure import Exposure, Secret, exposure, worst
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
    def doubtful(self) -> bool:
        """The decoder failed on an attribute: what leaks is not known, and may be more."""
        return any(e.doubtful for e in self.found)

    @property
    def passes(self) -> bool:
        """Is the attribute that leaks most below the limit, by a decoder that worked?"""
        return not worst(self.found).exceeds(self.limit) and not self.doubtful

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
    it is the config's only client. Of each kind of change the smallest that helps is looked for:
    noise, smaller batches and columns left out from the smallest on; local epochs, which take
    longest to decode, from the largest down. A change is given up at the first attribute that
    still leaks more than the limit, or at which the decoder fails.
    """
    ready = plan(config)
    name = _only(ready, client)
    progress("as configured", 0, 1)
    found, typical = _measured(ready, name, rounds)
    if Preflight(name, rounds, limit, found, ()).passes:
        return Preflight(name, rounds, limit, found, ())
    order = [e.attribute for e in sorted(found, key=lambda e: -e.bits)]
    tried: list[Change] = []
    kinds = list(_kinds(ready, name, [e for e in found if e.exceeds(limit) or e.doubtful], typical))
    steps = sum(len(kind.steps) for kind in kinds)
    done = 1
    for kind in kinds:
        for number, step in enumerate(kind.steps):
            progress(step.words, done + number, steps + 1)
            try:
                left, _ = _measured(step.make(), name, rounds, order, limit)
            except ChooseAnotherAttack:
                break  # no decoder of ours reads such updates: nothing is measured
            change = Change(kind.name, step.strength, step.words, left)
            tried.append(change)
            if change.enough(limit) == kind.rising:
                break
        done += len(kind.steps)
    progress("done", steps + 1, steps + 1)
    tried.sort(key=lambda change: change.strength)
    return Preflight(name, rounds, limit, found, tuple(_by_kind(tried, kinds)))


@dataclass(frozen=True)
class _Step:
    strength: float
    words: str
    make: Callable[[], Plan]


@dataclass(frozen=True)
class _Kind:
    """Changes of one kind; ``rising`` from the smallest, until one is enough, or from the largest
    on, until one is not."""

    name: str
    steps: tuple[_Step, ...]
    rising: bool = True


def _by_kind(tried: list[Change], kinds: list[_Kind]) -> list[Change]:
    return [change for kind in kinds for change in tried if change.kind == kind.name]


def _only(ready: Plan, client: str) -> str:
    if not ready.attributes:
        raise FixConfig("no sensitive attribute is named; set audit.attributes")
    if client in ready.clients:
        return client
    if not client and len(ready.clients) == 1:
        return next(iter(ready.clients))
    given = f"no client {client!r}" if client else "there are several clients; name yours"
    raise FixConfig(f"{given}; the clients are {', '.join(ready.clients)}")


def _kinds(
    ready: Plan, client: str, leaking: Sequence[Exposure], typical: float
) -> Iterator[_Kind]:
    """What is tried; ``typical`` is the size of an update's coordinate."""
    noises = [
        _Step(
            times,
            f"Gaussian noise of {times:g} times the update's typical coordinate "
            f"(sd {times * typical:.3g})",
            partial(_with_noise, ready, times * typical),
        )
        for times in NOISES
    ]
    yield _Kind("noise", tuple(noises))
    own, recipe = len(ready.clients[client]), ready.recipe
    if recipe.algorithm != "fedsgd":
        batches = [b for b in BATCHES if b < min(recipe.batch_size or own, own)]
        smaller = [
            _Step(1 / b, f"batches of {b}", partial(_with_recipe, ready, {"batch_size": b}))
            for b in batches
        ]
        yield _Kind("batch", tuple(smaller))
        longer = [
            _Step(e, f"{e} local epochs", partial(_with_recipe, ready, {"epochs": e}))
            for e in sorted(EPOCHS, reverse=True)
            if e > recipe.epochs
        ]
        yield _Kind("epochs", tuple(longer), rising=False)
    seen = recipe.encoding.columns()
    columns = [e.attribute for e in leaking if e.attribute in seen]
    if columns and len(columns) < len(seen):
        words = f"leaving {', '.join(columns)} out of the model"
        step = _Step(len(columns), words, partial(_without, ready, tuple(columns)))
        yield _Kind("drop", (step,))


def _with_noise(ready: Plan, sd: float) -> Plan:
    defences = (*ready.config.defence, GaussianConfig(sd=sd))
    return replace(ready, config=ready.config.model_copy(update={"defence": defences}))


def _with_recipe(ready: Plan, changes: dict[str, Any]) -> Plan:
    return replace(ready, recipe=ready.recipe.model_copy(update=changes))


def _without(ready: Plan, columns: tuple[str, ...]) -> Plan:
    """Planned anew: the model has fewer inputs."""
    defences = (DropColumnConfig(columns=columns), *ready.config.defence)
    return plan(ready.config.model_copy(update={"defence": defences}))


def _measured(
    ready: Plan,
    client: str,
    rounds: int,
    order: Sequence[str] = (),
    limit: float = np.inf,
) -> tuple[tuple[Exposure, ...], float]:
    """The exposure of each attribute, and the typical size of an update's coordinate; nothing more
    once an attribute of ``order`` leaks more than the limit or defeats the decoder."""
    recipe, records = ready.recipe, ready.clients[client]
    sent, returned, defence, typical = _trained_alone(ready, recipe, client, rounds)
    found: list[Exposure] = []
    for column in order or ready.attributes:
        secret = Secret(records, column, ready.attributes[column])
        found.append(exposure(recipe, secret, sent, returned, defence))
        if order and (found[-1].exceeds(limit) or found[-1].doubtful):
            break
    return tuple(found), typical


def _trained_alone(
    ready: Plan, recipe: Recipe, client: str, rounds: int
) -> tuple[Array, Array, AppliedDefence | None, float]:
    """The messages of a federation of one, with the defences at work."""
    seed, config = ready.config.seed, ready.config
    data = client_shards(recipe, {client: ready.clients[client]})
    defence = build_all(config.defence)
    state = defence.init(1, recipe.model.size)
    model = initial_of(recipe, seed, config.model.initial).astype(recipe.wire)
    payload = "gradient" if recipe.algorithm == "fedsgd" else "model"
    sent, returned, sizes = [], [], []
    for number in range(rounds):
        answer = local_training(recipe, model[None], data, stream(seed, "preflight", number))
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
