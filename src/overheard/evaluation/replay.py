"""Did the clients train as declared? Their true records are trained on again and compared.

Every client, in several rounds from its first to its last: from the model it was sent, on the
records of ``truth/``, by the recipe that the recording declares. Where nothing is random the
message it returned must be the replay, to rounding. Where mini-batches come in random orders, or
noise was added, several replays show how far they are from each other, and the messages must be as
close to them. Under secure aggregation the sum is replayed, of one set of clients whose records are
all known. Clients that train no network answer again by their program (`repeated`): without
chance there is one answer, to rounding; what draws at random is not checked, and says so. This is
evaluation, not an attack: it needs the secret records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.client import rounding, spread
from overheard.errors import FixRecording, OverheardError
from overheard.evaluation.attempt import attempt
from overheard.evaluation.chance import TINY, Chance, Outcome, exactly
from overheard.evaluation.record import Failed, Replay, Skipped, pooled_rate
from overheard.evaluation.resume import NOTHING_KEPT, Kept
from overheard.programs.networks import network
from overheard.programs.program import Exchange, Program
from overheard.programs.recipe import Adam, Recipe
from overheard.programs.records import Records, encode
from overheard.programs.training import local_training, shards
from overheard.randomness import stream
from overheard.transcript.knowledge import AppliedDefence, Link, Releases
from overheard.transcript.messages import Round
from overheard.transcript.store import Recording
from overheard.transcript.target import LOCAL_MODEL
from overheard.transcript.threat import Threat
from overheard.transcript.view import observe

Array = NDArray[np.float64]
ROUNDS, REPLAYS, AGAIN = 8, 16, 64
"""Rounds of each client, evenly spread, replays of each, and replays of a client that is farther
from these than any of them from the others: one of seventeen is, by chance."""
FALSE = 1e-3
"""Chance that an audit calls any client strange that trained as declared, if readings were
Gaussian; they are not quite: ``experiments/robustness/misdeclared.py`` counts how often it does."""
MOST_NUMBERS = 1 << 26
"""Numbers that the replays of a round may hold."""
MOST_WORK = 2e10
"""Multiplications that the replays of one audit may cost."""
STEP_WORK = 2e5
"""What a local step costs beside its multiplications, in such units."""
MOST_OFF = 1e9
ABSORBED = (
    "its messages are closer to full-batch training than batches in random order leave them: if "
    "clients train on all records at once, something else is off by that little"
)
MOST_BYTES = 1 << 25
"""Of copies of a client's records that train together."""

_HEARING = Threat("replay", frozenset({Link, AppliedDefence}), "")
_TOLD = Threat("replay", frozenset({AppliedDefence}), "")
_RELEASED = Threat("replay", frozenset({Releases}), "")


def replays(
    recording: Recording,
    told: Recipe | Program,
    truth: Mapping[str, Records],
    clients: Sequence[str],
    seed: int = 0,
    kept: Kept = NOTHING_KEPT,
    share: tuple[int, int] = (0, 1),
) -> tuple[Replay, ...]:
    """Whether each client's messages are what the recipe, or its program, makes of its records.

    ``kept``: as in an audit that was stopped and goes on; ``share``: as in `AuditOptions`.
    """
    if not isinstance(told, Recipe):
        level = FALSE / max(len(clients), 1)
        return tuple(repeated(recording, told, truth, client, level) for client in clients)
    budget = MOST_WORK
    found: list[Replay] = []

    for done, client in enumerate(clients):
        one = _Client(recording, told, truth, client)
        rounds, cost = one.affordable(budget / (len(clients) - done))
        budget -= cost
        if done % share[1] != share[0]:
            continue
        replayed = partial(one.replayed, rounds, FALSE / len(clients), seed)
        found += kept.parts(lambda replayed=replayed: [replayed()], "replay", client)  # type: ignore[misc]
    return together(found)


def together(found: Sequence[Replay]) -> tuple[Replay, ...]:
    """The same, where all clients that fit one by one are also asked together: a rate that is off
    makes all of their messages longer, or shorter, by the same part."""
    pooled = pooled_rate(found)
    if pooled is None or abs(pooled.off) <= pooled.least:
        return tuple(found)
    reason = (
        f"the messages of {pooled.clients} clients together are {pooled.off:+.1%} longer than the "
        f"declared learning rate and epochs lead to (standard error {pooled.sd:.1%})"
    )
    unfit = {"outcome": "does not fit", "reason": reason}
    return tuple(r.model_copy(update=unfit) if r.outcome == "fits" else r for r in found)


