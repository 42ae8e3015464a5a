"""What does the federation's side of an audit write down: for every target, what may be known?

For each target there is a `Disclosure`, out of which every kind of knowledge makes its own piece;
the secrets themselves go to ``truth/``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.data.dataset import is_binned
from overheard.errors import FixConfig
from overheard.federation.plan import Plan
from overheard.federation.pool import Pool, known_count, pool_of
from overheard.federation.properties import Properties
from overheard.learning.records import OneHot, Records, positions
from overheard.transcript.kind import Disclosure, Piece, kinds, write
from overheard.transcript.knowledge import (
    AttributeDomain,
    AuxiliaryData,
    CandidatePool,
    Groups,
    LocalTraining,
    ShardSize,
    SuspectedBehaviour,
    TargetRecord,
)
from overheard.transcript.observe import MEMBER_COLUMN, POSITIVE_COLUMN
from overheard.transcript.side import SideWriter
from overheard.transcript.target import LABEL, attribute, client_property, membership

Truth = tuple[dict[str, Records], str]
"""Answers to a target's question, and what ``truth/`` calls them."""


def write_knowledge(recorder: SideWriter, plan: Plan) -> None:
    """Write truth and, for every target of the audit, the side knowledge that leaves it out."""
    if plan.clients:
        recorder.truth(plan.clients)
    write(recorder, LocalTraining(plan.recipe))
    for world, truth in disclosures(plan):
        for kind in kinds().values():
            piece = kind.disclosed(world)
            if piece is not None:
                write(recorder, piece, world.target.key)
        if truth is not None:
            recorder.truth(*truth, world.target.key)


def disclosures(plan: Plan) -> Iterator[tuple[Disclosure, Truth | None]]:
    """Each target of the plan: what can be disclosed to whoever asks it, and the answers."""
    label, coverage = plan.recipe.target.column, plan.config.audit.coverage
    base = Disclosure(LABEL, plan.recipe, plan.clients, plan.dataset.records)
    outside = () if plan.auxiliary is None else (auxiliary_data(plan.auxiliary, label),)
    for column in plan.attributes:
        known = {
            c: r.take(np.arange(known_count(len(r), coverage))) for c, r in plan.clients.items()
        }
        yield (
            replace(
                base,
                target=attribute(column),
                known=known,
                hidden=frozenset({column}),
                given=(_domain(plan, column), *outside),
            ),
            None,
        )
    if plan.strangers is not None:
        seed, others = plan.config.seed, plan.strangers
        pools = {c: pool_of(r, others, c, seed) for c, r in plan.clients.items()}
        for column in plan.attributes or ("",):
            yield _among_strangers(plan, base, pools, column)
    if plan.label is not None:
        secret, given = plan.label, list[Piece]()
        if secret.auxiliary is not None:
            given.append(auxiliary_data(secret.auxiliary, label))
        if secret.group:
            given.append(Groups(secret.group, secret.values))
        hidden = frozenset({label})
        yield replace(base, known=plan.clients, hidden=hidden, given=tuple(given)), None
    if plan.properties is not None:
        yield from _of_clients(plan.properties, base)


def _among_strangers(
    plan: Plan, base: Disclosure, pools: Mapping[str, Pool], column: str
) -> tuple[Disclosure, Truth]:
    """Each client's pool without the column and, for evaluation, who in it is a member."""
    label = plan.recipe.target.column
    candidates = {
        c: CandidatePool(p.records.without(column, label), p.records[label])
        for c, p in pools.items()
    }
    given = (candidates, _domain(plan, column)) if column else (candidates,)
    answers = {
        c: Records({MEMBER_COLUMN: p.member.astype(np.float64)} | _column(p.records, column))
        for c, p in pools.items()
    }
    return replace(base, target=membership(column), given=given), (answers, "Membership")


def _of_clients(asked: Properties, base: Disclosure) -> Iterator[tuple[Disclosure, Truth | None]]:
    """What the adversary is given for each property of clients and, if it is known, who has it."""
    label = base.recipe.target.column
    for secret in asked.secrets:
        given: list[Piece] = [auxiliary_data(asked.auxiliary, label), ShardSize(asked.shard)]
        if secret.record is not None:
            given.append(TargetRecord(secret.record.without(label), secret.record[label]))
        if secret.behaviour:
            given.append(SuspectedBehaviour(secret.behaviour))
        world = replace(base, target=client_property(secret.column), given=tuple(given))
        if secret.positives is None:
            yield world, None
            continue
        flags = {c: np.array([float(c in secret.positives)]) for c in asked.clients}
        yield world, ({c: Records({POSITIVE_COLUMN: f}) for c, f in flags.items()}, "Property")


def auxiliary_data(records: Records, label: str) -> AuxiliaryData:
    """Records from elsewhere as an adversary has them."""
    return AuxiliaryData(records.without(label), records[label])


def _domain(plan: Plan, column: str) -> AttributeDomain:
    values, pooled = plan.attributes[column], plan.dataset.records[column]
    if not is_binned(plan.dataset.records, column, plan.config.audit.bins):
        return AttributeDomain(column, values)
    _refuse_one_by_one(plan, column)
    which, middles = positions(pooled, values), np.asarray(values, dtype=np.float64)
    left = (pooled - middles[which]) ** 2
    spread = [float(np.sqrt(left[which == k].mean())) for k in range(len(values))]
    return AttributeDomain(column, values, tuple(spread))


def _refuse_one_by_one(plan: Plan, column: str) -> None:
    """A bin's middle is no value of a column that the model sees value by value."""
    if any(isinstance(b, OneHot) and b.column == column for b in plan.recipe.encoding.blocks):
        raise FixConfig(
            f"attribute {column!r} is cut into bins, but the encoding lists its values one by one; "
            "give it as one scaled number, or leave audit.bins out if it has few values"
        )


def _column(records: Records, column: str) -> dict[str, NDArray[Any]]:
    return {column: records[column]} if column else {}
