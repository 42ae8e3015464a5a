"""Threat models: which links are tapped and which kinds of knowledge are granted."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from overheard.errors import FixConfig
from overheard.transcript import knowledge as known
from overheard.transcript.kind import kinds


@dataclass(frozen=True)
class Threat:
    """``grants`` says which messages are observed (`Messages`: of single clients), and what is
    known.

    ``isolates``: the adversary also acts, and sends a client its own model back.
    """

    name: str
    grants: frozenset[type[Any]]
    words: str
    isolates: bool = False

    def granting(self, *kinds: type[Any]) -> Threat:
        """The same adversary with more knowledge."""
        return replace(self, grants=self.grants | set(kinds))

    def without(self, *kinds: type[Any]) -> Threat:
        """The same adversary with less knowledge."""
        return replace(self, grants=self.grants - set(kinds))


_AROUND: frozenset[type[Any]] = frozenset({
    known.Broadcast, known.ClientProgram, known.AppliedDefence, known.PublicRecords, known.Labels,
    known.AttributeDomain, known.AttributePrior, known.AuxiliaryData, known.CandidatePool,
    known.Groups,
})  # fmt: skip
_LINKS = _AROUND | {known.Messages}
_SUMS = _AROUND | {known.Sums, known.EverybodysRecords}

EAVESDROPPER = Threat(
    "eavesdropper",
    _LINKS,
    "listens to one client's link: every model sent to it and every model it returns. Knows the "
    "training recipe and, of the client's records, the public attributes and the labels.",
)
SERVER = Threat(
    "server",
    _LINKS,
    "is the server, or hears all links: every client's own update in every round. Knows the "
    "training recipe and, of each client's records, the public attributes and the labels. The "
    "attacks here take one client at a time, so of each it learns what an eavesdropper of that "
    "client's link does.",
)
ISOLATING_SERVER = Threat(
    "isolating-server",
    _LINKS,
    "is a server that cheats: it sends one client that client's own returned model in place of the "
    "global one, so that no other client's data disturb what it hears. Knows the training recipe "
    "and, of the client's records, the public attributes and the labels.",
    isolates=True,
)
SECURE_SERVER = Threat(
    "secure-server",
    _SUMS | {known.TargetRecord, known.SuspectedBehaviour, known.ShardSize},
    "is the server of a federation with secure aggregation: it sees who took part and the sum of "
    "their updates, never a single one. Knows the training recipe, records like the clients' and "
    "the public attributes and labels of the clients' own. "
    "A server that hears every link can sum by itself, so what is found here it finds as well.",
)
THREATS = {t.name: t for t in (EAVESDROPPER, SERVER, ISOLATING_SERVER, SECURE_SERVER)}


def threat_named(name: str, grants: Iterable[str] = ()) -> Threat:
    """The shipped threat model of this name, with further kinds of knowledge by their names
    ("group counts")."""
    if name not in THREATS:
        raise FixConfig(f"unknown threat model {name!r}; {nearest(name, THREATS, 0.6)}")
    threat, by_name = THREATS[name], {kind.name: kind for kind in kinds().values()}
    for granted in grants:
        plain = granted.replace("-", " ").replace("_", " ").lower()
        if plain not in by_name:
            raise FixConfig(
                f"unknown kind of knowledge {granted!r}; {nearest(plain, by_name, 0.6)}"
            )
        words = f"{threat.words} Knows also: {plain}."
        threat = replace(threat.granting(by_name[plain]), words=words)
    return threat


def nearest(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """What may have been meant, for an error about an unknown name."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"


def who_grants(kind: type[Any]) -> list[str]:
    """Names of the shipped threat models that grant a kind of knowledge."""
    return [t.name for t in THREATS.values() if kind in t.grants]