@dataclass(frozen=True)
class _Client:
    recording: Recording
    told: Recipe
    truth: Mapping[str, Records]
    name: str

    @cached_property
    def recipe(self) -> Recipe:
        """What it does."""
        return self.told.of(self.name)

    @cached_property
    def rounds(self) -> list[Round]:
        """Those in which it was heard: alone, or in the sum of the same clients."""
        every = self.recording.rounds
        sums = [e for e in every if e.aggregated and self.name in (e.participants or ())]
        sets = [set(e.participants or ()) for e in sums]
        alone = [e for e in every if ("returned", self.name) in e.spans]
        return alone or [e for e, who in zip(sums, sets, strict=True) if who == sets[0]]

    @cached_property
    def together(self) -> tuple[str, ...]:
        """The clients that are heard as one."""
        summed = bool(self.rounds) and self.rounds[0].aggregated
        return tuple(self.rounds[0].participants or ()) if summed else (self.name,)

    @property
    def records(self) -> int:
        return sum(len(self.truth[c]) for c in self.together if c in self.truth)

    def affordable(self, most: float) -> tuple[int, float]:
        """How many rounds to replay, and what that costs; none if one is too much."""
        recipe, times = self.recipe, REPLAYS + AGAIN
        visited = recipe.epochs * self.records
        if recipe.steps is not None:
            visited = recipe.steps * (recipe.batch_size or 1)
        once = 3.0 * visited * recipe.model.size * recipe.model.reuse
        step = 2 * recipe.local_steps(max(self.records, 1)) * STEP_WORK
        if times * recipe.model.size > MOST_NUMBERS:
            return 0, 0.0
        for rounds in (ROUNDS, 3, 1):
            cost = min(rounds, len(self.rounds)) * (times * once + step)
            if cost <= most:
                return rounds, cost
        return 0, 0.0

    def ready(self, rounds: int) -> tuple[Link, Training]:
        """What was heard in so many rounds, and how it came about; refused if nobody can say."""
        if reason := self._unreadable(rounds):
            raise FixRecording(reason)
        some = tuple(self.rounds[row] for row in spread(len(self.rounds), rounds))
        heard = replace(self.recording, rounds=some)
        alone = self.together == (self.name,)
        view = observe(heard, _HEARING if alone else _TOLD, LOCAL_MODEL, self.name)
        link = view.know(Link) if alone else _summed(heard, self.recipe)
        defence = view.know(AppliedDefence) if AppliedDefence in view.kinds else AppliedDefence(())
        inputs = tuple(encode(self.told.of(c).encoding, self.truth[c]) for c in self.together)
        labels = tuple(self.recipe.target.encode(self.truth[c]) for c in self.together)
        if reason := unrepeatable(self.recipe, defence):
            raise FixRecording(reason)
        return link, Training(self.recipe, defence, inputs, labels)

    def replayed(self, rounds: int, level: float, seed: int) -> Replay:
        """The client's line in the record."""
        try:
            link, training = self.ready(rounds)
        except OverheardError as error:
            return _unchecked(self.name, str(error))
        rng = stream(seed, "replay", self.name)
        outcome = attempt(lambda: compared(training, link, level, rng), "", self.name, None)
        if isinstance(outcome, Failed | Skipped):
            return _unchecked(self.name, f"the replay ended in {outcome.reason}")
        return _checked(self.name, link.rounds.tolist(), outcome)

    def _unreadable(self, rounds: int) -> str:
        if self.name not in self.truth or not self.records:
            return "truth/ has no records of it"
        if silent := [c for c in self.together if c not in self.truth]:
            return f"its update is heard in a sum only, and truth/ has no records of {silent[0]}"
        if not self.rounds:
            return "it never took part"
        if not rounds:
            steps, size = self.recipe.local_steps(self.records), self.recipe.model.size
            return f"{steps:,} local steps of {size:,} parameters take too long to repeat"
        return ""


def _summed(recording: Recording, recipe: Recipe) -> Link:
    """What was heard of all clients, as if one client had sent it."""
    names = [name for name, _ in recipe.model.layout()]
    heard = [
        (entry.number, *(np.concatenate([a[n].ravel() for n in names]) for a in (sent, total)))
        for entry, sent, total in recording.aggregates()
    ]
    numbers, sent, total = (np.array(part) for part in zip(*heard, strict=True))
    returned = total if recipe.sends_gradient else sent - total
    return Link(recording.payload, numbers, sent, returned, np.full(len(heard), np.nan))


def _unchecked(client: str, reason: str) -> Replay:
    return Replay(client=client, outcome="cannot be checked", reason=reason)


def _checked(client: str, rounds: Sequence[int], outcome: Outcome) -> Replay:
    return Replay(
        client=client,
        outcome="does not fit" if outcome.strange else "fits",
        rounds=tuple(rounds),
        round=rounds[outcome.row],
        off=min(outcome.off, MOST_OFF),
        by_chance=min(outcome.by_chance, MOST_OFF),
        longer=min(outcome.longer, MOST_OFF) if outcome.longer_sd else None,
        longer_sd=min(outcome.longer_sd, MOST_OFF) if outcome.longer_sd else None,
        reason=ABSORBED if outcome.absorbed else "",
    )


