"""The simulator: a whole federation on one machine, recorded as a listener would hear it.

Clients are batched, not looped: one call trains all participants of a round. The same seed
gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixConfig, FixData
from overheard.federation.behaviours import climbing, misbehaved
from overheard.federation.defences.accounting import budget
from overheard.federation.defences.contract import Chain, RoundContext, chain, told
from overheard.federation.disclosure import write_knowledge
from overheard.federation.plan import Plan
from overheard.federation.rounds import participants
from overheard.federation.server import aggregate, aggregate_sum
from overheard.federation.simulate_program import simulate_program
from overheard.programs.networks import network
from overheard.programs.orders import Place, Shuffle, orders
from overheard.programs.recipe import Layout, Recipe
from overheard.programs.records import Records, encode
from overheard.programs.training import Hooks, Shards, local_training, shards
from overheard.randomness import stream
from overheard.transcript.kind import write
from overheard.transcript.payload import message_of, update_of
from overheard.transcript.store import Recorder

CHUNK = 64
Array = NDArray[np.floating[Any]]
Progress = Callable[[int, int], None]


def simulate(plan: Plan, out: str | Path, progress: Progress = lambda done, total: None) -> Path:
    """Run the federation and write its recording to ``out``; returns the path."""
    if not isinstance(plan.told, Recipe):
        return simulate_program(plan, plan.told, out, progress)
    recipe, training, seed = plan.recipe, plan.config.training, plan.config.seed
    rule = plan.config.server_rule()
    defence = chain(*plan.config.defence)
    data = client_shards(recipe, trained_on(plan))
    hooks = defence.step(len(recipe.target.classes)).batches
    names, arrays = list(plan.clients), partial(named, recipe.model.layout())
    about = {
        "data": plan.dataset.name,
        "origin": plan.dataset.origin,
        "clients": names,
        "config": plan.config.model_dump(mode="json", exclude={"seed"}),  # which is in truth/
    }
    if training.isolate:
        about["isolated"] = training.isolate
    payload = recipe.payload
    if defence.summing is not None:
        _check_summing(defence.summing.name, plan, data)
    dishonest = plan.properties.dishonest if plan.properties else frozenset()
    bad = np.array([name in dishonest for name in names])
    promised = budgets(plan, defence, dict(zip(names, data.sizes.tolist(), strict=True)))
    model = network(recipe).initial(seed, plan.config.network().initial).astype(recipe.wire)
    with Recorder(out, payload, about) as recorder:
        write_knowledge(recorder, plan)
        recorder.seed(seed)
        if defence.parts:
            write(recorder, told(defence.claims))
            if promised:
                recorder.side("PrivacyBudget", promised)
        memory: dict[Any, Any] = {}  # of the defences
        state = rule.init(len(model))
        own, own_state = model, state  # of the isolated client
        taken = np.zeros(len(names), dtype=np.int64)  # rounds in which each took part before
        for number in range(training.rounds):
            chosen = participants(len(names), training.participation, seed, number)
            alone = np.array([names[c] == training.isolate for c in chosen])
            sent = np.where(alone[:, None], own, model) if training.isolate else model
            if training.shuffle is not None:
                data = shuffled(recipe, data, training.shuffle, number, taken)
                taken[chosen] += 1
            returned = train_clients(recipe, sent, data, chosen, seed, number, hooks)
            if bad[chosen].any():
                returned = misled(plan, sent, returned, data, chosen, bad[chosen], number)
            context = RoundContext(number, chosen, stream(seed, "defence", number), memory)
            if defence.summing is not None:
                updates = defence.upload(update_of(payload, sent, returned), context)
                lost = replace(context, rng=stream(seed, "masks", number))  # who drops out
                total, answered = defence.total(updates, lost)
                who = [names[c] for c in chosen[answered]]
                recorder.aggregated(number, arrays(model), arrays(total), who)
                model, state = aggregate_sum(rule, state, recipe, model, total, len(who))
            else:
                returned = uploaded(defence, payload, sent, returned, context)
                recorder.round(
                    number,
                    {names[c]: arrays(s) for c, s in zip(chosen, sent, strict=True)}
                    if training.isolate
                    else arrays(model),
                    {names[c]: arrays(r) for c, r in zip(chosen, returned, strict=True)},
                    {names[c]: float(data.sizes[c]) for c in chosen},
                )
                sizes = data.sizes[chosen]
                if not alone.all():
                    others = returned[~alone], sizes[~alone]
                    model, state = aggregate(rule, state, recipe, model, *others)
                if alone.any():
                    mine = returned[alone], sizes[alone]
                    own, own_state = aggregate(rule, own_state, recipe, own, *mine)
            model = broadcast(defence, model, context)
            progress(number + 1, training.rounds)
    return Path(out)


def budgets(plan: Plan, defence: Chain, sizes: dict[str, int]) -> dict[str, Any]:
    """The differential privacy that the defences promise a record of each client."""
    rounds, everybody, of_size = plan.config.training.rounds, sum(sizes.values()), {}
    for size in set(sizes.values()):
        of_size[size] = budget(defence.claims, plan.recipe, size, rounds, everybody)
    found = {client: of_size[size] for client, size in sizes.items()}
    return {client: b.as_json() for client, b in found.items() if b is not None}


def train_clients(
    recipe: Recipe,
    sent: Array,
    data: Shards,
    chosen: NDArray[np.int64],
    seed: int,
    number: int,
    hooks: Hooks = (),
) -> Array:
    """What the chosen clients return (len(chosen), P), clients of similar size in one batch.

    ``sent``: one model (P,) for all, or one for each (len(chosen), P). ``hooks``: what defences do
    inside local training.
    """
    returned = np.empty((len(chosen), sent.shape[-1]), sent.dtype)
    by_size = np.argsort(data.sizes[chosen], kind="stable")
    for begin in range(0, len(chosen), CHUNK):
        part = by_size[begin : begin + CHUNK]
        rng = stream(seed, "batches", number, begin)
        start = sent if sent.ndim == 1 else sent[part]
        with np.errstate(over="ignore", invalid="ignore"):
            place = returned[begin : begin + CHUNK]
            local_training(recipe, start, data.take(chosen[part]), rng, place, hooks=hooks)
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


def shuffled(
    recipe: Recipe, data: Shards, how: Shuffle, number: int, taken: NDArray[np.int64]
) -> Shards:
    """The records with the orders of this round, of clients that fix their seed; ``taken``: rounds
    in which each took part before."""
    longest = data.inputs.shape[1]
    passes = np.maximum(recipe.batches(data.sizes), 1)
    epochs = recipe.epochs if recipe.steps is None else -(-recipe.steps // int(passes.min()))
    made = np.tile(np.arange(longest), (epochs, len(data), 1))
    alike: dict[tuple[int, int], NDArray[np.int64]] = {}
    for client, (records, before) in enumerate(zip(data.sizes, taken, strict=True)):
        key = int(records), int(before)
        if key not in alike:
            place = Place(number, epochs, key[0], recipe.model.size, key[1])
            alike[key] = orders(how.convention, how.seed, place)
        made[:, client, :records] = alike[key]
    return replace(data, orders=tuple(made))


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
    if asked.kind == "ascent" and not recipe.sends_gradient:
        start = np.broadcast_to(sent, returned.shape)[bad]
        hooks = chain(*plan.config.defence).step(len(recipe.target.classes)).batches
        made[bad] = train_clients(climbing(recipe), start, data, chosen[bad], seed, number, hooks)
    elif asked.kind != "membership":
        start = np.broadcast_to(sent, returned.shape)[bad]
        honest = update_of(recipe.payload, start, returned[bad])
        made[bad] = message_of(
            recipe.payload, start, misbehaved(asked.kind, asked.ride, honest, rng)
        )
    return made


def _check_summing(name: str, plan: Plan, data: Shards) -> None:
    """Refuse what a plain sum cannot do, or would give away."""
    training, clients = plan.config.training, len(data)
    if training.isolate:
        raise FixConfig(
            f"training.isolate sends one client a model of its own, and under {name} nobody sees "
            "what it returns; leave one of them out"
        )
    weights = plan.config.server_rule().weights(data.sizes)
    if weights.min() < weights.max():
        raise FixConfig(
            f"{name} adds the updates unweighted, and the clients hold {data.sizes.min()} to "
            f"{data.sizes.max()} records; set training.weighting = 'equal', or that in [server]"
        )
    if len(participants(clients, training.participation, 0, 0)) < 2:
        raise FixConfig(
            f"{name} with one client a round ({clients} clients, participation "
            f"{training.participation:g}) hides nothing: raise training.participation"
        )


def uploaded(
    defence: Chain, payload: str, sent: Array, returned: Array, context: RoundContext
) -> Array:
    """What the clients return once the defences have changed their updates, in the wire's
    precision."""
    if not defence.parts:
        return returned
    changed = defence.upload(update_of(payload, sent, returned), context)
    return message_of(payload, sent, changed).astype(returned.dtype)


def broadcast(defence: Chain, model: Array, context: RoundContext) -> Array:
    """The global model as the server sends it, in the wire's precision."""
    return defence.broadcast(model.astype(np.float64), context).astype(model.dtype)


def trained_on(plan: Plan) -> dict[str, Records]:
    """The records that each client trains on, once the defences have changed its own."""
    defence, seed = chain(*plan.config.defence), plan.config.seed
    return {
        client: defence.records(records, stream(seed, "records", client))
        for client, records in plan.clients.items()
    }


def client_shards(recipe: Recipe, clients: dict[str, Records]) -> Shards:
    """The clients' records as their models see them, in the precision of the wire."""
    for name, records in clients.items():
        if not len(records):
            raise FixData(f"client {name!r} has no records; leave it out")
    inputs = [encode(recipe.of(name).encoding, records) for name, records in clients.items()]
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
