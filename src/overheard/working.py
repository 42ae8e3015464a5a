"""How far is a computation of minutes? It counts its steps, and whoever waits may listen.

Those who compute know nothing of bars and lines: they go through their steps with `counted`, and
`told` makes a function hear of it. Without one nothing is said.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Item = TypeVar("Item")
Listener = Callable[[str], None]
OFTEN = 10.0
"""Seconds, at least, between two words on the same computation."""

_LISTENER: ContextVar[Listener | None] = ContextVar("listener", default=None)


@contextmanager
def told(listener: Listener) -> Iterator[None]:
    """Whatever is counted inside is said to the listener, now and then."""
    said = time.monotonic()

    def seldom(sentence: str) -> None:
        nonlocal said
        if time.monotonic() - said >= OFTEN:
            said = time.monotonic()
            listener(sentence)

    before = _LISTENER.set(seldom)
    try:
        yield
    finally:
        _LISTENER.reset(before)


def counted(items: Sequence[Item], what: str) -> Iterator[Item]:
    """The items; after each how many are done, and how long the others may take."""
    begun = time.monotonic()
    for done, item in enumerate(items, 1):
        yield item
        listener, left = _LISTENER.get(), len(items) - done
        if listener is not None and left:
            seconds = (time.monotonic() - begun) / done * left
            listener(f"{what} {done} of {len(items)} done{estimate(seconds)}")


def estimate(seconds: float) -> str:
    """``; about 4 min left (an estimate)``, where that is worth saying."""
    if seconds < 60:
        return ""
    words = f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
    return f"; about {words} left (an estimate)"
