"""A Flower client mod that looks at every update before it leaves, and stops the ones that tell.

    app = ClientApp(mods=[guard_mod(recipe, my_secrets, Limits(bits=0.1))])

Local training runs as usual. Then the client decodes its own update as a listener would, together
with those that have left before, and it passes, leaves with noise on it, or is replaced by an error
that says why. The guard fails closed: what it could not measure does not leave.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from secrets import randbits
from typing import Any, Literal

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message
from numpy.typing import NDArray

from overheard.errors import ChooseAnotherAttack, FixConfig, FixData
from overheard.guard.exposure import Secret, exposures
from overheard.guard.limits import USUAL, Exposure, Limits
from overheard.programs.recipe import Layout, Recipe, named
from overheard.randomness import stream
from overheard.transcript.knowledge import AppliedDefence

REFUSED = 600
"""Code of the error that a refused update is replaced by; Flower's own are smaller."""
LEAST = 24
"""Records of a sample that several secrets share; of fewer, all answers would be listed."""
STOPPED = "overheard-guard-refused"
"""Where a client's state, which outlives its process, remembers that an update was refused."""
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
    records, which takes seconds a round.

    An update that could not be measured (no decoder reads it), or whose decoder doubts its own
    answer, proves no privacy: it is refused. With ``unsure="pass"`` it leaves with a warning in the
    log, until an update of this client was refused for what it tells: from then on nothing of it
    leaves unmeasured. ``seed``: of sample and noise, for tests; by default both are drawn anew each
    time, so that nobody can take the noise off again.
    """

    noise_sd: float = 0.0
    most: int = 64
    remember: int = 20
    unsure: Literal["refuse", "pass"] = "refuse"
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.noise_sd < 0 or self.remember < 0:
            raise FixConfig(
                f"noise_sd {self.noise_sd} and remember {self.remember} must not be negative"
            )
        if self.unsure not in ("refuse", "pass"):
            raise FixConfig(f"unsure = {self.unsure!r} is neither 'refuse' nor 'pass'")


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
        reply = call_next(message, context)
        if not message.metadata.message_type.startswith("train") or reply.has_error():
            return reply
        name, arrays = _arrays(reply)
        sent = _flat(_arrays(message)[1], recipe)
        returned = _flat(arrays, recipe)
        draw = randbits(64) if how.seed is None else how.seed
        owned = secrets(context)

        def measured(update: Array, sd: float) -> list[Exposure]:
            each = max(how.most // max(len(owned), 1), min(how.most, LEAST))
            past = _left(context, sd, recipe.model.size)[-remember:] if remember else ()
            rounds = [*past, (sent, update)]
            told = AppliedDefence(("gaussian",), noise_sd=sd) if sd else None
            begun, ended = (np.array([r[way] for r in rounds]) for way in (0, 1))
            return exposures(recipe, owned, begun, ended, told, each, draw)

        sd, why = 0.0, ""
        found: list[Exposure] = []
        try:
            found = measured(returned, sd)
            if how.noise_sd > 0 and any(e.answer(limits) != "ok" for e in found):
                sd = how.noise_sd
                noise = stream(draw, "guard noise").normal(0.0, sd, returned.shape)
                returned = (returned + noise).astype(returned.dtype)
                reply.content[name] = _record(returned, recipe.model.layout(), arrays)
                found = measured(returned, sd)
        except (ChooseAnotherAttack, FixData) as error:
            found, why = [], str(error)
        for one in found:
            tell(context, one)
        beyond = [e for e in found if e.answer(limits) == "too much"]
        doubts = [f"{e.name}: {e.doubt}" for e in found if e.answer(limits) == "not known"]
        if beyond:
            context.state[STOPPED] = ConfigRecord({"refused": True})
            logger.warning("the update is refused: %s", _words(beyond[0], limits))
            return _refused(message, f"more of {beyond[0].name!r} would leak than may")
        if why or doubts:
            why = why or doubts[0]
            if how.unsure == "refuse" or STOPPED in context.state:
                logger.warning("the update is refused: what it leaks is not known (%s)", why)
                return _refused(message, "what it would leak is not known")
            logger.warning("what the update leaks is not known (%s); it is sent as it is", why)
        else:
            for one in found:
                logger.info("the update passes: %s", _words(one, limits))
        if remember:
            _remember(context, sd, sent, returned, remember)
        return reply

    return mod


def _refused(message: Message, why: str) -> Message:
    return Message(Error(REFUSED, f"refused by the guard: {why}"), reply_to=message)


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
    pieces = named(layout, flat)
    return ArrayRecord({name: FlowerArray(np.ascontiguousarray(pieces[name])) for name in like})
