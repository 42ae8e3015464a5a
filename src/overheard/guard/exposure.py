"""What an update would reveal of a client's own records, by letting the decoder loose on it.

The client grants the listener everything but the attribute itself: the recipe, the public columns,
the labels, how common each value is among its records, and the defence. What such a listener
cannot read, nobody who knows less can.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.errors import FixConfig, FixData
from overheard.evaluation.intervals import share_interval
from overheard.evaluation.metrics import attribute_bits, attribute_hits
from overheard.learning.dense import factors, weighted_gradient
from overheard.learning.recipe import Dense, Recipe
from overheard.learning.records import Records, Value, encode
from overheard.randomness import stream
from overheard.transcript.knowledge import (
    AppliedDefence,
    AttributeDomain,
    AttributePrior,
    Labels,
    Link,
    LocalTraining,
    PublicRecords,
)
from overheard.transcript.target import attribute
from overheard.transcript.view import View, launch

SURE = 0.99
ADDITIVE = frozenset({"gaussian", "drop_column"})
"""Defences after which an update is still a sum over the records, and noise."""
CARELESS = 3.0
"""Rounding errors of a sum of gradients, in units in the last place of its typical size."""
STRANGE, REPLAYED = 3.0, 1e-3
"""A replay of one's own records that is off by so many standard deviations, and by so much of the
update, is not how the client trained."""
Array = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Exposure:
    """What the listener would know of one attribute.

    ``sure``: records that it would call with more than 99% certainty. ``bits``: learned per record
    beyond the shares of the values (below 0: the listener would be misled). ``rank`` and
    ``unknowns``: independent numbers heard, and asked for. ``warning``: the decoder doubts its own
    answer, and says why.
    """

    attribute: str
    records: int
    accuracy: float
    low: float
    high: float
    majority: float
    sure: int
    bits: float
    rank: int
    unknowns: int
    warning: str = ""

    def exceeds(self, limit: float) -> bool:
        """Does it leak more than ``limit`` bits a record?"""
        return self.bits > limit

    @property
    def doubtful(self) -> bool:
        """The decoder failed: it says so, or it was sure and wrong. That proves no privacy."""
        return bool(self.warning) or self.bits < -0.05


@dataclass(frozen=True)
class Secret:
    """A client's whole records and the column to protect; ``values``: what the column may be."""

    records: Records
    column: str
    values: tuple[Value, ...]

    def __post_init__(self) -> None:
        if self.column not in self.records.columns:
            raise FixData(f"the records have no column {self.column!r} to protect")


def exposure(
    recipe: Recipe,
    secret: Secret,
    sent: Array,
    returned: Array,
    defence: AppliedDefence | None = None,
    most: int = 2000,
    seed: int = 0,
) -> Exposure:
    """What messages ``sent`` and ``returned`` ((P,), or one row a round) reveal.

    With more than ``most`` records and one full-batch step a round, the attribute of a sample of
    that size is decoded and that of the others is taken as known to the listener. Several local
    steps are not linear in the records, and neither are clipped or compressed updates: there all
    records are decoded, which takes seconds.
    """
    (found,) = exposures(recipe, [secret], sent, returned, defence, most, seed)
    return found


def exposures(
    recipe: Recipe,
    secrets: Sequence[Secret],
    sent: Array,
    returned: Array,
    defence: AppliedDefence | None = None,
    most: int = 2000,
    seed: int = 0,
) -> list[Exposure]:
    """As `exposure`, for several columns of the same records; the work they share is done once."""
    sent, returned = np.atleast_2d(sent), np.atleast_2d(returned)
    if sent.shape != returned.shape or sent.shape[1] != recipe.model.size:
        raise FixData(
            f"messages of {sent.shape} and {returned.shape} numbers for a model of "
            f"{recipe.model.size}; give models of the recipe's own architecture, flattened"
        )
    parts: dict[int, _Part] = {}
    found = []
    for secret in secrets:
        records = secret.records
        part = _Part(recipe, records, returned, defence)
        if len(records) > most and can_sample(recipe, len(records), defence):
            if id(records) not in parts:
                parts[id(records)] = _sample(recipe, records, sent, returned, defence, most, seed)
            part = parts[id(records)]
        found.append(_decoded(part, secret, sent, seed))
    return found


@dataclass(frozen=True)
class _Part:
    """What is decoded: everything, or the federation of a sample.

    ``doubt``: why this is not how the client trained.
    """

    recipe: Recipe
    records: Records
    returned: Array
    defence: AppliedDefence | None
    doubt: str = ""


