"""Did the clients train as declared? Their true records are trained on again and compared.

Every client, in several rounds from its first to its last: from the model it was sent, on the
records of ``truth/``, by the recipe that the recording declares. Where nothing is random the
message it returned must be the replay, to rounding. Where mini-batches come in random orders, or
noise was added, several replays show how far they are from each other, and the messages must be as
close to them. Under secure aggregation the sum is replayed, of one set of clients whose records are
all known. Clients that train no network answer again by their program (`repeated`): without
randomness there is one answer, to rounding; what draws at random is not checked, and says so. This
is evaluation, not an attack: it needs the secret records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t

from overheard.attacks.client import rounding, spread
from overheard.errors import FixRecording, OverheardError
from overheard.evaluation.checkpoint import attempt
from overheard.evaluation.record import CLOSE, MOST_SDS, Replay, pooled_rate
from overheard.programs.networks import network
from overheard.programs.program import Exchange, Program, Terms
from overheard.programs.recipe import Adam, Recipe
from overheard.programs.records import Records, encode
from overheard.programs.training import local_training, shards
from overheard.randomness import stream
from overheard.transcript.knowledge import AppliedDefence, Messages
from overheard.transcript.store import Recording
from overheard.transcript.target import LOCAL_MODEL
from overheard.transcript.threat import Threat
from overheard.transcript.view import observe

Array = NDArray[np.float64]
ROUNDS, REPLAYS, AGAIN = 8, 16, 64
"""Rounds of each client, evenly spread, replays of each, and replays of a client that is farther
from these than any of them from the others: one of seventeen is, by chance."""
FALSE = 1e-3
"""Probability that an audit calls any client strange that trained as declared, if readings were
Gaussian; they are not quite: ``experiments/robustness/misdeclared.py`` counts how often it does."""
MOST_NUMBERS = 1 << 26
"""Numbers that the replays of a round may hold."""
MOST_WORK = 1e12
"""Multiplications that the replays of one audit may cost: about a minute."""
STEP_WORK = 2e5
"""What a local step costs beside its multiplications, in such units."""
MOST_OFF = 1e9
SCATTER = (
    "messages scatter otherwise than random orders and noise leave replays: clients train in other "
    "batches, or on all records at once and something else is off by that little"
)
TINY = 1e-300
MOST_BYTES = 1 << 25
"""Of copies of a client's records that train together."""


def replays(
    recording: Recording,
    spec: Terms,
    truth: Mapping[str, Records],
    clients: Sequence[str],
    seed: int = 0,
) -> tuple[Replay, ...]:
    """Whether each client's messages are what the recipe, or its program, makes of its records."""
    these = (recording, spec, truth)
    return together([replayed(*these, client, len(clients), seed) for client in clients])


def replayed(
    recording: Recording, spec: Terms, truth: Mapping[str, Records], client: str, of: int, seed: int
) -> Replay:
    """One client's line before all are asked `together`, of so many clients."""
    level, work = (total / max(of, 1) for total in (FALSE, MOST_WORK))
    rng = stream(seed, "replay", client)
    unchecked = partial(Replay, client=client, outcome="cannot be checked")

    def run() -> Replay:
        try:
            if client not in truth or not len(truth[client]):
                return unchecked(reason="truth/ has no records of it")
            if isinstance(spec, Program):
                return repeated(recording, spec, truth[client], client, level, rng)
            assert isinstance(spec, Recipe)
            return compared(*_trained(recording, spec, truth, client, work), client, level, rng)
        except OverheardError as error:
            return unchecked(reason=str(error))

    found = attempt(run, attack="", client=client)
    if isinstance(found, Replay):
        return found
    return unchecked(reason=f"the replay ended in {found.reason}")


