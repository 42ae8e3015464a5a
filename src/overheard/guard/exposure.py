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
from overheard.learning.recipe import Recipe
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
    that size is decoded and that of the others is taken as known to the listener.
    """
    sent, returned = np.atleast_2d(sent), np.atleast_2d(returned)
    if sent.shape != returned.shape or sent.shape[1] != recipe.model.size:
        raise FixData(
            f"messages of {sent.shape} and {returned.shape} numbers for a model of "
            f"{recipe.model.size}; give models of the recipe's own architecture, flattened"
        )
    records = secret.records
    if len(records) > most and recipe.local_steps(len(records)) == 1:
        recipe, records, returned = _sample(recipe, records, sent, returned, most, seed)
    column = records[secret.column]
    shares = [float(np.mean(column == v)) for v in secret.values]
    label = recipe.target.column
    pieces: list[Any] = [
        Link(
            "gradient" if recipe.algorithm == "fedsgd" else "model",
            np.arange(len(sent)),
            sent,
            returned,
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
        warning=_doubt(str(told.get("flag", ""))),
    )


def _doubt(flag: str) -> str:
    """A decoder that is undecided says what it knows; other flags mean that it failed."""
    return "" if flag.startswith("undecided") else flag


def worst(found: Sequence[Exposure]) -> Exposure:
    """The attribute that leaks most."""
    if not found:
        raise FixConfig("no attribute was given to protect; name at least one")
    return max(found, key=lambda e: e.bits)


def _sample(
    recipe: Recipe, records: Records, sent: Array, returned: Array, most: int, seed: int
) -> tuple[Recipe, Records, Array]:
    """The federation of a sample: what the others added to the update is taken off again."""
    order = stream(seed, "guard sample").permutation(len(records))
    kept, others = np.sort(order[:most]), np.sort(order[most:])
    rest = records.take(others)
    inputs, labels = encode(recipe.encoding, rest), recipe.target.encode(rest)
    share = np.full(len(rest), 1 / len(records))
    scale = len(kept) / len(records)
    cleaned = []
    for before, after in zip(sent, returned, strict=True):
        pairs = factors(recipe.dense, recipe.loss, before.astype(np.float64), inputs, labels)
        theirs = weighted_gradient(recipe.dense, pairs, share)
        if recipe.algorithm == "fedsgd":
            cleaned.append((after - theirs) / scale)
        else:
            cleaned.append(after + recipe.learning_rate * theirs)
    smaller = recipe
    if recipe.algorithm != "fedsgd":
        smaller = recipe.model_copy(update={"learning_rate": recipe.learning_rate * scale})
    return smaller, records.take(kept), np.array(cleaned, dtype=returned.dtype)
