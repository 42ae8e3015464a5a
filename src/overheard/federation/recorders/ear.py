"""Listening must not disturb: a recorder that fails ends its recording, never the federation."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import RLock

from overheard.errors import OverheardError
from overheard.federation.recorders.live import Recorder

log = logging.getLogger("overheard")

# What reading somebody's message and writing it to a disk can raise.
FAILURES = (
    OverheardError,
    OSError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    ArithmeticError,
    MemoryError,
    RuntimeError,
)


class Ear:
    """Passes what is heard on to a recorder, until the first failure.

    The failure is logged once; the recording keeps the rounds that are on the disk and stays
    unfinished, which `overheard verify` and every audit of it say.
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