def repeated(
    recording: Recording,
    program: Program,
    truth: Mapping[str, Records],
    client: str,
    level: float,
) -> Replay:
    """Whether a client's messages are what the program makes of its records."""
    if client not in truth:
        return _unchecked(client, "truth/ has no records of it")
    if program.chance and not program.trains:
        return _unchecked(client, "the program draws at random, and nobody repeats that")
    records, rng = truth[client], stream(0, "repeat")
    try:
        heard = observe(recording, _RELEASED, LOCAL_MODEL, client).know(Releases).exchanges
        some = heard[:: max(1, -(-len(heard) // ROUNDS))]
        if program.chance:
            messages = [_model(one) for one in some]

            def again(row: int, times: int) -> Array:
                sent = some[row].sent
                answers = [
                    Exchange(row, sent, program.respond(sent, records, rng)) for _ in range(times)
                ]
                return np.array([_model(answer)[0] for answer in answers])

            outcome = by_chance(messages, again, level)
        else:
            offs = [
                program.distance(one.returned, program.respond(one.sent, records, rng))
                for one in some
            ]
            worst = max(range(len(some)), key=offs.__getitem__)
            outcome = Outcome(bool(offs[worst]), worst, offs[worst], 0.0)
    except OverheardError as error:
        return _unchecked(client, str(error))
    return _checked(client, [one.number for one in some], outcome)


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
        return f"which coordinates {', '.join(sparse)} sends depends on chance here"
    return ""


def certain(recipe: Recipe) -> bool:
    """Whether training can come out in one way only."""
    ordered = recipe.full_batch or recipe.sends_gradient
    return ordered and recipe.private is None and not network(recipe).chance


@dataclass(frozen=True)
class Training:
    """Clients that train as declared and are heard as one, of whom there mostly is one: of each its
    records, as the model sees them; and the defence."""

    recipe: Recipe
    defence: AppliedDefence
    inputs: tuple[Array, ...]
    labels: tuple[Array, ...]

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
        rate = {"learning_rate": recipe.learning_rate * float(steps)}
        if isinstance(recipe.optimiser, Adam):
            rate = {}  # its direction is what is asked, which a longer step would bend
        return replace(self, recipe=alone.model_copy(update=rate))

    def updates(self, sent: NDArray[Any], times: int, rng: np.random.Generator) -> Array:
        """Updates (times, P) as they leave, computed in the precision of ``sent``."""
        made = zip(self.inputs, self.labels, strict=True)
        return np.sum([self._of(x, y, sent, times, rng) for x, y in made], axis=0)  # type: ignore[no-any-return]

    def _of(
        self, x: Array, y: Array, sent: NDArray[Any], times: int, rng: np.random.Generator
    ) -> Array:
        together = max(1, MOST_BYTES // max(x.nbytes, 1))
        returned = []
        with np.errstate(over="ignore", invalid="ignore"):
            for begin in range(0, times, together):
                copies = min(together, times - begin)
                data = shards([x] * copies, [y] * copies, str(sent.dtype))
                returned.append(local_training(self.recipe, sent, data, rng).astype(np.float64))
            made = np.concatenate(returned)
            updates = made if self.recipe.sends_gradient else sent.astype(np.float64) - made
            if self.defence.clip_norm is not None:
                lengths = np.linalg.norm(updates, axis=1, keepdims=True)
                updates *= np.minimum(1, self.defence.clip_norm / np.maximum(lengths, TINY))
        return updates + rng.normal(0.0, self.defence.noise_sd, updates.shape)


def compared(training: Training, link: Link, level: float, rng: np.random.Generator) -> Outcome:
    """The messages of a link beside replays of them."""
    wire = training.recipe.wire
    messages = list(zip(link.sent, link.updates(), rounding(link), strict=True))
    if training.certain:
        outcomes = []
        for row, (sent, update, rounded) in enumerate(messages):
            said = update != 0 if training.defence.having("sparse") else slice(None)
            exact, plain = (
                training.updates(sent.astype(kind), 1, rng)[0][said] for kind in ("float64", wire)
            )
            sd = np.hypot(rounded[said], exact - plain)
            outcomes.append(exactly(update[said], exact, sd, row))
        return max(outcomes, key=lambda outcome: (outcome.strange, outcome.off))

    def again(row: int, times: int) -> Array:
        return training.updates(link.sent[row].astype(wire), times, rng)

    full = training.full_batch()

    def whole(row: int) -> Array | None:
        if full is None:
            return None
        made = full.updates(link.sent[row].astype(wire), 1, np.random.default_rng(0))
        return np.asarray(made[0], dtype=np.float64)

    return by_chance([message[1:] for message in messages], again, level, whole)


def by_chance(
    messages: Sequence[tuple[Array, Array]],
    again: Callable[[int, int], Array],
    level: float,
    whole: Callable[[int], Array | None] = lambda row: None,
) -> Outcome:
    """Updates (P,), each with the sd of its rounding, beside as many replays of each as asked for;
    more are where the first leave a doubt. ``whole``: what a full batch leads to in their place."""
    for times in (REPLAYS, AGAIN):
        chance = Chance(times, len(messages[0][0]))
        for row, (update, rounded) in enumerate(messages):
            many = again(row, times)
            if not np.isfinite(many).all():
                return Outcome(True, chance.rounds, np.inf, np.inf)
            chance.add(update, many, rounded, whole(row))
        if not (chance.farthest() if times == REPLAYS else chance.strange(level)):
            break
    return chance.outcome(level)
