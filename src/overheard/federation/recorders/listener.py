"""Listening to a framework: without disturbing it, and whatever the order in which replies come."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from threading import RLock

from overheard.errors import OverheardError
from overheard.federation.recorders.live import Recorder
from overheard.transcript.messages import Arrays

log = logging.getLogger("overheard")

# What reading somebody's message and writing it to a disk can raise.
FAILURES = (
    *(OverheardError, OSError, ValueError, TypeError, LookupError, AttributeError),
    *(ArithmeticError, MemoryError, RuntimeError),
)
KEEP = 10  # rounds for which an answer is still waited for
LATE = (
    "Some replies came when their round was over; they are recorded, with the model that was sent "
    "for them, in the round in which they came."
)


class Listener:
    """Passes what is heard on to a recorder, until the first failure.

    A recorder that fails ends its recording, never the federation: the failure is logged once; the
    recording keeps the rounds that are on the disk and stays unfinished, which `overheard verify`
    and every audit of it say.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder: Recorder | None = recorder
        self._lock = RLock()

    def hear(self, tell: Callable[[Recorder], None]) -> None:
        """Tell the recorder something; what goes wrong is the recording's matter only."""
        with self._lock:
            if self._recorder is None:
                return
            try:
                tell(self._recorder)
            except FAILURES as error:
                self._fail(self._recorder, error)

    def end(self, error: BaseException | None = None) -> None:
        """The run is over, well or with an error."""
        self.hear(lambda r: r.close() if error is None else r.abandon(error))

    def _fail(self, recorder: Recorder, error: BaseException) -> None:
        self._recorder = None
        log.error(
            "recording stopped (%s: %s); the federation goes on, the rounds so far are kept",
            type(error).__name__,
            error,
        )
        try:
            recorder.drop(error)
        except FAILURES as again:
            log.error("the recording could not be let go: %s", again)


class Replies:
    """Which message does a reply answer, and in which round does it stand?

    Rounds only go forward, and a client is heard once in each. A reply belongs to the round that it
    was asked for in; one that comes when a later round has begun is put into that one, so that
    nothing is lost where replies are not waited for.
    """

    def __init__(self) -> None:
        self._waiting: dict[Hashable, tuple[int, Arrays]] = {}
        self._latest = self._now = -1
        self._heard: set[str] = set()

    def asked(self, key: Hashable, number: int, model: Arrays) -> None:
        """A message of a round went out with this model."""
        self._waiting[key] = (number, model)
        if number > self._latest:
            self._latest = number
            self._waiting = {k: s for k, s in self._waiting.items() if s[0] > number - KEEP}

    def answered(self, key: Hashable) -> tuple[int, Arrays] | None:
        """The round and the model of the message that is answered now, if it is known."""
        return self._waiting.pop(key, None)

    def place(self, number: int, client: str) -> int:
        """The round in which a reply to a message of round ``number`` is recorded."""
        place = max(number, self._now)
        if place == self._now and client in self._heard:
            place += 1
        if place > self._now:
            self._now, self._heard = place, set()
        self._heard.add(client)
        return place

    def record(
        self,
        recorder: Recorder,
        sent: tuple[int, Arrays],
        client: str,
        returned: Arrays,
        weight: float,
    ) -> None:
        """Write down what was sent, as `answered` gave it, and what came back."""
        number, model = sent
        place = self.place(number, client)
        if place != number:
            recorder.note(LATE)
        recorder.sent(place, client, model)
        recorder.returned(place, client, returned, weight)
