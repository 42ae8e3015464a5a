"""Secure aggregation: the server learns the sum of a round's updates and who took part.

The protocol of Bonawitz et al. (CCS 2017), one round at a time. Updates become whole multiples of a
step, counted modulo 2^64. Every two clients agree on a seed (Diffie-Hellman), and each client on a
seed of its own; an upload is

    y_i = x_i + mask(own_i) + sum_{j > i} mask(pair_ij) - sum_{j < i} mask(pair_ij)   (mod 2^64)

so that in the sum of all uploads the pairs' masks cancel. The seeds are shared out among the
clients (Shamir): any ``threshold`` of them can give the server the own seed of a client that
answered, or the key of one that dropped out, never both, and what is left of the masks can be taken
off. With fewer than ``threshold`` answers the round cannot be opened.

This is a simulator of what the server gets to see, not an implementation to deploy. All parties run
in one process, and every key and seed is drawn from the federation's one seed: whoever has that
draws the masks again and opens every upload. The group (mod 2^255 - 19) and the generator of the
masks (Philox, keyed by a hash) are those that Python and numpy bring, chosen for speed and not for
strength.

Collusion is not simulated. In the protocol itself, the server together with ``threshold`` of a
round's clients holds enough shares of both secrets of every other client and opens each of their
uploads; together with all clients but one it needs no shares, and takes their updates off the sum.
With c clients on its side, what it sees of the others is the sum of the remaining n - c, so an
audit of the sums as `secure-server` is of a server that has nobody on its side. A server that lies
about who dropped out (both secrets of one client asked from different clients) is held off by the
authors' extra round of signatures, which is not simulated either.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from overheard.errors import FixConfig
from overheard.federation.defences.contract import (
    Array,
    Claim,
    Defence,
    Rng,
    RoundContext,
    Stage,
    Who,
    changed,
)
from overheard.programs.program import Settings

PRIME = 2**255 - 19
GENERATOR = 2
Words = NDArray[np.uint64]
Share = tuple[int, int]
EXACT = 2.0**53
"""Whole numbers up to here are exact in float64."""


class SecureSum(Defence):
    """``step_bits``: updates are rounded to multiples of 2^-step_bits. ``dropout_rate``: the chance
    that a client of a round is lost after the keys are agreed on. ``threshold``: the share of a
    round's clients that must answer."""

    name: Literal["secure_sum"] = "secure_sum"
    step_bits: int = Field(default=32, ge=8, le=48)
    dropout_rate: float = Field(default=0.0, ge=0, lt=1)
    threshold: float = Field(default=2 / 3, gt=0.5, le=1)

    @property
    def claim(self) -> Claim:
        promise = "the server learns the sum of a round's updates and who took part, no single one"
        return Claim(self.name, Stage.SUM, promise)

    def upload(self, updates: Array, context: RoundContext) -> Array:
        step = 2.0**-self.step_bits
        return np.asarray(np.round(updates / step) * step)

    def program(self, settings: Settings) -> Settings:
        return changed(self, settings, rounded_to=2.0**-self.step_bits)

    def total(self, updates: Array, context: RoundContext) -> tuple[Array, Who]:
        """The sum of the updates of the clients that did not drop out, and who these were."""
        number, rng = context.number, context.rng
        clients = len(updates)
        answered = np.flatnonzero(rng.random(clients) >= self.dropout_rate)
        least = self.least(clients)
        if len(answered) < least:
            raise FixConfig(
                f"round {number}: {clients - len(answered)} of {clients} clients dropped out; the "
                f"masks can be taken off while {least} answer; lower dropout_rate (it is "
                f"{self.dropout_rate:g}) or threshold ({self.threshold:.3g}); the rounds before "
                "are kept"
            )
        words = as_words(updates, self.step_bits, number)
        keys = agree(clients, least, rng)
        uploads = masked(words, keys)[answered]
        total = unmasked(uploads, answered, keys.public, keys.shares_held_by(answered), least)
        return as_numbers(total, self.step_bits), answered

    def least(self, clients: int) -> int:
        """How many of so many clients must answer."""
        return max(1, int(np.ceil(self.threshold * clients - 1e-9)))


# --- fixed point ------------------------------------------------------------------------------


def as_words(updates: Array, bits: int, number: int = 0) -> Words:
    """Whole multiples of 2^-bits, modulo 2^64; refuses what would not survive being summed."""
    scaled = np.round(np.asarray(updates, np.float64) * 2.0**bits)
    largest = float(np.abs(scaled).max(initial=0.0))
    if not largest * len(scaled) < EXACT:
        raise FixConfig(
            f"round {number}: an update holds {largest * 2.0**-bits:.3g}, too large for a sum of "
            f"{len(scaled)} in steps of 2^-{bits}; put a clip before secure_sum or lower step_bits"
        )
    return scaled.astype(np.int64).view(np.uint64)


