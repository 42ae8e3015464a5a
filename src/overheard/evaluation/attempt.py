"""One run of one attack: its answer, or why there is none.

Whatever it raises ends no audit.
"""

from __future__ import annotations

import signal
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from overheard.errors import FixConfig, FixData, NotRun
from overheard.evaluation.record import Failed, Skipped

Answer = TypeVar("Answer")
Progress = Callable[[str, int, int], None]
"""Told what begins, how many steps are done and how many there are."""
NOT_RUN = (NotRun, FixData)
"""An attack that raises one of these does not apply; anything else is an error of the attack."""
LONGEST = 300
OVER = "over its budget of {:g} s"
AGAIN = 1.0
"""Seconds after which an attack that went on all the same is told again that its time is up."""


def silent(what: str, done: int, total: int) -> None:
    """Nobody is told how far it is."""


class OverBudget(BaseException):
    """The time of a run is up; no error, so that nobody who catches errors holds it up."""


def attempt(
    run: Callable[[], Answer],
    attack: str,
    client: str,
    attribute: str | None,
    doing: str = "",
    budget: float | None = None,
) -> Answer | Failed | Skipped:
    """What ``run`` returns, or how it failed: its error's class, first line and place.

    ``NOT_RUN`` passes, for the caller to say so; so do an interrupt and an exit, which are asked of
    the whole audit, and a warning that is an error, which only `python -W error` makes it.
    ``budget``: seconds after which it is ended and listed as skipped; see `within`.
    """
    about = {"attack": attack, "client": client, "attribute": attribute}
    try:
        return run() if budget is None else within(budget, run)
    except (*NOT_RUN, Warning):
        raise
    except OverBudget:
        reason = f"{doing}: {OVER}" if doing else OVER
        return Skipped.model_validate({**about, "reason": reason.format(budget)})
    except Exception as error:  # noqa: BLE001  (a MemoryError too: the next attack may need less)
        lines = str(error).strip().splitlines()
        return Failed.model_validate(
            {
                **about,
                "error": type(error).__name__,
                "message": lines[0][:LONGEST] if lines else "",
                "where": _where(error),
                "doing": doing,
            }
        )


def check_budget(budget: float | None) -> None:
    """Refuse a budget in which nothing can be done."""
    if budget is not None and not 0 < budget < float("inf"):
        raise FixConfig(f"a budget of {budget} seconds; give a number above 0, or none")


def within(seconds: float, run: Callable[[], Answer]) -> Answer:
    """What ``run`` returns, or `OverBudget` if that takes longer.

    In the main thread of a system with alarms (Linux, macOS) it is ended at the next step of
    Python: a single call into a compiled library runs to its own end first. Elsewhere it runs to
    its end, and its answer is dropped if that was too late.
    """
    begin, armed = time.monotonic(), True

    def ring(number: int, frame: Any) -> None:
        if armed:
            raise OverBudget

    if not _has_alarm():
        answer = run()
    else:
        before = signal.signal(signal.SIGALRM, ring)
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
            try:
                answer = run()
            finally:
                armed = False
        finally:  # also if it rang a line ago
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    if time.monotonic() - begin > seconds:
        raise OverBudget
    return answer


def _has_alarm() -> bool:
    """Whether this thread can be interrupted, by an alarm that nobody else waits for."""
    return (
        hasattr(signal, "setitimer")
        and threading.current_thread() is threading.main_thread()
        and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    )


def _where(error: Exception) -> str:
    """The file and line in which it was raised, without the machine's own folders."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    path = Path(frames[-1].filename)
    return f"{path.parent.name}/{path.name}:{frames[-1].lineno}"


def scope(clients: Sequence[int], rounds: int, attacks: int) -> str:
    """What the time depends on."""
    few, many = min(clients, default=0), max(clients, default=0)
    records = f"{many:,}" if few == many else f"{few:,} to {many:,}"
    return f"{len(clients):,} clients of {records} records, {rounds:,} rounds, {attacks} attacks"
