"""The simulator: a whole federation on one machine, recorded as a listener would hear it.

One loop for networks and for programs that train none; what a round is, each says for itself.
Clients that train a network are batched, not looped: one call trains all participants of a round.
The same seed gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixConfig, FixData
from overheard.federation.defences.accounting import budget
from overheard.federation.defences.contract import Chain, RoundContext, chain
from overheard.federation.plan import Plan, write_knowledge
from overheard.federation.server import Server
from overheard.programs.networks import network
from overheard.programs.orders import Place, Shuffle, orders
from overheard.programs.program import Message, Program
from overheard.programs.recipe import Recipe, named
from overheard.programs.records import Records, encode
from overheard.programs.training import Hooks, Shards, local_training, shards
from overheard.randomness import stream
from overheard.transcript.messages import RELEASE, message_of, update_of
from overheard.transcript.store import Recorder

CHUNK = 64
Array = NDArray[np.floating[Any]]
Who = NDArray[np.int64]
Progress = Callable[[int, int], None]


def simulate(plan: Plan, out: str | Path, progress: Progress = lambda done, total: None) -> Path:
    """Run the federation and write its recording to ``out``; returns the path."""
    run_rounds(plan, out, progress)
    return Path(out)


def run_rounds(
    plan: Plan, out: str | Path, progress: Progress = lambda done, total: None
) -> NetworkRounds | ProgramRounds:
    """The same; returns what holds the model that would be sent next (``model``, ``sent``)."""
    training, seed, names = plan.config.training, plan.config.seed, list(plan.clients)
    about = {
        "data": plan.dataset.name,
        "origin": plan.dataset.origin,
        "clients": names,
        "config": plan.config.model_dump(mode="json", exclude={"seed"}),  # which is in truth/
    }
    if training.isolate:
        about["isolated"] = training.isolate
    defence, held = chain(*plan.config.defence), trained_on(plan)
    promised = budgets(plan, defence, {client: len(records) for client, records in held.items()})
    rounds: NetworkRounds | ProgramRounds
    if isinstance(plan.program, Recipe):
        rounds = NetworkRounds(plan, defence, held)
    else:
        rounds = ProgramRounds(plan.program, defence, held, seed)
    with Recorder(out, rounds.payload, about) as recorder:
        write_knowledge(recorder, plan)
        recorder.seed(seed)
        if promised:
            recorder.side("PrivacyBudget", promised)
        for number in range(training.rounds):
            chosen = participants(len(names), training.participation, seed, number)
            rounds.take(number, chosen, recorder)
            progress(number + 1, training.rounds)
    return rounds


def participants(clients: int, share: float, seed: int, number: int) -> Who:
    """The clients of a round, uniformly at random without replacement."""
    count = max(1, round(share * clients))
    if count == clients:
        return np.arange(clients)
    chosen = stream(seed, "participation", number).choice(clients, count, replace=False)
    return np.sort(chosen).astype(np.int64)


def budgets(plan: Plan, defence: Chain, sizes: Mapping[str, int]) -> dict[str, Any]:
    """The differential privacy that the defences promise a record of each client."""
    rounds, everybody = plan.config.training.rounds, sum(sizes.values())
    recipe = plan.program if isinstance(plan.program, Recipe) else None
    of_size = {n: budget(defence.claims, recipe, n, rounds, everybody) for n in {*sizes.values()}}
    found = {client: of_size[size] for client, size in sizes.items()}
    return {client: b.as_json() for client, b in found.items() if b is not None}


class NetworkRounds:
    """Clients train a network, or send its gradient; the server makes the next model of it."""

    def __init__(self, plan: Plan, defence: Chain, held: Mapping[str, Records]) -> None:
        self.plan, self.defence, self.recipe = plan, defence, plan.recipe
        self.payload, self.names = self.recipe.payload, list(held)
        self.data = client_shards(self.recipe, held)
        self.hooks = defence.step(len(self.recipe.target.classes)).batches
        if defence.summing is not None:
            _check_summing(defence.summing.name, plan, self.data)
        dishonest = plan.properties.dishonest if plan.properties else frozenset()
        self.bad = np.array([name in dishonest for name in self.names])
        start = network(self.recipe).initial(plan.config.seed, plan.config.network().initial)
        model, rule = start.astype(self.recipe.precision), plan.config.server
        self.server = Server(rule, self.recipe, model, rule.init(len(model)))
        self.own = self.server  # as the isolated client sees it
        self.memory: dict[Any, Any] = {}  # of the defences
        self.taken = np.zeros(len(held), dtype=np.int64)  # rounds in which each took part before

    @property
    def model(self) -> Array:
        """The global model that is sent next."""
        return self.server.model

    def take(self, number: int, chosen: Who, recorder: Recorder) -> None:
        """One round with the chosen clients, written down in the precision of the messages."""
        training, seed, defence = self.plan.config.training, self.plan.config.seed, self.defence
        alone = np.array([self.names[c] == training.isolate for c in chosen])
        sent = self.model
        if training.isolate:
            sent = np.where(alone[:, None], self.own.model, sent)
        if training.shuffle is not None:
            self.data = shuffled(self.recipe, self.data, training.shuffle, self.taken)
            self.taken[chosen] += 1
        returned = train_clients(self.recipe, sent, self.data, chosen, seed, number, self.hooks)
        if self.bad[chosen].any():
            returned = self._misled(sent, returned, chosen, number)
        context = RoundContext(number, chosen, stream(seed, "defence", number), self.memory)
        if defence.summing is not None:
            updates = defence.upload(update_of(self.payload, sent, returned), context)
            self._sum(updates, context, recorder)
        else:
            if defence.parts:
                changed = defence.upload(update_of(self.payload, sent, returned), context)
                returned = message_of(self.payload, sent, changed).astype(returned.dtype)
            who, sizes = [self.names[c] for c in chosen], self.data.sizes[chosen]
            models: Any = self._named(self.model)
            if training.isolate:
                models = dict(zip(who, map(self._named, sent), strict=True))
            answers = dict(zip(who, map(self._named, returned), strict=True))
            weights = dict(zip(who, sizes.astype(float), strict=True))
            recorder.round(number, models, answers, weights)
            if not alone.all():
                counts = training.weights(sizes[~alone])
                self.server = self.server.averaged(returned[~alone], counts)
            if alone.any():
                self.own = self.own.averaged(returned[alone], np.ones(1))
        following = defence.broadcast(self.model.astype(np.float64), context)
        self.server = replace(self.server, model=following.astype(self.model.dtype))

    def _sum(self, updates: NDArray[np.float64], context: RoundContext, recorder: Recorder) -> None:
        """The server learns the sum of the updates, and who is in it."""
        drops = replace(context, rng=stream(self.plan.config.seed, "masks", context.number))
        total, answered = self.defence.total(updates, drops)
        who = [self.names[c] for c in context.who[answered]]
        recorder.aggregated(context.number, self._named(self.model), self._named(total), who)
        self.server = self.server.summed(total, len(who))

    def _named(self, flat: Array) -> dict[str, Array]:
        """A flat model as the named arrays that are sent."""
        return named(self.recipe.model.layout(), flat)

    def _misled(self, sent: Array, returned: Array, chosen: Who, number: int) -> Array:
        """What the chosen clients return, of whom the dishonest do not do as the program says."""
        asked, recipe, seed = self.plan.config.property, self.recipe, self.plan.config.seed
        assert asked is not None
        assert asked.kind is not None
        bad = self.bad[chosen]
        start, made = np.broadcast_to(sent, returned.shape)[bad], returned.copy()
        if asked.kind == "ascent" and not recipe.sends_gradient:
            uphill = recipe.model_copy(update={"learning_rate": -recipe.learning_rate})
            who = chosen[bad]
            made[bad] = train_clients(uphill, start, self.data, who, seed, number, self.hooks)
        elif asked.kind != "membership":
            honest = update_of(self.payload, start, returned[bad])
            rng = stream(seed, "behaviour", number)
            wrong = misbehaved(asked.kind, asked.ride, honest, rng)
            made[bad] = message_of(self.payload, start, wrong)
        return made


class ProgramRounds:
    """Clients train no network: each answers what the server sends."""

    payload = RELEASE

    def __init__(
        self, program: Program, defence: Chain, held: Mapping[str, Records], seed: int
    ) -> None:
        self.program, self.defence, self.held, self.seed = program, defence, held, seed
        self.sent = program.first()

    def take(self, number: int, chosen: Who, recorder: Recorder) -> None:
        """One round with the chosen clients, written down."""
        names = list(self.held)
        returned = {names[c]: self._answer(names[c], number) for c in chosen}
        if self.defence.summing is None:
            weights = {client: float(len(self.held[client])) for client in returned}
            recorder.round(number, self.sent, returned, weights)
        else:
            context = RoundContext(number, chosen, stream(self.seed, "masks", number))
            total, who = self._summed(returned, context)
            recorder.aggregated(number, self.sent, total, who)
            returned = {"": total}
        self.sent = self.program.following(self.sent, returned)

    def _answer(self, client: str, number: int) -> Message:
        rng = stream(self.seed, "program", client, number)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            answer = self.program.respond(self.sent, self.held[client], rng)
        for name, array in answer.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise FixConfig(
                    f"round {number}: {name!r} of client {client!r} is NaN or infinite: the "
                    "program diverged (a model that its records do not determine?); the rounds "
                    "before are kept"
                )
        return answer

    def _summed(
        self, returned: Mapping[str, Message], context: RoundContext
    ) -> tuple[Message, list[str]]:
        """What the server learns of the answers, and whose sum it is."""
        flat = np.array(
            [np.concatenate([np.ravel(a) for a in answer.values()]) for answer in returned.values()]
        )
        total, answered = self.defence.total(self.defence.upload(flat, context), context)
        names, like = list(returned), next(iter(returned.values()))
        layout = tuple((name, np.shape(array)) for name, array in like.items())
        return named(layout, total), [names[k] for k in answered]


def train_clients(
    recipe: Recipe, sent: Array, data: Shards, who: Who, seed: int, number: int, hooks: Hooks = ()
) -> Array:
    """What the chosen clients return (len(who), P), clients of similar size in one batch.

    ``sent``: one model (P,) for all, or one for each (len(who), P). ``hooks``: what defences do
    inside local training.
    """
    returned = np.empty((len(who), sent.shape[-1]), sent.dtype)
    by_size = np.argsort(data.sizes[who], kind="stable")
    for begin in range(0, len(who), CHUNK):
        part = by_size[begin : begin + CHUNK]
        rng = stream(seed, "batches", number, begin)
        start = sent if sent.ndim == 1 else sent[part]
        with np.errstate(over="ignore", invalid="ignore"):
            place = returned[begin : begin + CHUNK]
            local_training(recipe, start, data.take(who[part]), rng, place, hooks=hooks)
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


def shuffled(recipe: Recipe, data: Shards, how: Shuffle, taken: NDArray[np.int64]) -> Shards:
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
            place = Place(epochs, key[0], recipe.model.size, key[1])
            alike[key] = orders(how.convention, [how.seed], place)[0]
        made[:, client, :records] = alike[key]
    return replace(data, orders=tuple(made))


def misbehaved(behaviour: str, ride: str, updates: Array, rng: np.random.Generator) -> Array:
    """What dishonest clients send in place of the updates (n, P) that they were to send
    (kerkouche2023 section 4).

    ``inversion``: the update negated. ``ascent``: it ascends the loss in place of descending
    it; with one gradient a round (FedSGD) the sign is all that differs. ``free-rider``: does not
    train; its update is nothing (``ride`` unchanged), or noise that is as long as the update that
    it would have sent.
    """
    if behaviour in ("inversion", "ascent"):
        return -updates
    if ride == "unchanged":
        return np.zeros_like(updates)
    noise = rng.normal(size=updates.shape)
    length = np.linalg.norm(updates, axis=1) / np.linalg.norm(noise, axis=1)
    return np.asarray(noise * length[:, None], updates.dtype)


def _check_summing(name: str, plan: Plan, data: Shards) -> None:
    """Refuse what a plain sum cannot do, or would give away."""
    training, clients = plan.config.training, len(data)
    if training.isolate:
        raise FixConfig(
            f"training.isolate sends one client a model of its own, and under {name} nobody sees "
            "what it returns; leave one of them out"
        )
    if training.weighting == "size" and data.sizes.min() < data.sizes.max():
        raise FixConfig(
            f"{name} adds the updates unweighted, and the clients hold {data.sizes.min()} to "
            f"{data.sizes.max()} records; set training.weighting = 'equal'"
        )
    if len(participants(clients, training.participation, 0, 0)) < 2:
        raise FixConfig(
            f"{name} with one client a round ({clients} clients, participation "
            f"{training.participation:g}) hides nothing: raise training.participation"
        )


def trained_on(plan: Plan) -> dict[str, Records]:
    """The records that each client trains on, once the defences have changed its own."""
    if empty := [name for name, records in plan.clients.items() if not len(records)]:
        raise FixData(f"client {empty[0]!r} has no records; leave it out")
    defence, seed = chain(*plan.config.defence), plan.config.seed
    return {
        client: defence.records(records, stream(seed, "records", client))
        for client, records in plan.clients.items()
    }


def client_shards(recipe: Recipe, clients: Mapping[str, Records]) -> Shards:
    """The clients' records as their models see them, in the precision of the messages."""
    inputs = [encode(recipe.of(name).encoding, records) for name, records in clients.items()]
    labels = [recipe.target.encode(records) for records in clients.values()]
    return shards(inputs, labels, recipe.precision)
