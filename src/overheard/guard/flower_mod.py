"""A Flower client mod that looks at every update before it leaves, and stops the ones that tell.

    app = ClientApp(mods=[guard_mod("audit.toml", client="site 3")])

Local training runs as usual. Then the client audits its own update, together with those that have
left before, as the audit of the whole federation will: with the same description (``audit.toml``,
which `overheard init` writes), the same attacks and the same decision. The update, with the noise
that the client adds to it, passes or is replaced by an error that says why. The guard fails closed:
what it could not measure does not leave.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from secrets import randbits
from typing import Literal

import numpy as np
from flwr.app import Array as FlowerArray
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message

from overheard.errors import ChooseAnotherAttack, FixConfig, FixData
from overheard.federation.defences.gaussian import Gaussian
from overheard.federation.federation import Federation, read_config
from overheard.guard.dry_run import Arrays, Round, recorded
from overheard.guard.exposure import Exposure, Limits, answer_of, worst_of
from overheard.randomness import stream

REFUSED = 600
"""Code of the error that a refused update is replaced by; Flower's own are smaller."""
STOPPED = "overheard-guard-refused"
"""Where a client's state, which outlives its process, remembers that an update was refused."""
SENT = "overheard-guard-left"
"""Where it remembers the messages that have left, to judge the next one together with them."""
WAYS = ("sent/", "returned/")
MOST_BYTES = 1 << 26
"""Of remembered messages; of larger models fewer rounds are remembered."""
logger = logging.getLogger("overheard.guard")
Mod = Callable[[Message, Context, Callable[[Message, Context], Message]], Message]


@dataclass(frozen=True)
class Guarding:
    """How closely the guard looks, and what it does about what it sees.

    ``noise_sd``: Gaussian noise of this standard deviation is added to every coordinate of every
    update before it is judged; 0: none. Declare it to an audit of the federation.

    What rounds reveal adds up, so an update is judged together with the last ``remember`` ones that
    have left (0: by itself); earlier ones are forgotten, so give as many as the federation has
    rounds. What passes is what the attacks could not read: that is no guarantee.
    It is a whole audit a round, which takes from a tenth of a second to minutes; the log says how
    long.

    An update that could not be measured (no attack reads it, or one doubts its own answer), or that
    gives a hint of a leak, proves no privacy: it is refused. With ``unsure="pass"`` it leaves with
    a warning in the log, until an update of this client was refused for what it tells: from then on
    nothing of it leaves unmeasured. ``seed``: of the noise, for tests; by default it is drawn anew
    each time, so that nobody can take it off again. ``trust_code``: run the model's factory, where
    the description names one.
    """

    noise_sd: float = 0.0
    remember: int = 20
    unsure: Literal["refuse", "pass"] = "refuse"
    seed: int | None = None
    trust_code: bool = False

    def __post_init__(self) -> None:
        if self.noise_sd < 0 or self.remember < 0:
            raise FixConfig(f"noise_sd {self.noise_sd}, remember {self.remember}: give 0 or more")
        if self.unsure not in ("refuse", "pass"):
            raise FixConfig(f"unsure = {self.unsure!r} is neither 'refuse' nor 'pass'")