def as_numbers(words: Words, bits: int) -> Array:
    """The inverse of `as_words`, of a sum."""
    return np.asarray(words.view(np.int64).astype(np.float64) * 2.0**-bits)


# --- keys, and their shares -------------------------------------------------------------------


@dataclass(frozen=True)
class Keys:
    """What the clients of a round agree on: public keys, and secrets with everybody's shares."""

    public: tuple[int, ...]
    private: tuple[int, ...]
    own: tuple[int, ...]
    private_shares: tuple[tuple[Share, ...], ...]
    own_shares: tuple[tuple[Share, ...], ...]

    def shares_held_by(self, answered: Iterable[int]) -> dict[str, dict[int, list[Share]]]:
        """What those who answered tell the server: of each of them, shares of its own seed; of each
        that dropped out, shares of its private key. Never both of one client."""
        there = sorted(int(k) for k in answered)
        lost = [k for k in range(len(self.public)) if k not in there]
        return {
            "own": {i: [self.own_shares[i][k] for k in there] for i in there},
            "private": {i: [self.private_shares[i][k] for k in there] for i in lost},
        }


def agree(clients: int, least: int, rng: Rng) -> Keys:
    """Draw the secrets of a round's clients and share them out."""
    private = tuple(_below_prime(rng) for _ in range(clients))
    own = tuple(_below_prime(rng) for _ in range(clients))
    public = tuple(pow(GENERATOR, key, PRIME) for key in private)
    return Keys(
        public,
        private,
        own,
        tuple(split(key, clients, least, rng) for key in private),
        tuple(split(seed, clients, least, rng) for seed in own),
    )


def split(secret: int, holders: int, least: int, rng: Rng) -> tuple[Share, ...]:
    """Shamir's shares: points of a random polynomial of degree ``least`` - 1 through the secret."""
    line = [secret, *(_below_prime(rng) for _ in range(least - 1))]
    shares = []
    for point in range(1, holders + 1):
        value = 0
        for coefficient in reversed(line):
            value = (value * point + coefficient) % PRIME
        shares.append((point, value))
    return tuple(shares)


def joined(shares: Sequence[Share], least: int) -> int:
    """The secret, from any ``least`` shares."""
    if len(shares) < least:
        raise FixConfig(f"{len(shares)} shares of a seed where {least} are needed to open it")
    used = shares[:least]
    secret = 0
    for point, value in used:
        above = below = 1
        for other, _ in used:
            if other != point:
                above = above * other % PRIME
                below = below * (other - point) % PRIME
        secret = (secret + value * above * pow(below, -1, PRIME)) % PRIME
    return secret


def _below_prime(rng: Rng) -> int:
    return int.from_bytes(rng.bytes(32), "little") % (PRIME - 1) + 1


# --- masks ------------------------------------------------------------------------------------


def mask(seed: int, length: int) -> Words:
    """Words that nobody can tell from random ones who does not have the seed."""
    digest = hashlib.sha256(seed.to_bytes(32, "little")).digest()
    raw: Any = np.random.Philox(key=int.from_bytes(digest[:16], "little")).random_raw(length)
    return np.asarray(raw, np.uint64)


def masked(words: Words, keys: Keys) -> Words:
    """The uploads (n, P). The mask of a pair is drawn once here, as both would draw it."""
    clients, length = words.shape
    uploads = words.copy()
    for i in range(clients):
        uploads[i] += mask(keys.own[i], length)
        for j in range(i + 1, clients):
            shared = mask(pow(keys.public[j], keys.private[i], PRIME), length)
            uploads[i] += shared
            uploads[j] -= shared
    return uploads


def unmasked(
    uploads: Words,
    answered: NDArray[np.int64],
    public: Sequence[int],
    shares: dict[str, dict[int, list[Share]]],
    least: int,
) -> Words:
    """What the server does: the sum of the uploads, without what is left of the masks."""
    length = uploads.shape[1]
    total = np.asarray(uploads.sum(axis=0, dtype=np.uint64))
    for given in shares["own"].values():
        total -= mask(joined(given, least), length)
    for lost, given in shares["private"].items():
        key = joined(given, least)
        for i in answered.tolist():
            shared = mask(pow(public[i], key, PRIME), length)
            if i < lost:
                total -= shared
            else:
                total += shared
    return total