def _decoded(part: _Part, secret: Secret, sent: Array, seed: int) -> Exposure:
    recipe, records, defence = part.recipe, part.records, part.defence
    column = records[secret.column]
    shares = [float(np.mean(column == v)) for v in secret.values]
    label = recipe.target.column
    pieces: list[Any] = [
        Link(
            "gradient" if recipe.algorithm == "fedsgd" else "model",
            np.arange(len(sent)),
            sent,
            part.returned,
            np.full(len(sent), float(len(records))),
        ),
        LocalTraining(recipe),
        PublicRecords(records.without(secret.column, label)),
        Labels(records[label]),
        AttributeDomain(secret.column, secret.values),
        AttributePrior(tuple(shares)),
    ]
    if defence is not None:
        pieces.append(defence)
    about = {type(piece): piece for piece in pieces}
    view = View("own", attribute(secret.column), "server", about)
    guess = launch(MaxEntropy(), view, seed)
    hits = attribute_hits(guess, column)
    low, high = share_interval(hits)
    told = guess.diagnostics
    return Exposure(
        attribute=secret.column,
        records=len(records),
        accuracy=float(hits.mean()),
        low=low,
        high=high,
        majority=max(shares),
        sure=int((guess.probabilities.max(axis=1) > SURE).sum()),
        bits=float(attribute_bits(guess, column).mean()),
        rank=int(told.get("rank", 0)),
        unknowns=int(told.get("unknowns", len(records) * (len(secret.values) - 1))),
        warning=part.doubt or str(told.get("flag", "")),
    )


def worst(found: Sequence[Exposure]) -> Exposure:
    """The attribute that leaks most."""
    if not found:
        raise FixConfig("no attribute was given to protect; name at least one")
    return max(found, key=lambda e: e.bits)


def can_sample(recipe: Recipe, records: int, defence: AppliedDefence | None) -> bool:
    """Can what some records added to an update be taken off it? It must be a sum over records."""
    return (
        isinstance(recipe.model, Dense)
        and recipe.private is None
        and recipe.local_steps(records) == 1
        and (defence is None or (defence.clip_norm is None and set(defence.names) <= ADDITIVE))
    )


def _sample(
    recipe: Recipe,
    records: Records,
    sent: Array,
    returned: Array,
    defence: AppliedDefence | None,
    most: int,
    seed: int,
) -> _Part:
    """What the others added to the update is taken off again, in one batched pass."""
    order = stream(seed, "guard sample").permutation(len(records))
    kept = np.sort(order[:most])
    inside = np.isin(np.arange(len(records)), kept)
    inputs, labels = encode(recipe.encoding, records), recipe.target.encode(records)
    share, scale = 1 / len(records), len(kept) / len(records)
    noise_sd = 0.0 if defence is None else defence.noise_sd
    gradients = recipe.algorithm == "fedsgd"
    rate = 1.0 if gradients else recipe.learning_rate
    cleaned, arithmetic, off = [], [], []
    for before, after in zip(sent, returned, strict=True):
        pairs = factors(recipe.dense, recipe.loss, before.astype(np.float64), inputs, labels)
        theirs, own = (
            rate * weighted_gradient(recipe.dense, pairs, np.where(part, share, 0.0))
            for part in (~inside, inside)
        )
        heard = after.astype(np.float64) if gradients else before.astype(np.float64) - after
        left = heard - theirs
        cleaned.append(left / scale if gradients else before - left)
        size = float(np.sqrt(np.mean(heard**2)))
        careless = float(np.finfo(returned.dtype).eps) * size * CARELESS
        last_place = 0.0 if gradients else np.spacing(np.abs(after)).astype(np.float64) / 12**0.5
        arithmetic.append(float(np.sqrt(careless**2 + np.mean(np.square(last_place)))))
        off.append(float(np.sqrt(np.mean((left - own) ** 2))) / max(size, 1e-300))
        expected = float(np.hypot(noise_sd, arithmetic[-1])) / max(size, 1e-300)
        off[-1] = off[-1] if off[-1] > max(STRANGE * expected, REPLAYED) else 0.0
    smaller, sd = recipe, float(np.hypot(noise_sd, max(arithmetic)))
    if gradients:
        sd /= scale
    else:
        smaller = recipe.model_copy(update={"learning_rate": recipe.learning_rate * scale})
    doubt = ""
    if max(off) > 0:
        doubt = (
            f"not how this client trained: replayed on its own records, the recipe is off by "
            f"{max(off):.1%} of the update"
        )
    noisy = AppliedDefence(("gaussian",), noise_sd=sd)
    return _Part(smaller, records.take(kept), np.array(cleaned), noisy, doubt)
