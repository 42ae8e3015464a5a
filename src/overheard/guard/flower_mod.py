"""A Flower client mod that looks at every update before it leaves, and stops the ones that tell.

    app = ClientApp(mods=[guard_mod(recipe, my_secrets, Limits(bits=0.1))])

Local training runs as usual. Then the client decodes its own update as a listener would, together
with those that have left before, and it passes, leaves with noise on it, or is replaced by an error
that says why.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from secrets import randbits
from typing import Any, Literal

import numpy as np
from flwr.app import ArrayRecord, Context, Error, Message, MetricRecord
from numpy.typing import NDArray

from overheard.errors import ChooseAnotherAttack, FixConfig, FixData
from overheard.guard.exposure import Secret, exposures
from overheard.guard.limits import USUAL, Exposure, Limits
from overheard.programs.recipe import Layout, Recipe
from overheard.randomness import stream
from overheard.transcript.knowledge import AppliedDefence

REFUSED = 600
"""Code of the error that a refused update is replaced by; Flower's own are smaller."""
LEAST = 24
"""Records of a sample that several secrets share; of fewer, all answers would be listed."""
SPENT = "overheard-guard"
"""Where a client's state remembers what the guard has cost."""
LEFT = "overheard-guard-left"
"""Where it remembers the messages that have left, to judge the next one together with them."""
MOST_BYTES = 1 << 26
"""Of remembered messages; of larger models fewer rounds are remembered."""
logger = logging.getLogger("overheard.guard")
Array = NDArray[np.floating[Any]]
Mod = Callable[[Message, Context, Callable[[Message, Context], Message]], Message]


@dataclass(frozen=True)
class Guarding:
    """How closely the guard looks, and what it does about what it sees.

    ``noise_sd``: an update over a limit gets Gaussian noise of this standard deviation on every
    coordinate, and is refused if that is not enough; 0: it is refused. ``most``: with more records
    than this a sample is decoded (of several secrets each gets its part of it), the others' secrets
    being taken as known to the listener: what is reported is then rather too much than too little.

    What rounds reveal adds up, so an update is judged together with the last ``remember`` ones that
    have left (0: by itself); those with noise on them and those without, each for themselves. What
    passes is what this decoder could not read: that is no guarantee.

    A sample of one full-batch step takes milliseconds. Several local steps are decoded for all
    records, which takes seconds: ``epochs`` is what a round may cost on average, in epochs of the
    client's own training (None: whatever it takes). Once more was spent, rounds go unmeasured
    until the average is below it again; the next that is measured is judged together with them.

    An update that was not measured (no decoder reads it, the time was spent), or whose decoder
    doubts its own answer, proves no privacy: it passes with a warning in the log, or is refused
    with ``unsure="refuse"``. ``seed``: of sample and noise, for tests; by default both are drawn
    anew each time, so that nobody can take the noise off again.
    """

    noise_sd: float = 0.0
    most: int = 64
    remember: int = 20
    epochs: float | None = 1.0
    unsure: Literal["pass", "refuse"] = "pass"
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.noise_sd < 0 or self.remember < 0:
            raise FixConfig(
                f"noise_sd {self.noise_sd} and remember {self.remember} must not be negative"
            )
        if self.epochs is not None and self.epochs <= 0:
            raise FixConfig(f"epochs = {self.epochs}: no time for the guard; give more, or None")
        if self.unsure not in ("pass", "refuse"):
            raise FixConfig(f"unsure = {self.unsure!r} is neither 'pass' nor 'refuse'")