def together(found: Sequence[Replay]) -> tuple[Replay, ...]:
    """The same, where all clients are also asked together: a rate that is off makes messages
    longer, or shorter, by the same part; and messages of other batches are nearer to replays, or
    farther, than these are to each other, or off alike in all rounds, if by little at each client
    (few do not speak for the others: half a standard deviation in the mean, no client counting for
    more than `MOST_SDS`)."""
    pooled, reason = pooled_rate(found), ""
    scores = np.array([r.scores for r in found if r.scores]).reshape(-1, 3)
    nearer, whole, alike = scores.clip(-MOST_SDS, MOST_SDS).sum(axis=0)
    least = max(MOST_SDS * len(scores) ** 0.5, len(scores) / 2)
    if pooled is not None and abs(pooled.off) > pooled.least:
        reason = (
            f"clients together (of those that fit alone: {pooled.clients}) send {pooled.off:+.1%} "
            f"more than the declared rate and epochs lead to (standard error {pooled.sd:.1%})"
        )
    elif max(abs(nearer), whole, alike) > least:
        reason = SCATTER
    unfit = {"outcome": "does not fit", "reason": reason} if reason else {}
    return tuple(r.model_copy(update=unfit if r.outcome == "fits" else {}) for r in found)


def _trained(
    recording: Recording, spec: Recipe, truth: Mapping[str, Records], client: str, work: float
) -> tuple[Messages, Training]:
    """What was observed of a client, alone or in the sum of the same clients, in as many rounds as
    may be replayed, and how it came about; refused if nobody can say."""
    recipe, every = spec.of(client), recording.rounds
    observed = [e for e in every if ("returned", client) in e.spans]
    alone = bool(observed)
    who: tuple[str, ...] = (client,)
    if not alone:
        sums = [e for e in every if e.aggregated and client in (e.participants or ())]
        if not sums:
            raise FixRecording("it never took part")
        who = tuple(sums[0].participants or ())
        observed = [e for e in sums if set(e.participants or ()) == set(who)]
    if silent := [c for c in who if c not in truth]:
        raise FixRecording(
            f"its update is observed in a sum only, and truth/ has no records of {silent[0]}"
        )
    rounds = _affordable(recipe, sum(len(truth[c]) for c in who), len(observed), work)
    some = replace(recording, rounds=tuple(observed[r] for r in spread(len(observed), rounds)))
    vars(some)["clients"] = recording.clients  # of very many, not listed anew for every one of them
    kinds = frozenset({Messages, AppliedDefence} if alone else {AppliedDefence})
    view = observe(some, Threat("replay", kinds, ""), LOCAL_MODEL, client)
    link = view.know(Messages) if alone else _summed(some, recipe)
    defence = view.know(AppliedDefence) if AppliedDefence in view.kinds else AppliedDefence(())
    if reason := unrepeatable(recipe, defence):
        raise FixRecording(reason)
    return link, Training.of(spec, defence, {c: truth[c] for c in who})


def _affordable(recipe: Recipe, records: int, rounds: int, work: float) -> int:
    """How many rounds to replay; refused if one is too much."""
    times, steps, size = REPLAYS + AGAIN, recipe.local_steps(max(records, 1)), recipe.model.size
    each = recipe.batch_size or 1
    visited = recipe.epochs * records if recipe.steps is None else recipe.steps * each
    cost = times * 3.0 * visited * size * recipe.model.reuse + 2 * steps * STEP_WORK
    for some in (ROUNDS, 3, 1):
        if times * size <= MOST_NUMBERS and min(some, rounds) * cost <= work:
            return some
    much = f"long (about {cost / work:,.1f} minutes; one is spent)" if cost > work else "large"
    raise FixRecording(f"too {much} to repeat: {size:,} parameters (local steps: {steps:,})")


def _summed(recording: Recording, recipe: Recipe) -> Messages:
    """What was observed of all clients, as if one client had sent it."""
    names = [name for name, _ in recipe.model.layout()]
    observed = [
        (entry.number, *(np.concatenate([a[n].ravel() for n in names]) for a in (sent, total)))
        for entry, sent, total in recording.aggregates()
    ]
    numbers, sent, total = (np.array(part) for part in zip(*observed, strict=True))
    returned = total if recipe.sends_gradient else sent - total
    return Messages(recording.payload, numbers, sent, returned, np.full(len(observed), np.nan))


