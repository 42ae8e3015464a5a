"""A Flower client mod that looks at every update before it leaves, and stops the ones that tell.

    app = ClientApp(mods=[guard_mod(recipe, my_secrets, limit=0.1)])

Local training runs as usual. Then the client decodes its own update as a listener would, and the
update passes, leaves with noise on it, or is replaced by an error that says why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Error, Message
from numpy.typing import NDArray

from overheard.errors import ChooseAnotherAttack, FixConfig, FixData
from overheard.guard.exposure import Exposure, Secret, exposure, worst
from overheard.learning.recipe import Layout, Recipe
from overheard.randomness import stream
from overheard.transcript.knowledge import AppliedDefence

REFUSED = 600
"""Code of the error that a refused update is replaced by; Flower's own are smaller."""
logger = logging.getLogger("overheard.guard")
Array = NDArray[np.floating[Any]]
Mod = Callable[[Message, Context, Callable[[Message, Context], Message]], Message]


def guard_mod(
    recipe: Recipe,
    secrets: Callable[[Context], Sequence[Secret]],
    limit: float = 0.1,
    noise_sd: float = 0.0,
    most: int = 64,
    seed: int = 0,
) -> Mod:
    """Stops updates that leak more than ``limit`` bits a record of any of the secrets.

    ``secrets(context)`` gives the client's own records and the columns to protect. ``noise_sd``: an
    update over the limit gets Gaussian noise of this standard deviation on every coordinate, and is
    refused if that is not enough; 0: it is refused. ``most``: with more records than this a sample
    is decoded, the others' secrets being taken as known to the listener: what is reported is then
    rather too much than too little.

    An update that no decoder reads (another recipe, a local model) is let through with a warning in
    the log: what is not measured is not promised.
    """
    if limit < 0 or noise_sd < 0:
        raise FixConfig(f"limit {limit} and noise_sd {noise_sd} must not be negative")
    rng = stream(seed, "guard noise")

    def mod(
        message: Message, context: Context, call_next: Callable[[Message, Context], Message]
    ) -> Message:
        reply = call_next(message, context)
        if not message.metadata.message_type.startswith("train") or reply.has_error():
            return reply
        name, arrays = _arrays(reply)
        sent = _flat(_arrays(message)[1], recipe)
        returned = _flat(arrays, recipe)
        owned = secrets(context)
        try:
            found = worst([exposure(recipe, s, sent, returned, None, most, seed) for s in owned])
        except (ChooseAnotherAttack, FixData) as error:
            logger.warning("the update was not measured (%s); it is sent as it is", error)
            return reply
        if not found.exceeds(limit):
            logger.info("the update passes: %s", _words(found))
            return reply
        if noise_sd > 0:
            noisy = returned + rng.normal(0.0, noise_sd, returned.shape)
            noisy = noisy.astype(returned.dtype)
            told = AppliedDefence(("gaussian",), noise_sd=noise_sd)
            left = worst([exposure(recipe, s, sent, noisy, told, most, seed) for s in owned])
            if not left.exceeds(limit):
                logger.info("the update leaves with noise of %g: %s", noise_sd, _words(left))
                reply.content[name] = _record(noisy, recipe.model.layout(), arrays)
                return reply
            found = left
        reason = f"refused by the guard: more than {limit:g} bits a record would leak; "
        return Message(Error(REFUSED, reason + _words(found)), reply_to=message)

    return mod


def _words(found: Exposure) -> str:
    return (
        f"{found.attribute}: {found.bits:.3f} bits a record, {found.accuracy:.1%} of "
        f"{found.records} records told (a guess: {found.majority:.1%}), {found.sure} surely"
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
