"""Did the clients train as declared? Their true records are trained on again and compared.

Every client, in its first, middle and last round: from the model it was sent, on the records of
``truth/``, by the recipe that the recording declares. Where nothing is random the message it
returned must be the replay, to rounding. Where mini-batches come in random orders, or noise was
added, several replays show how far two of them are apart, and the message must be as close to
them as they are to each other. This is evaluation, not an attack: it needs the secret records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student_t

from overheard.attacks.wire import rounding, spread
from overheard.errors import OverheardError
from overheard.evaluation.kept import NOTHING_KEPT, Kept
from overheard.evaluation.record import Replay
from overheard.learning.recipe import LeNet, Recipe
from overheard.learning.records import Records, encode
from overheard.learning.training import local_training, shards
from overheard.randomness import stream
from overheard.transcript.knowledge import AppliedDefence, Link
from overheard.transcript.observe import observe
from overheard.transcript.store import Recording
from overheard.transcript.target import LOCAL_MODEL
from overheard.transcript.threat import Threat

Array = NDArray[np.float64]
ROUNDS, REPLAYS, AGAIN = 3, 16, 64
"""Rounds of each client, replays of each, and more of a round that looks strange: sixteen may
happen to lie close together."""
CLOSE = 0.01
"""What chance does not explain must be more than this part of the update's length."""
CARELESS = 3.0
"""How many standard deviations of rounding are no misfit."""
FARTHER = 1.25
"""A strange message is farther from the replays than any of them from the others, by this much."""
FALSE = 1e-3
"""Chance that an audit calls any of its clients strange that trained as declared, if distances
were Gaussian; ``reliability/replays.py`` counts how often it does."""
SHRUNK = 0.1
"""Part of a coordinate's variance that is taken from all: sixteen replays know one poorly."""
MOST_WORK = 2e10
"""Multiplications that the replays of one audit may cost."""
STEP_WORK, IMAGE_WORK = 2e5, 30
"""What a local step costs beside its multiplications, and a convolution's weight beside a dense
layer's, in such units."""
MOST_BYTES = 1 << 25

REPEATED = frozenset({"clip", "gaussian", "drop_column", "dp_sgd", "top_k"})
"""Defences that a replay can repeat: clipping is done again, noise is drawn anew and widens what
counts as close, of sparse updates the coordinates sent are compared."""
_HEARING = Threat("replay", frozenset({Link, AppliedDefence}), "")


@dataclass(frozen=True)
class Outcome:
    """One message beside its replays, in parts of its update's length. ``off``: how far it is from
    the mean replay; ``by_chance``: how far the farthest replay is from the others (0 where nothing
    is random); ``strange``: more than chance and rounding explain."""

    off: float
    by_chance: float
    strange: bool


def replays(
    recording: Recording,
    recipe: Recipe,
    truth: Mapping[str, Records],
    clients: Sequence[str],
    seed: int = 0,
    kept: Kept = NOTHING_KEPT,
) -> tuple[Replay, ...]:
    """Whether each client's messages are what the recipe makes of its records.

    ``kept``: as in an audit that was stopped and goes on.
    """
    budget = MOST_WORK
    found = []
    for done, client in enumerate(clients):
        share = budget / (len(clients) - done)
        cost, rounds, times = _affordable(recording, recipe, truth, client, share)
        budget -= cost
        level = FALSE / (len(clients) * ROUNDS)

        def make(
            client: str = client, rounds: int = rounds, times: int = times, level: float = level
        ) -> list[Replay]:
            return [_replayed(recording, recipe, truth, client, rounds, times, level, seed)]

        found += kept.parts(Replay, make, client)
    return tuple(found)


