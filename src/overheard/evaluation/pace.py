"""How long is it going to take? From the runs so far, as if they cost the same per record.

An estimate and no more: small clients cost more per record than large ones with some attacks and
less with others, and an attack that has not run yet is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

LONG = 5.0
"""Seconds; a run that is likely to take as long is said when it begins, not only its client."""
WORTH_SAYING = 60.0
"""Seconds of work from which on an estimate of it is said."""


class Pace:
    """Seconds and records of the runs so far, by attack."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._records: dict[str, int] = {}

    def note(self, attack: str, records: int, seconds: float) -> None:
        """A run that has ended, however it did."""
        self._seconds[attack] = self._seconds.get(attack, 0.0) + seconds
        self._records[attack] = self._records.get(attack, 0) + max(records, 1)

    def expected(self, attack: str, records: int) -> float | None:
        """Seconds that a run may take; None if nothing is known of this attack."""
        if attack not in self._seconds:
            return None
        return self._seconds[attack] / self._records[attack] * max(records, 1)

    def worth_saying(self, attack: str, records: int) -> bool:
        """Whether a run is new or likely to take long."""
        expected = self.expected(attack, records)
        return expected is None or expected >= LONG

    def left(self, records: Mapping[str, int]) -> str:
        """In words, how long attacks may take on so many records each; empty if not for long."""
        return estimate(sum(self.expected(a, n) or 0.0 for a, n in records.items() if n))


def scope(clients: Sequence[int], rounds: int, attacks: int) -> str:
    """What the time depends on, before there is anything to estimate it from."""
    few, many = min(clients, default=0), max(clients, default=0)
    records = f"{many:,}" if few == many else f"{few:,} to {many:,}"
    return f"{len(clients):,} clients of {records} records, {rounds:,} rounds, {attacks} attacks"


def estimate(seconds: float) -> str:
    """``; about 4 min left (an estimate)``, where that is worth saying."""
    if seconds < WORTH_SAYING:
        return ""
    words = f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
    return f"; about {words} left (an estimate)"
