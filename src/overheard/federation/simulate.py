"""The simulator: a whole federation on one machine, recorded as a listener would hear it.

Clients are batched, not looped: one call trains all participants of a round. The same seed
gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixConfig, FixData
from overheard.federation.behaviours import climbing, initial_of, misbehaved
from overheard.federation.defences.accounting import budget
from overheard.federation.defences.catalogue import build_all
from overheard.federation.defences.contract import Defence, State, told
from overheard.federation.defences.secure_sum import SecureSumConfig
from overheard.federation.disclosure import write_knowledge
from overheard.federation.plan import Plan
from overheard.learning.recipe import Layout, Recipe
from overheard.learning.records import Records, encode
from overheard.learning.training import CACHE, Shards, local_training, shards
from overheard.randomness import stream
from overheard.transcript.kind import write
from overheard.transcript.store import Recorder

CHUNK = 64
Array = NDArray[np.floating[Any]]
Progress = Callable[[int, int], None]


def simulate(plan: Plan, out: str | Path, progress: Progress = lambda done, total: None) -> Path:
    """Run the federation and write its recording to ``out``; returns the path."""
    recipe, training, seed = plan.recipe, plan.config.training, plan.config.seed
    defence = build_all(plan.config.defence)
    data = client_shards(recipe, plan.clients)
    names = list(plan.clients)
    about = {
        "data": plan.dataset.name,
        "origin": plan.dataset.origin,
        "clients": names,
        "config": plan.config.model_dump(mode="json", exclude={"seed"}),  # which is in truth/
    }
    if training.isolate:
        about["isolated"] = training.isolate
    payload = "gradient" if recipe.algorithm == "fedsgd" else "model"
    summing = next((d for d in plan.config.defence if isinstance(d, SecureSumConfig)), None)
    if summing is not None:
        _check_summing(plan, data)
    dishonest = plan.properties.dishonest if plan.properties else frozenset()
    bad = np.array([name in dishonest for name in names])
    promised = budgets(plan, defence, dict(zip(names, data.sizes.tolist(), strict=True)))
    with Recorder(out, payload, about) as recorder:
        write_knowledge(recorder, plan)
        recorder.seed(seed)
        if defence.claim:
            write(recorder, told(defence.claim))
            if promised:
                recorder.side("PrivacyBudget", promised)
        state = defence.init(len(names), recipe.model.size)
        model = initial_of(recipe, seed, plan.config.model.initial).astype(recipe.wire)
        own = model  # of the isolated client
        for number in range(training.rounds):
            chosen = participants(len(names), training.participation, seed, number)
            alone = np.array([names[c] == training.isolate for c in chosen])
            sent = np.where(alone[:, None], own, model) if training.isolate else model
            returned = train_clients(recipe, sent, data, chosen, seed, number)
            if bad[chosen].any():
                returned = misled(plan, sent, returned, data, chosen, bad[chosen], number)
            if summing is not None:
                rng = stream(seed, "defence", number)
                changed, state = defence.upload(
                    state, updates_of(payload, sent, returned), chosen, rng
                )
                total, answered = summing.total(changed, number, stream(seed, "masks", number))
                recorder.aggregated(
                    number,
                    named(recipe.model.layout(), model),
                    named(recipe.model.layout(), total),
                    [names[c] for c in chosen[answered]],
                )
                moved = step(recipe, model, total / len(answered))
                noisy, state = defence.broadcast(state, moved.astype(np.float64), rng)
                model = noisy.astype(recipe.wire)
                progress(number + 1, training.rounds)
                continue
            if defence.claim:
                rng = stream(seed, "defence", number)
                returned, state = uploaded(defence, state, payload, sent, returned, chosen, rng)
            recorder.round(
                number,
                {
                    names[c]: named(recipe.model.layout(), s)
                    for c, s in zip(chosen, sent, strict=True)
                }
                if training.isolate
                else named(recipe.model.layout(), model),
                {
                    names[c]: named(recipe.model.layout(), r)
                    for c, r in zip(chosen, returned, strict=True)
                },
                {names[c]: float(data.sizes[c]) for c in chosen},
            )
            sizes, weighting = data.sizes[chosen], training.weighting
            if not alone.all():
                model = aggregate(recipe, model, returned[~alone], sizes[~alone], weighting)
            if alone.any():
                own = aggregate(recipe, own, returned[alone], sizes[alone], weighting)
            if defence.claim:
                noisy, state = defence.broadcast(state, model.astype(np.float64), rng)
                model = noisy.astype(recipe.wire)
            progress(number + 1, training.rounds)
    return Path(out)


def budgets(plan: Plan, defence: Defence, sizes: dict[str, int]) -> dict[str, Any]:
    """The differential privacy that the defences promise a record of each client."""
    rounds, everybody, of_size = plan.config.training.rounds, sum(sizes.values()), {}
    for size in set(sizes.values()):
        of_size[size] = budget(
            plan.config.defence, defence.claim, plan.recipe, size, rounds, everybody
        )
    found = {client: of_size[size] for client, size in sizes.items()}
    return {client: b.as_json() for client, b in found.items() if b is not None}


def participants(clients: int, share: float, seed: int, number: int) -> NDArray[np.int64]:
    """The clients of a round, uniformly at random without replacement."""
    count = max(1, round(share * clients))
    if count == clients:
        return np.arange(clients)
    chosen = stream(seed, "participation", number).choice(clients, count, replace=False)
    return np.sort(chosen).astype(np.int64)


def train_clients(
    recipe: Recipe, sent: Array, data: Shards, chosen: NDArray[np.int64], seed: int, number: int
) -> Array:
    """What the chosen clients return (len(chosen), P), clients of similar size in one batch.

    ``sent``: one model (P,) for all, or one for each (len(chosen), P).
    """
    returned = np.empty((len(chosen), sent.shape[-1]), sent.dtype)
    by_size = np.argsort(data.sizes[chosen], kind="stable")
    for begin in range(0, len(chosen), CHUNK):
        part = by_size[begin : begin + CHUNK]
        rng = stream(seed, "batches", number, begin)
        start = sent if sent.ndim == 1 else sent[part]
        with np.errstate(over="ignore", invalid="ignore"):
            place = returned[begin : begin + CHUNK]
            local_training(recipe, start, data.take(chosen[part]), rng, place)
    if (by_size[1:] < by_size[:-1]).any():
        returned = returned[np.argsort(by_size)]
    with np.errstate(over="ignore", invalid="ignore"):
        total = returned.sum()  # far cheaper than looking at each number, and as a rule enough
    if not np.isfinite(total) and not np.isfinite(returned).all():
        raise FixConfig(
            f"round {number}: the training diverged to NaN or infinity; lower learning_rate "
            f"(it is {recipe.learning_rate:g}); the rounds before are kept"
        )
    return returned


def misled(
    plan: Plan,
    sent: Array,
    returned: Array,
    data: Shards,
    chosen: NDArray[np.int64],
    bad: NDArray[np.bool_],
    number: int,
) -> Array:
    """What the chosen clients return, of whom those that are ``bad`` do not do as they are told."""
    asked, recipe, seed = plan.config.property, plan.recipe, plan.config.seed
    assert asked is not None
    rng = stream(seed, "behaviour", number)
    made = returned.copy()
    if asked.kind == "ascent" and recipe.algorithm != "fedsgd":
        start = np.broadcast_to(sent, returned.shape)[bad]
        made[bad] = train_clients(climbing(recipe), start, data, chosen[bad], seed, number)
    elif asked.kind != "membership":
        payload = "gradient" if recipe.algorithm == "fedsgd" else "model"
        start = np.broadcast_to(sent, returned.shape)[bad]
        honest = updates_of(payload, start, returned[bad])
        false = misbehaved(asked.kind, asked.ride, honest, rng)
        made[bad] = false if payload == "gradient" else start - false
    return made


def updates_of(payload: str, sent: Array, returned: Array) -> NDArray[np.float64]:
    """What a listener sees of each client: ``sent - returned``, or the gradient that it sends."""
    if payload == "gradient":
        return returned.astype(np.float64)
    return np.asarray(sent.astype(np.float64) - returned)


def step(recipe: Recipe, model: Array, update: Array) -> Array:
    """The next global model, from the mean update of the clients."""
    rate = recipe.learning_rate if recipe.algorithm == "fedsgd" else 1.0
    return np.asarray(model.astype(np.float64) - rate * update).astype(model.dtype)


def _check_summing(plan: Plan, data: Shards) -> None:
    """Refuse what a plain sum cannot do, or would give away."""
    training, clients = plan.config.training, len(data)
    if training.isolate:
        raise FixConfig(
            "training.isolate sends one client a model of its own, and under secure_sum nobody "
            "sees what it returns; leave one of them out"
        )
    if training.weighting == "size" and data.sizes.min() < data.sizes.max():
        raise FixConfig(
            f"secure_sum adds the updates unweighted, and the clients hold {data.sizes.min()} to "
            f"{data.sizes.max()} records; set training.weighting = 'equal'"
        )
    if len(participants(clients, training.participation, 0, 0)) < 2:
        raise FixConfig(
            f"secure_sum with one client a round ({clients} clients, participation "
            f"{training.participation:g}) hides nothing: raise training.participation"
        )


def uploaded(
    defence: Defence,
    state: State,
    payload: str,
    sent: Array,
    returned: Array,
    chosen: NDArray[np.int64],
    rng: np.random.Generator,
) -> tuple[Array, State]:
    """What the clients return once the defence has changed their updates, in the wire's precision.

    The update is what a listener sees of a client: ``sent - returned``, or the gradient it sends.
    """
    changed, state = defence.upload(state, updates_of(payload, sent, returned), chosen, rng)
    back = changed if payload == "gradient" else sent.astype(np.float64) - changed
    return back.astype(returned.dtype), state


def aggregate(
    recipe: Recipe, model: Array, returned: Array, sizes: NDArray[np.int64], weighting: str
) -> Array:
    """The next global model: the clients' mean, weighted by size or equally."""
    weights = sizes / sizes.sum() if weighting == "size" else np.full(len(sizes), 1 / len(sizes))
    mean = _weighted_sum(weights, returned).astype(model.dtype)
    if recipe.algorithm == "fedsgd":
        return model - model.dtype.type(recipe.learning_rate) * mean
    return mean


def _weighted_sum(weights: Array, returned: Array) -> NDArray[np.float64]:
    """weights @ returned in float64, some columns at a time: no copy of all models is made."""
    mean = np.empty(returned.shape[1])
    wide = max(1, CACHE // (16 * len(returned)))
    for begin in range(0, len(mean), wide):
        part = slice(begin, begin + wide)
        mean[part] = weights @ returned[:, part].astype(np.float64)
    return mean


def client_shards(recipe: Recipe, clients: dict[str, Records]) -> Shards:
    """The clients' records as their models see them, in the precision of the wire."""
    for name, records in clients.items():
        if not len(records):
            raise FixData(f"client {name!r} has no records; leave it out")
    inputs = [encode(recipe.encoding, records) for records in clients.values()]
    labels = [recipe.target.encode(records) for records in clients.values()]
    return shards(inputs, labels, recipe.wire)


def named(layout: Layout, flat: Array) -> dict[str, Array]:
    """A flat model as the named arrays that go over the wire."""
    arrays: dict[str, Array] = {}
    start = 0
    for name, shape in layout:
        size = int(np.prod(shape))
        arrays[name] = flat[start : start + size].reshape(shape)
        start += size
    return arrays