def _affordable(
    recording: Recording,
    recipe: Recipe,
    truth: Mapping[str, Records],
    client: str,
    most: float,
) -> tuple[float, int, int]:
    """What to spend on a client: work, rounds and replays of each; no round if one is too much."""
    records = len(truth[client]) if client in truth else 0
    steps = recipe.local_steps(max(records, 1))
    visited = recipe.steps * (recipe.batch_size or 0) if recipe.steps else recipe.epochs * records
    heavy = IMAGE_WORK if isinstance(recipe.model, LeNet) else 1
    once = 3.0 * visited * recipe.model.size * heavy
    heard = sum(("returned", client) in entry.spans for entry in recording.rounds)
    for rounds, times in ((ROUNDS, REPLAYS), (2, REPLAYS), (1, REPLAYS), (1, REPLAYS // 2)):
        cost = (min(rounds, heard) * times + AGAIN) * once + (rounds + 1) * steps * STEP_WORK
        if cost <= most:
            return cost, rounds, times
    return 0.0, 0, 0


def _replayed(
    recording: Recording,
    recipe: Recipe,
    truth: Mapping[str, Records],
    client: str,
    rounds: int,
    times: int,
    level: float,
    seed: int,
) -> Replay:
    if client not in truth or not len(truth[client]):
        return _unchecked(client, "truth/ has no records of it")
    if not rounds:
        steps = recipe.local_steps(len(truth[client]))
        return _unchecked(client, f"{steps:,} local steps on {len(truth[client]):,} records of a "
                          f"model of {recipe.model.size:,} parameters take too long to repeat")  # fmt: skip
    mine = [entry for entry in recording.rounds if ("returned", client) in entry.spans]
    some = tuple(mine[row] for row in spread(len(mine), rounds)) if mine else recording.rounds[:1]
    try:
        view = observe(replace(recording, rounds=some), _HEARING, LOCAL_MODEL, client)
        link = view.know(Link)
        defence = view.know(AppliedDefence) if AppliedDefence in view.kinds else AppliedDefence(())
        records = truth[client]
        data = encode(recipe.encoding, records), recipe.target.encode(records)
    except OverheardError as error:
        return _unchecked(client, str(error))
    reason = _unrepeatable(recipe, defence)
    if reason:
        return _unchecked(client, reason)
    rng = stream(seed, "replay", client)
    outcomes = list(_outcomes(recipe, link, defence, data, times, level, rng))
    worst = max(range(len(outcomes)), key=lambda at: (outcomes[at].strange, outcomes[at].off))
    return Replay(
        client=client,
        outcome="does not fit" if outcomes[worst].strange else "fits",
        rounds=tuple(link.rounds[: len(outcomes)].tolist()),
        worst=int(link.rounds[worst]),
        off=min(outcomes[worst].off, 1e9),
        by_chance=min(outcomes[worst].by_chance, 1e9),
    )


def _unchecked(client: str, reason: str) -> Replay:
    return Replay(client=client, outcome="cannot be checked", reason=reason)


def _unrepeatable(recipe: Recipe, defence: AppliedDefence) -> str:
    """Why nobody can replay what was done to the updates; nothing if one can."""
    other = [name for name in defence.names if name not in REPEATED]
    if other:
        return f"the defence {', '.join(other)} changes updates in a way that is not repeated here"
    if "top_k" in defence.names and (defence.noise_sd or not _certain(recipe, 0.0)):
        return "which coordinates top_k sends depends on chance here"
    return ""


def _certain(recipe: Recipe, noise_sd: float) -> bool:
    """Whether a replay can come out in one way only."""
    dropped = isinstance(recipe.model, LeNet) and recipe.model.dropout > 0
    ordered = recipe.full_batch or recipe.algorithm == "fedsgd"
    return ordered and recipe.private is None and not noise_sd and not dropped


def _outcomes(
    recipe: Recipe,
    link: Link,
    defence: AppliedDefence,
    data: tuple[Array, Array],
    times: int,
    level: float,
    rng: np.random.Generator,
) -> Iterator[Outcome]:
    """Of each round heard, up to one that is strange beyond doubt."""
    certain = _certain(recipe, defence.noise_sd)
    for sent, update, rounded in zip(link.sent, link.updates(), rounding(link), strict=True):
        said = update != 0 if "top_k" in defence.names else np.ones(len(update), dtype=bool)
        if certain:
            exact, plain = (
                _updates(recipe, sent.astype(kind), data, defence, 1, rng)[0][said]
                for kind in (np.float64, recipe.wire)
            )
            yield exactly(update[said], exact, np.hypot(rounded[said], exact - plain))
        else:
            for count in (times, AGAIN):
                many = _updates(recipe, sent.astype(recipe.wire), data, defence, count, rng)
                outcome = by_chance(update, many, rounded, level)
                if not outcome.strange:
                    break
            yield outcome
            if outcome.strange:
                return


def _updates(
    recipe: Recipe,
    sent: NDArray[Any],
    data: tuple[Array, Array],
    defence: AppliedDefence,
    times: int,
    rng: np.random.Generator,
) -> Array:
    """Updates (times, P) of a client that trains as declared, as they leave it."""
    inputs, labels = data
    together = max(1, MOST_BYTES // max(inputs.nbytes, 1))
    returned = []
    with np.errstate(over="ignore", invalid="ignore"):
        for begin in range(0, times, together):
            copies = min(together, times - begin)
            block = shards([inputs] * copies, [labels] * copies, str(sent.dtype))
            returned.append(local_training(recipe, sent, block, rng).astype(np.float64))
        made = np.concatenate(returned)
        updates = made if recipe.algorithm == "fedsgd" else sent.astype(np.float64) - made
        if defence.clip_norm is not None:
            lengths = np.linalg.norm(updates, axis=1, keepdims=True)
            updates = updates * np.minimum(1.0, defence.clip_norm / np.maximum(lengths, 1e-300))
    if defence.noise_sd:
        updates = updates + rng.normal(0.0, defence.noise_sd, updates.shape)
    return updates


def exactly(update: Array, replay: Array, rounded: Array) -> Outcome:
    """A message (P,) beside the one replay there can be; ``rounded``: sd of its rounding (P,)."""
    length = _length(update)
    if not np.isfinite(replay).all():
        return Outcome(np.inf, 0.0, True)
    off = np.linalg.norm(update - replay)
    explained = np.hypot(CLOSE * length, CARELESS * np.linalg.norm(rounded))
    return Outcome(float(off / length), 0.0, bool(off > explained))


def by_chance(update: Array, many: Array, rounded: Array, level: float) -> Outcome:
    """A message (P,) beside replays (R, P) that differ by chance.

    Two readings, each in units of every coordinate's spread among the replays: how far a message
    is from their mean, and how much longer or shorter it is along that mean, which a learning rate
    or a number of epochs changes. Each replay is read against the others. The message is strange
    if a reading is larger than all of theirs, larger than Student's ``level`` allows for one more
    of them, and by more than `CLOSE` of the update.
    """
    length, count = _length(update), len(many)
    if not np.isfinite(many).all():
        return Outcome(np.inf, np.inf, True)
    centre = many.mean(axis=0)
    apart = many - centre
    squares = (apart**2).sum(axis=0)

    def readings(vector: Array, mean: Array, total: Array, others: int) -> Array:
        variance = total / (others - 1)
        variance = (1 - SHRUNK) * variance + SHRUNK * variance.mean() + rounded**2
        weights = 1 / np.maximum(variance, 1e-300)
        away = vector - mean
        along = np.abs(away @ (weights * mean)) / max(float(mean @ (weights * mean)), 1e-300)
        return np.array([np.sqrt(np.mean(away**2 * weights)), along])

    # without one of them, the others' mean is off by 1 / (count - 1) of its distance to all
    scale = count / (count - 1)
    known = np.array(
        [
            readings(one, centre - own / (count - 1), squares - scale * own**2, count - 1)
            for one, own in zip(many, apart, strict=True)
        ]
    )
    read = readings(update, centre, squares, count)
    allowed = float(student_t.ppf(1 - level / 2, count - 1)) * np.sqrt(1 + 1 / count)
    most = np.maximum(known.mean(axis=0) + allowed * known.std(axis=0, ddof=1),
                      FARTHER * known.max(axis=0))  # fmt: skip
    off = float(np.linalg.norm(update - centre))
    lengths = scale * np.linalg.norm(apart, axis=1)
    beyond = float(np.sqrt(max(off**2 - float(np.mean(lengths**2)), 0.0))) / length
    strange = (read > most) & (np.array([beyond, read[1]]) > CLOSE)
    return Outcome(off / length, float(lengths.max()) / length, bool(strange.any()))


def _length(update: Array) -> float:
    return max(float(np.linalg.norm(update)), 1e-300)
