"""Which round does a reply stand in, when clients are late or nobody waits for them?"""

from __future__ import annotations

KEEP = 10  # rounds for which an answer is still waited for
LATE = (
    "Some replies came when their round was over; they are recorded, with the model that was sent "
    "for them, in the round in which they came."
)


class Rounds:
    """Rounds only go forward, and a client is heard once in each.

    A reply belongs to the round that it was asked for in. One that comes when a later round has
    begun is put into that one; so is nothing lost where replies are not waited for.
    """

    def __init__(self) -> None:
        self._now = -1
        self._heard: set[str] = set()

    def place(self, number: int, client: str) -> int:
        """The round in which a reply to a message of round ``number`` is recorded."""
        place = max(number, self._now)
        if place == self._now and client in self._heard:
            place += 1
        if place > self._now:
            self._now, self._heard = place, set()
        self._heard.add(client)
        return place
