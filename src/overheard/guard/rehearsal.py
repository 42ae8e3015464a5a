"""A recording of one client, before there is one: rehearsed, or of the messages that it has made.

What is recorded is what a listener to this client's link would hold, and what the config's audit
would grant; so the audit itself can be let loose on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.federation.defences.contract import RoundContext, chain, told
from overheard.federation.disclosure import write_knowledge
from overheard.federation.plan import Plan
from overheard.federation.server import aggregate
from overheard.federation.simulate import (
    broadcast,
    client_shards,
    participants,
    train_clients,
    trained_on,
    uploaded,
)
from overheard.programs.networks import network
from overheard.programs.recipe import named
from overheard.randomness import stream
from overheard.transcript.kind import write
from overheard.transcript.payload import update_of
from overheard.transcript.store import Recorder

STAND_INS = 3
"""Clients that play the others where the config has none: resamples of the client's own records."""
REPLAYS = 5
STRANGE, REPLAYED = 3.0, 1e-3
"""A replay that is off by so many times what chance makes of it, and by so much of the update, is
not how the client trained."""
Array = NDArray[np.floating[Any]]
Messages = Iterable[tuple[Array, Array]]


def heard_alone(ready: Plan) -> Plan:
    """The plan without what hides updates in their sum: the client's as if heard by itself."""
    kept = tuple(d for d in ready.config.defence if "total" not in d.hooks())
    return replace(ready, config=ready.config.model_copy(update={"defence": kept}))


def rehearsed(
    ready: Plan, client: str, rounds: int, draw: int = 0
) -> Iterator[tuple[Array, Array]]:
    """What the client would be sent and return, round by round.

    It takes part in every round. The config's other clients train beside it, each round as many as
    the config says; where it has none, stand-ins do, whose records are drawn from the client's own:
    models that only ever met one client's data settle down and tell less. ``draw``: of everything
    that is random.
    """
    recipe, training = ready.recipe, ready.config.training
    seed = int(stream(ready.config.seed, "preflight", draw).integers(2**31))
    everybody = {client: ready.clients[client]} | _others(ready, client, seed)
    data = client_shards(recipe, trained_on(replace(ready, clients=everybody)))
    defence = chain(*ready.config.defence)
    hooks = defence.step(len(recipe.target.classes)).batches
    memory: dict[Any, Any] = {}
    rule = ready.config.server_rule()
    state, payload = rule.init(recipe.model.size), recipe.payload
    first = network(recipe).initial(ready.config.seed + draw, ready.config.network().initial)
    model = first.astype(recipe.wire)
    for number in range(rounds):
        chosen = participants(len(data), training.participation, seed, number)
        chosen = np.array([0]) if training.isolate == client else np.union1d([0], chosen)
        returned = train_clients(recipe, model, data, chosen, seed, number, hooks)
        context = RoundContext(number, chosen, stream(seed, "defence", number), memory)
        returned = uploaded(defence, payload, model, returned, context)
        yield model, returned[0]
        model, state = aggregate(rule, state, recipe, model, returned, data.sizes[chosen])
        model = broadcast(defence, model, context)


def record_client(ready: Plan, client: str, messages: Messages, out: Path) -> float:
    """Write the recording of one client's link; returns the typical size of an update's
    coordinate."""
    layout = ready.recipe.model.layout()
    own = {client: ready.clients[client]}
    about = {"data": ready.dataset.name, "origin": ready.dataset.origin, "clients": [client]}
    claims = chain(*ready.config.defence).claims
    sizes = []
    with Recorder(out, ready.recipe.payload, about) as recorder:
        write_knowledge(recorder, replace(ready, clients=own, properties=None))
        if claims:
            write(recorder, told(claims))
        for number, (sent, returned) in enumerate(messages):
            recorder.round(
                number,
                named(layout, sent),
                {client: named(layout, returned)},
                {client: float(len(own[client]))},
            )
            update = update_of(ready.recipe.payload, sent, returned)
            sizes.append(float(np.sqrt(np.mean(update**2))))
    return float(np.mean(sizes))


def replayed(ready: Plan, client: str, sent: Array, returned: Array) -> str:
    """Why a real update is not one of this config on these records; empty if it may be.

    The recipe is replayed some times from the model that was sent: mini-batches and noise differ
    from time to time, and what was returned may differ as much.
    """
    recipe, payload = ready.recipe, ready.recipe.payload
    data = client_shards(
        recipe, trained_on(replace(ready, clients={client: ready.clients[client]}))
    )
    who, begin = np.array([0]), sent.astype(recipe.wire)
    defence = chain(*ready.config.defence)
    hooks = defence.step(len(recipe.target.classes)).batches
    updates = []
    for number in range(REPLAYS):
        answer = train_clients(recipe, begin, data, who, ready.config.seed, number, hooks)
        context = RoundContext(number, who, stream(ready.config.seed, "replay", number))
        answer = uploaded(defence, payload, begin, answer, context)
        updates.append(update_of(payload, begin, answer)[0])
    centre = np.mean(updates, axis=0)
    spread = float(np.sqrt(np.mean((np.array(updates) - centre) ** 2) * REPLAYS / (REPLAYS - 1)))
    size = float(np.sqrt(np.mean(centre**2)))
    off = float(np.sqrt(np.mean((update_of(payload, sent, returned) - centre) ** 2)))
    if off <= max(STRANGE * spread, REPLAYED * size):
        return ""
    part = "" if not size else f" by {off / size:.1%} of the update"
    return (
        "not how this config says that you train: replayed on your own records, it is off"
        f"{part}, and chance explains {spread / max(size, 1e-300):.1%}"
    )


def _others(ready: Plan, client: str, seed: int) -> dict[str, Any]:
    others = {name: r for name, r in ready.clients.items() if name != client}
    if others:
        return others
    own = ready.clients[client]
    rng = stream(seed, "stand-ins")
    return {
        f"stand-in {number}": own.take(np.sort(rng.integers(len(own), size=len(own))))
        for number in range(STAND_INS)
    }
