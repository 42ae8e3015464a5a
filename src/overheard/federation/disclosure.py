"""What does the federation's side of an audit write down: for every target, what may be known?

For each target there is a `Disclosure`, out of which every kind of knowledge makes its own piece;
the secrets themselves go to ``truth/``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from overheard.errors import FixConfig
from overheard.federation.plan import Plan
from overheard.federation.pool import Pool, known_count, pool_of
from overheard.federation.properties import PropertySecret
from overheard.programs.recipe import Recipe
from overheard.programs.records import OneHot, Records
from overheard.transcript.kind import Disclosure, Piece, kinds, write
from overheard.transcript.knowledge import (
    AttributeDomain,
    AuxiliaryData,
    BatchOrder,
    CandidatePool,
    ClientProgram,
    Groups,
    LocalTraining,
    ShardSize,
    SuspectedBehaviour,
    TargetRecord,
)
from overheard.transcript.side import MEMBER_COLUMN, POSITIVE_COLUMN, SideWriter
from overheard.transcript.target import LABEL, attribute, client_property, membership

Pools = tuple[str, Mapping[str, Pool]]
"""An attribute that is unknown of the candidates, and each client's pool of them."""


def write_knowledge(writer: SideWriter, plan: Plan) -> None:
    """Write truth and, for every target of the audit, the side knowledge that leaves it out."""
    if plan.clients:
        writer.truth(plan.clients)
    told = plan.told
    known = LocalTraining(told) if isinstance(told, Recipe) else ClientProgram(told)
    write(writer, known)
    if (how := plan.config.training.shuffle) is not None:
        order = BatchOrder((how.seed,), (how.convention,))
        write(writer, dict.fromkeys(plan.clients, order))
    pools = tuple(_pools(plan))
    for world in _disclosures(plan, pools):
        for kind in kinds().values():
            if (piece := kind.disclosed(world)) is not None:
                write(writer, piece, world.target.key)
    for column, among in pools:
        answers = {c: _members(pool, column) for c, pool in among.items()}
        writer.truth(answers, "Membership", membership(column).key)
    asked = plan.properties
    for secret in asked.secrets if asked else ():
        if asked and secret.positives is not None:
            flags = {c: np.array([float(c in secret.positives)]) for c in asked.clients}
            table = {c: Records({POSITIVE_COLUMN: flag}) for c, flag in flags.items()}
            writer.truth(table, "Property", client_property(secret.column).key)


def _disclosures(plan: Plan, pools: tuple[Pools, ...]) -> Iterator[Disclosure]:
    """What can be disclosed to whoever asks each target of the plan."""
    label, coverage = plan.told.target.column, plan.config.audit.coverage
    base = Disclosure(LABEL, plan.told, plan.clients, plan.dataset.records)
    known = {c: r.take(np.arange(known_count(len(r), coverage))) for c, r in plan.clients.items()}
    for domain in plan.attributes.values():
        _check_encoded(plan, domain)
        yield replace(
            base,
            target=attribute(*domain.columns),
            known=known,
            hidden=frozenset(domain.columns),
            given=(domain, *_strangers(plan.auxiliary, label)),
        )
    for column, among in pools:
        candidates = {
            c: CandidatePool.split(p.records.without(column), label) for c, p in among.items()
        }
        given = (candidates, plan.attributes[column]) if column else (candidates,)
        yield replace(base, target=membership(column), given=given)
    if (asked := plan.label) is not None:
        groups = (Groups(asked.group, asked.values),) if asked.group else ()
        yield replace(
            base,
            known=plan.clients,
            hidden=frozenset({label}),
            given=(*_strangers(asked.auxiliary, label), *groups),
        )
    if (sought := plan.properties) is not None:
        common = (*_strangers(sought.auxiliary, label), ShardSize(sought.shard))
        for secret in sought.secrets:
            target = client_property(secret.column)
            yield replace(base, target=target, given=(*common, *_sought(secret, label)))


def _sought(secret: PropertySecret, label: str) -> Iterator[Piece]:
    """What the adversary looks for among the clients."""
    if secret.record is not None:
        yield TargetRecord.split(secret.record, label)
    if secret.behaviour:
        yield SuspectedBehaviour(secret.behaviour)


def _strangers(records: Records | None, label: str) -> tuple[Piece, ...]:
    return () if records is None else (AuxiliaryData.split(records, label),)


def _pools(plan: Plan) -> Iterator[Pools]:
    """Each client's pool of candidates, for every attribute that is unknown of them."""
    if plan.strangers is None:
        return
    seed, others = plan.config.seed, plan.strangers
    pools = {c: pool_of(r, others, c, seed) for c, r in plan.clients.items()}
    known = {plan.told.target.column}  # of candidates
    for column in [c for c, d in plan.attributes.items() if not d.parts and c not in known] or [""]:
        yield column, pools


def _members(pool: Pool, column: str) -> Records:
    """For evaluation: who in a pool is the client's, and what was unknown of them."""
    unknown = {column: pool.records[column]} if column else {}
    return Records({MEMBER_COLUMN: pool.member.astype(np.float64)} | unknown)


def _check_encoded(plan: Plan, domain: AttributeDomain) -> None:
    listed = [block.column for block in plan.told.encoding.blocks if isinstance(block, OneHot)]
    if domain.spread and domain.column in listed:
        raise FixConfig(
            f"attribute {domain.column!r} is cut into bins, but the encoding lists its values one "
            "by one; give it as one scaled number, or leave audit.bins out if it has few values"
        )