def repeated(
    recording: Recording,
    program: Program,
    records: Records,
    client: str,
    level: float,
    rng: np.random.Generator,
) -> Replay:
    """Whether a client's messages are what the program makes of its records."""
    if program.random and not program.trains:
        raise FixRecording("the program draws at random, and nobody repeats that")
    threat = Threat("replay", frozenset({Messages}), "")
    every = observe(recording, threat, LOCAL_MODEL, client).know(Messages).exchanges
    some = every[:: max(1, -(-len(every) // ROUNDS))]
    numbers = tuple(one.number for one in some)

    def again(row: int, times: int) -> Array:
        sent = some[row].sent
        many = [Exchange(row, sent, program.respond(sent, records, rng)) for _ in range(times)]
        return np.array([_model(answer)[0] for answer in many])

    if program.random:
        return by_chance([_model(one) for one in some], again, level).line(client, numbers)
    offs = [program.distance(one.returned, program.respond(one.sent, records, rng)) for one in some]
    worst = max(range(len(some)), key=offs.__getitem__)
    return Outcome(bool(offs[worst]), worst, offs[worst]).line(client, numbers)


def _model(one: Exchange) -> tuple[Array, Array]:
    """How the client changed the model (P,), and what single precision leaves open of that."""
    before, after = (
        np.concatenate([np.ravel(way[name]) for name in sorted(one.sent)], dtype=np.float64)
        for way in (one.sent, one.returned)
    )
    return after - before, np.spacing(np.abs(after).astype(np.float32)).astype(np.float64)


def unrepeatable(recipe: Recipe, defence: AppliedDefence) -> str:
    """Why nobody can replay what was done to the updates; nothing if one can.

    Clipping is done again, noise is drawn anew and widens what counts as close, of sparse updates
    the coordinates sent are compared.
    """
    repeatable, sparse = defence.having("repeatable"), defence.having("sparse")
    other = [name for name in defence.names if name not in repeatable]
    if other:
        return f"the defence {', '.join(other)} changes updates in a way that is not repeated here"
    if sparse and (defence.noise_sd or not certain(recipe)):
        return f"which coordinates {', '.join(sparse)} sends is random here"
    return ""


def certain(recipe: Recipe) -> bool:
    """Whether training can come out in one way only."""
    ordered = recipe.full_batch or recipe.sends_gradient
    return ordered and recipe.private is None and not network(recipe).random


@dataclass(frozen=True)
class Training:
    """Clients that train as declared and are observed as one, mostly a single one: of each its
    records, as the model sees them; and the defence."""

    recipe: Recipe
    defence: AppliedDefence
    inputs: tuple[Array, ...]
    labels: tuple[Array, ...]

    @classmethod
    def of(cls, spec: Recipe, defence: AppliedDefence, records: Mapping[str, Records]) -> Training:
        """Of these clients on these records; of a batch that holds all of them, full batches."""
        counted = spec.steps or spec.drop_last or spec.private
        if not counted and max(map(len, records.values())) <= (spec.batch_size or 0):
            spec = spec.model_copy(update={"batch_size": None})
        inputs = tuple(encode(spec.of(c).encoding, own) for c, own in records.items())
        return cls(spec, defence, inputs, tuple(map(spec.target.encode, records.values())))

    @property
    def certain(self) -> bool:
        return certain(self.recipe) and not self.defence.noise_sd

    def full_batch(self) -> Training | None:
        """The same way gone in steps on all records, where nothing but batch orders is random."""
        recipe = self.recipe
        alone = recipe.model_copy(update={"batch_size": None, "steps": None, "drop_last": False})
        if recipe.full_batch or self.defence.noise_sd or not certain(alone):
            return None
        steps = np.mean([recipe.local_steps(len(y)) for y in self.labels]) / recipe.epochs
        if not isinstance(recipe.optimiser, Adam):  # its direction a longer step would bend
            alone = alone.model_copy(update={"learning_rate": recipe.learning_rate * float(steps)})
        return replace(self, recipe=alone)

    def updates(self, sent: NDArray[Any], times: int, rng: np.random.Generator) -> Array:
        """Updates (times, P) as they leave, computed in the precision of ``sent``; of several
        models (M, P) in the order in which they were sent (M * times, P)."""
        models = np.atleast_2d(sent)
        total = np.zeros((len(models) * times, models.shape[1]))
        for x, y in zip(self.inputs, self.labels, strict=True):
            together = max(1, MOST_BYTES // max(x.nbytes, 1))
            with np.errstate(over="ignore", invalid="ignore"):
                for begin in range(0, len(total), together):
                    rows = np.arange(begin, min(begin + together, len(total)))
                    data = shards([x] * len(rows), [y] * len(rows), str(sent.dtype))
                    start = models[rows // times]
                    made = local_training(self.recipe, start, data, rng).astype(np.float64)
                    updates = made if self.recipe.sends_gradient else start - made
                    if self.defence.clip_norm is not None:
                        lengths = np.linalg.norm(updates, axis=1, keepdims=True)
                        updates *= np.minimum(1, self.defence.clip_norm / np.maximum(lengths, TINY))
                    total[rows] += updates
            total += rng.normal(0.0, self.defence.noise_sd, total.shape)
        return total


def compared(
    link: Messages, training: Training, client: str, level: float, rng: np.random.Generator
) -> Replay:
    """The messages of a link beside replays of them."""
    precision, numbers = training.recipe.precision, tuple(link.rounds.tolist())
    messages = list(zip(link.updates(), rounding(link), strict=True))
    if training.certain:
        outcomes = []
        for row, (update, rounded) in enumerate(messages):
            nonzero = update != 0 if training.defence.having("sparse") else slice(None)
            exact, plain = (
                training.updates(link.sent[row].astype(kind), 1, rng)[0][nonzero]
                for kind in ("float64", precision)
            )
            sd = np.hypot(rounded[nonzero], exact - plain)
            outcomes.append(exactly(update[nonzero], exact, sd, row))
        return max(outcomes, key=lambda o: (o.strange, o.off)).line(client, numbers)

    def again(row: int, times: int) -> Array:
        return training.updates(link.sent[row].astype(precision), times, rng)

    full = training.full_batch()

    def whole(row: int) -> Array | None:
        sent = link.sent[row].astype(precision)
        return full.updates(sent, 1, np.random.default_rng(0))[0] if full else None

    return by_chance(messages, again, level, whole).line(client, numbers)


def by_chance(
    messages: Sequence[tuple[Array, Array]],
    again: Callable[[int, int], Array],
    level: float,
    whole: Callable[[int], Array | None] = lambda row: None,
) -> Outcome:
    """Updates (P,), each with the sd of its rounding, beside as many replays of each as asked for;
    more are where the first leave a doubt. ``whole``: what a full batch leads to in their place."""
    for times in (REPLAYS, AGAIN):
        test = ReplayTest(times, len(messages[0][0]))
        for row, (update, rounded) in enumerate(messages):
            many = again(row, times)
            if not np.isfinite(many).all():
                return Outcome(True, test.rounds, np.inf)
            test.add(update, many, rounded, whole(row))
        if not test.farthest():
            break
    return test.outcome(level)


# ---------------------------- is a message as far from replays as they are from each other?

CARELESS = 3.0
"""How many standard deviations of rounding are no misfit."""
FARTHER = 1.25
"""A strange client is farther from its replays than any of them from the others, by this much."""
SHRUNK = 0.1
"""Part of a coordinate's variance that is taken from all: few replays know one poorly."""


@dataclass(frozen=True)
class Outcome:
    """A client's messages beside their replays. ``strange``: farther than randomness and rounding
    explain. Of the round that tells most (``row``), in parts of its update's length: ``off``, how
    far the message is from the mean replay, and ``by_chance``, how far the farthest replay is from
    the others (0 where nothing is random). ``longer``: how much longer than the replays all
    messages are, along these, with its standard error ``longer_sd`` (0: there is none);
    ``scores``: see `Replay`.
    ``absorbed``: if it is strange, random orders are no more than an excuse, as a full batch comes
    closer or would leave what they do not."""

    strange: bool
    row: int
    off: float
    by_chance: float = 0.0
    longer: float = 0.0
    longer_sd: float = 0.0
    scores: tuple[float, ...] = ()
    absorbed: bool = False

    def line(self, client: str, rounds: tuple[int, ...]) -> Replay:
        """As the client's line, if these are the rounds."""
        more = ("longer", "longer_sd") if self.longer_sd else ()
        return Replay(
            client=client,
            outcome="does not fit" if self.strange else "fits",
            rounds=rounds,
            round=rounds[self.row],
            reason=SCATTER if self.strange and self.absorbed else "",
            scores=self.scores,
            **{name: min(getattr(self, name), MOST_OFF) for name in ("off", "by_chance", *more)},
        )


def exactly(update: Array, replay: Array, rounded: Array, row: int = 0) -> Outcome:
    """A message (P,) beside the one replay there can be; ``rounded``: sd of its rounding (P,)."""
    length = _length(update)
    off = np.linalg.norm(np.nan_to_num(update - replay, nan=np.inf, posinf=np.inf))
    explained = np.hypot(CLOSE * length, CARELESS * np.linalg.norm(rounded))
    return Outcome(bool(off > explained), row, float(off / length))


class ReplayTest:
    """Messages beside replays that differ at random, round after round.

    Five readings of a client. Three in units of each coordinate's spread among the replays: how far
    its messages are from the mean replays; how much longer they are along these, which a learning
    rate or a number of epochs changes; and how far the mean of all its messages is, which other
    records change in every round alike. The fourth is how close messages are to the direction of a
    full batch: orders that are random leave them no closer to any one direction than they leave the
    replays. The fifth is how much alike messages are off in all rounds, which random orders are not
    and what a full batch leaves is: the third over the first. Each replay is read against the
    others, in all rounds together.
    """

    def __init__(self, replays: int, parameters: int) -> None:
        self.replays, self.rounds = replays, 0
        # of the message first, then of each replay
        self.squares = np.zeros(replays + 1)
        self.along, self.certainty = np.zeros(replays + 1), np.zeros(replays + 1)
        self.moved = np.zeros((replays + 1, parameters))
        self.variance = np.zeros((replays + 1, parameters))
        self.turned = np.zeros(replays + 1)
        self.beyond = self.lengths = 0.0
        self.offs: list[tuple[float, float]] = []

    def add(self, update: Array, many: Array, rounded: Array, whole: Array | None = None) -> None:
        """A round: the message (P,), its replays (R, P), the sd of its rounding (P,), and what a
        full batch leads to (P,), if that is to be told from random orders."""
        count = self.replays
        mean = many.mean(axis=0)
        own = many - mean
        total = (own**2).sum(axis=0)
        scale = count / (count - 1)  # a replay is so much farther from the mean of the others
        away = np.vstack([update - mean, scale * own])
        means = np.vstack([mean, mean - own / (count - 1)])
        left = np.vstack([total / (count - 1), (total - scale * own**2) / (count - 2)])
        variance = (1 - SHRUNK) * left + SHRUNK * left.mean(axis=1, keepdims=True) + rounded**2
        weights = 1 / np.maximum(variance, TINY)
        self.squares += (away**2 * weights).mean(axis=1)
        self.along += (away * means * weights).sum(axis=1)
        self.certainty += (means**2 * weights).sum(axis=1)
        self.moved += away
        self.variance += variance
        self.rounds += 1
        length, apart = _length(update), np.linalg.norm(away, axis=1)
        self.beyond += float(apart[0] ** 2 - np.mean(apart[1:] ** 2))
        self.lengths += length**2
        if whole is not None:
            all_ = np.vstack([update, many])
            cosines = all_ @ whole / (np.linalg.norm(all_, axis=1) * _length(whole)).clip(TINY)
            self.turned += np.maximum(1 - cosines**2, 0)
        self.offs.append((float(apart[1:].max()) / length, float(apart[0]) / length))

    @property
    def longer(self) -> Array:
        """(1 + R,) by which part of themselves messages are longer along the mean replays."""
        return self.along / np.maximum(self.certainty, TINY)

    def readings(self) -> Array:
        """(1 + R, 5): of the message, then of each replay."""
        far = np.sqrt(self.squares / self.rounds).clip(TINY)
        mean = np.sqrt((self.moved**2 / self.variance.clip(TINY)).mean(axis=1)).clip(TINY)
        # its logarithm, as randomness may bring one of few messages close to any direction
        close = -np.log(np.maximum(self.turned / self.rounds, TINY))
        alike = np.log(mean / far) * bool(self.rounds > 1 and self.turned.any())
        return np.stack([far, np.abs(self.longer), mean, close, alike], axis=1)

    def farthest(self) -> bool:
        """Whether the client is farther than every replay, in any reading."""
        own, *others = self.readings()
        return bool((own > np.max(others, axis=0)).any())

    def exceeded(self, level: float) -> NDArray[np.bool_]:
        """Which readings are larger than those of all replays, than Student's ``level`` allows
        for one more of them, and by more than `CLOSE` of the updates."""
        own, others = (readings := self.readings())[0], readings[1:]
        asked = len(own) if self.turned.any() else len(own) - 2
        allowed = student_t.ppf(1 - level / asked, self.replays - 1)
        allowed *= np.sqrt(1 + 1 / self.replays)
        farther = np.array([FARTHER, FARTHER, FARTHER, 1.0, 1.0]) * others.max(axis=0)
        most = np.maximum(others.mean(axis=0) + allowed * others.std(axis=0, ddof=1), farther)
        length = max(self.lengths, TINY)
        matters = [
            np.sqrt(max(self.beyond, 0.0) / length),
            own[1],
            np.linalg.norm(self.moved[0]) / np.sqrt(self.rounds * length),
            np.sqrt(self.turned[1:].mean() / self.rounds),
        ]
        return np.asarray((own > most) & (np.array(matters)[[0, 1, 2, 3, 2]] > CLOSE))

    def outcome(self, level: float) -> Outcome:
        """The round that tells most is the one that is least random."""
        by_chance, off, row = min((*offs, row) for row, offs in enumerate(self.offs))
        strange, longer, readings = self.exceeded(level), self.longer, self.readings()
        # where noise drowns the mean replay, replays are as much shorter along it as messages are
        nearer = -np.log(np.maximum(readings[:, 0], TINY))
        all_ = np.column_stack([longer, nearer, readings[:, 3:]])
        # of one more among few: Student's predictive distribution
        widened = (1 + 1 / self.replays) * (self.replays - 1) / (self.replays - 3)
        beyond, sds = all_[0] - all_[1:].mean(axis=0), all_[1:].std(axis=0, ddof=1) * widened**0.5
        scores = (beyond / np.maximum(sds, TINY)).clip(-MOST_OFF, MOST_OFF)
        how = off, by_chance, float(beyond[0]), float(sds[0]), tuple(scores[1:].tolist())
        return Outcome(bool(strange.any()), row, *how, bool(strange[3]) or not strange[:3].any())


def _length(update: Array) -> float:
    return max(float(np.linalg.norm(update)), TINY)