def guard_mod(
    description: str | Path | Federation,
    client: str | Callable[[Context], str],
    limits: Limits = Limits(),
    how: Guarding = Guarding(),
    tell: Callable[[Context, Exposure], None] = lambda context, result: None,
) -> Mod:
    """Stops updates that leak more than the limits allow of any secret that the description names.

    ``description``: the file that ``overheard audit --with`` reads; its table must have the
    client's own records. ``client``: what the table calls it; a function where several clients run
    the same app. ``limits``: as of `overheard preflight`.

    ``tell`` is given what was measured of each secret, before an update leaves or is refused. The
    figures stay with the client, there and in its log (``overheard.guard``): an error that told
    the server how many bits leak would tell it how common the secret is.
    """
    spec = description
    if not isinstance(spec, Federation):
        spec = read_config(spec, recorded=True)
    if not spec.trains():
        raise FixConfig(f"model {spec.model.name!r} trains no network; the guard reads models only")
    if how.noise_sd:
        noisy = (*spec.defence, Gaussian(sd=how.noise_sd))
        spec = spec.model_copy(update={"defence": noisy})

    def mod(
        message: Message, context: Context, call_next: Callable[[Message, Context], Message]
    ) -> Message:
        reply = call_next(message, context)
        asked = message.metadata.message_type.startswith("train")
        if reply.has_error() or not (asked or reply.content.array_records):
            return reply
        (_, sent), (name, returned) = _arrays(message), _arrays(reply)
        who = client if isinstance(client, str) else client(context)
        begin, why = time.perf_counter(), ""
        result: list[Exposure] = []
        _check_same(sent, returned)
        if how.noise_sd:
            returned = _noisy(returned, how)
            reply.content[name] = ArrayRecord({n: FlowerArray(a) for n, a in returned.items()})
        rounds = _sent(context, how.remember, (sent, returned))
        try:
            with recorded(spec, who, rounds, how.trust_code) as run:
                result = run.exposures(limits)
        except (ChooseAnotherAttack, FixData) as error:
            result, why = [], str(error)
        for one in result:
            tell(context, one)
        answer, seconds = answer_of(result, limits), time.perf_counter() - begin
        if answer == "ok":
            logger.info("the update passes: it was looked at for %.2f s", seconds)
        elif answer == "too much":
            worst = worst_of(result, limits)
            context.state[STOPPED] = ConfigRecord({"refused": True})
            much = f"{worst.name}: {'; '.join(worst.beyond(limits))}"
            logger.warning("the update is refused: %s (looked at for %.2f s)", much, seconds)
            return _refused(message, f"more of {worst.name!r} would leak than may")
        else:
            doubts = [f"{e.name}: {e.unknown(limits)}" for e in result if e.unknown(limits)]
            refused = how.unsure == "refuse" or STOPPED in context.state
            done = "the update is refused" if refused else "it is sent as it is"
            text = "what the update leaks is not known (%s); %s (looked at for %.2f s)"
            logger.warning(text, why or "; ".join(doubts), done, seconds)
            if refused:
                return _refused(message, "what it would leak is not known")
        if how.remember:
            _remember(context, rounds)
        return reply

    return mod


def _refused(message: Message, why: str) -> Message:
    return Message(Error(REFUSED, f"refused by the guard: {why}"), reply_to=message)


def _arrays(message: Message) -> tuple[str, Arrays]:
    """The one model that a message carries, and its name in the message."""
    records = list(message.content.array_records.items())
    if len(records) != 1:
        raise FixConfig(f"a message carries {len(records)} models; the guard reads one")
    name, record = records[0]
    return name, {key: array.numpy() for key, array in record.items()}


def _check_same(sent: Arrays, returned: Arrays) -> None:
    """Refuse what would leave unmeasured: arrays that the model does not have."""
    one, other = ({name: a.shape for name, a in arrays.items()} for arrays in (sent, returned))
    if one != other:
        raise FixConfig(f"the update has {other} where the model has {one}; send no other arrays")


def _noisy(arrays: Arrays, how: Guarding) -> Arrays:
    rng = stream(randbits(64) if how.seed is None else how.seed, "guard noise")
    noise = {n: rng.normal(0.0, how.noise_sd, a.shape) for n, a in arrays.items()}
    float_ = {n for n, array in arrays.items() if array.dtype.kind == "f"}
    return {n: (a + noise[n]).astype(a.dtype) if n in float_ else a for n, a in arrays.items()}


def _sent(context: Context, most: int, update: Round) -> list[Round]:
    """The last rounds that have left, oldest first, and this one."""
    rounds = [update]
    if SENT in context.state:
        record = context.state.array_records[SENT]
        sent, returned = ({n: record[way + n].numpy() for n in update[0]} for way in WAYS)
        for k in reversed(range(len(next(iter(sent.values()))))):
            rounds.insert(0, ({n: sent[n][k] for n in sent}, {n: returned[n][k] for n in sent}))
    size = sum(array.nbytes for arrays in update for array in arrays.values())
    return rounds[-min(most + 1, max(1, MOST_BYTES // max(size, 1))) :]


def _remember(context: Context, rounds: list[Round]) -> None:
    stacks = {
        way + name: np.stack([one[place][name] for one in rounds])
        for place, way in enumerate(WAYS)
        for name in rounds[0][place]
    }
    context.state[SENT] = ArrayRecord({name: FlowerArray(a) for name, a in stacks.items()})