def guard_mod(
    recipe: Recipe,
    secrets: Callable[[Context], Sequence[Secret]],
    limits: Limits = USUAL,
    how: Guarding = Guarding(),
    tell: Callable[[Context, Exposure], None] = lambda context, found: None,
) -> Mod:
    """Stops updates that leak more than the limits allow of any of the secrets.

    ``secrets(context)`` gives the client's own records and what to protect of them: columns, the
    labels, who is there. ``limits``: as of `overheard preflight`.

    ``tell`` is given what was measured of each secret, before an update leaves or is refused. The
    figures stay with the client, there and in its log (``overheard.guard``): an error that told
    the server how many bits leak would tell it how common the secret is.
    """
    remember = how.remember

    def mod(
        message: Message, context: Context, call_next: Callable[[Message, Context], Message]
    ) -> Message:
        begin = time.perf_counter()
        reply = call_next(message, context)
        trained = (time.perf_counter() - begin) / recipe.epochs
        if not message.metadata.message_type.startswith("train") or reply.has_error():
            return reply
        name, arrays = _arrays(reply)
        sent = _flat(_arrays(message)[1], recipe)
        returned = _flat(arrays, recipe)
        begin, draw = time.perf_counter(), randbits(64) if how.seed is None else how.seed
        spent, epochs = _past(context)
        if how.epochs is not None and spent > how.epochs * epochs:
            _spend(context, 0.0, trained)
            why = f"{spent:.3g} s were spent, more than {how.epochs:g} local epochs a round"
            return doubted(message, reply, why, lambda: left(context, 0.0, sent, returned))
        owned = secrets(context)

        def measured(update: Array, sd: float) -> list[Exposure]:
            each = max(how.most // max(len(owned), 1), min(how.most, LEAST))
            past = _left(context, sd, recipe.model.size)[-remember:] if remember else ()
            rounds = [*past, (sent, update)]
            told = AppliedDefence(("gaussian",), noise_sd=sd) if sd else None
            begun, ended = (np.array([r[way] for r in rounds]) for way in (0, 1))
            return exposures(recipe, owned, begun, ended, told, each, draw)

        sd = 0.0
        try:
            found = measured(returned, sd)
            if how.noise_sd > 0 and any(e.answer(limits) != "ok" for e in found):
                sd = how.noise_sd
                noise = stream(draw, "guard noise").normal(0.0, sd, returned.shape)
                returned = (returned + noise).astype(returned.dtype)
                reply.content[name] = _record(returned, recipe.model.layout(), arrays)
                found = measured(returned, sd)
        except (ChooseAnotherAttack, FixData) as error:
            why = str(error)
            return doubted(message, reply, why, lambda: left(context, sd, sent, returned))
        finally:
            _spend(context, time.perf_counter() - begin, trained)
        for one in found:
            tell(context, one)
        beyond = [e for e in found if e.answer(limits) == "too much"]
        doubts = [e for e in found if e.answer(limits) == "not known"]
        if beyond:
            logger.warning("the update is refused: %s", _words(beyond[0], limits))
            return refused(message, f"more of {beyond[0].name!r} would leak than may")
        if doubts:
            why = f"{doubts[0].name}: {doubts[0].doubt}"
            return doubted(message, reply, why, lambda: left(context, sd, sent, returned))
        left(context, sd, sent, returned)
        for one in found:
            logger.info("the update passes: %s", _words(one, limits))
        return reply

    def refused(message: Message, why: str) -> Message:
        return Message(Error(REFUSED, f"refused by the guard: {why}"), reply_to=message)

    def left(context: Context, sd: float, sent: Array, returned: Array) -> None:
        if remember:
            _remember(context, sd, sent, returned, remember)

    def doubted(message: Message, reply: Message, why: str, leaves: Callable[[], None]) -> Message:
        if how.unsure == "refuse":
            return refused(message, f"what it would leak is not known ({why})")
        leaves()
        logger.warning("what the update leaks is not known (%s); it is sent as it is", why)
        return reply

    return mod


def _past(context: Context) -> tuple[float, float]:
    """Seconds so far, of the guard and of one local epoch of each round. A client's own state
    outlives its process."""
    record = context.state.get(SPENT)
    if not isinstance(record, MetricRecord):
        return 0.0, 0.0
    return float(np.sum(record["guard"])), float(np.sum(record["epochs"]))


def _spend(context: Context, seconds: float, epoch: float) -> None:
    spent, epochs = _past(context)
    context.state[SPENT] = MetricRecord({"guard": spent + seconds, "epochs": epochs + epoch})


def _key(sd: float) -> str:
    return f"{LEFT}-{'noisy' if sd else 'plain'}"


def _left(context: Context, sd: float, size: int) -> list[tuple[Array, Array]]:
    """The messages that have left, oldest first, of a model of this size."""
    record = context.state.get(_key(sd))
    if not isinstance(record, ArrayRecord):
        return []
    sent, returned = record["sent"].numpy(), record["returned"].numpy()
    if sent.ndim != 2 or sent.shape[1] != size or sent.shape != returned.shape:
        return []
    return list(zip(sent, returned, strict=True))


def _remember(context: Context, sd: float, sent: Array, returned: Array, most: int) -> None:
    from flwr.app import Array as FlowerArray

    rounds = [*_left(context, sd, sent.size), (sent, returned)]
    fit = max(1, MOST_BYTES // max(sent.nbytes + returned.nbytes, 1))
    rounds = rounds[-min(most, fit) :]
    ways = {way: np.array([r[at] for r in rounds]) for at, way in enumerate(("sent", "returned"))}
    context.state[_key(sd)] = ArrayRecord({way: FlowerArray(a) for way, a in ways.items()})


def _words(found: Exposure, limits: Limits) -> str:
    bits = "" if found.bits is None else f"{found.bits:.3f} bits a record, "
    share = "" if found.share is None else f"{found.share:.1%} of what there is to learn, "
    guess = "" if found.guess is None else f" (a guess: {found.guess:.3g})"
    over = "; ".join(found.beyond(limits)) or "below every limit"
    return (
        f"{found.name}: {bits}{share}{found.certain} of {found.records} records certain, "
        f"{found.value:.3g} measured{guess}: {over}"
    )


def _arrays(message: Message) -> tuple[str, dict[str, Array]]:
    """The one model that a message carries, and its name in the message."""
    records = list(message.content.array_records.items())
    if len(records) != 1:
        raise FixData(f"a message carries {len(records)} models; the guard reads one")
    name, record = records[0]
    return name, {key: array.numpy() for key, array in record.items()}


def _flat(arrays: dict[str, Array], recipe: Recipe) -> Array:
    layout = recipe.model.layout()
    heard = {name: a.shape for name, a in arrays.items()}
    if heard != dict(layout):
        raise FixConfig(
            f"the messages carry {heard} but the guard's recipe describes {dict(layout)}; correct "
            "the model's sizes or its wire_names"
        )
    return np.concatenate([arrays[name].reshape(-1) for name, _ in layout])


def _record(flat: Array, layout: Layout, like: dict[str, Array]) -> ArrayRecord:
    """The arrays in the order in which the client sent them."""
    pieces, start = {}, 0
    for name, shape in layout:
        size = int(np.prod(shape))
        pieces[name] = flat[start : start + size].reshape(shape)
        start += size
    from flwr.app import Array as FlowerArray

    return ArrayRecord({name: FlowerArray(np.ascontiguousarray(pieces[name])) for name in like})
