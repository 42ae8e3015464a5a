"""What a comparison is: our work, an opponent's work of the same result, and a goal for the ratio.

Every measurement is a process of its own, started by the one that compares: its memory is nobody
else's, and what one side leaves in a cache is not the other's gain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

Sizes = Mapping[str, int]
Facts = dict[str, Any]
Clock = Literal["cpu", "wall"]


@dataclass(frozen=True)
class Job:
    """Prepared work. ``run`` is timed and may return facts about its result.

    ``share``: how much of the whole work it does; its time is divided by that. ``warm``: a small
    run before the clock starts, of what loads or compiles lazily. ``spawns``: the work is done by
    processes that it starts and waits for; their memory counts and not its own. ``before``: done
    before every run, not timed.
    """

    run: Callable[[], Facts]
    share: float = 1.0
    warm: Callable[[], object] | None = None
    spawns: bool = False
    before: Callable[[], object] | None = None


@dataclass(frozen=True)
class Side:
    """One party. ``prepare`` makes the job from the sizes and a folder that all parties share.

    ``needs``: a module without which it is skipped. ``loopback``: runs where no network but
    loopback is seen. ``tree``: works in processes of its own, whose memory counts.
    """

    name: str
    prepare: Callable[[Sizes, Path], Job]
    needs: str = ""
    loopback: bool = False
    tree: bool = False


@dataclass(frozen=True)
class Check:
    """Something that must hold of the facts of both sides, beside the ratio."""

    says: str
    holds: Callable[[Facts, Facts], bool]


@dataclass(frozen=True)
class Opponent:
    """Whom we are compared with, and how many times faster we mean to be.

    ``goal``: the least ratio, opponent's time over ours; 0 if it is shown without one.
    ``seconds_more``: in place of a ratio, the most seconds that ours may take beyond the opponent.
    ``clock``: which time the ratio is made of. ``note``: what to know when reading it.
    """

    side: Side
    goal: float = 0.0
    seconds_more: float | None = None
    clock: Clock = "cpu"
    checks: tuple[Check, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Entry:
    """One line of the table: ours against one or more opponents at stated sizes.

    ``limit``: the part of our work that nobody can leave out (the same products by BLAS alone, the
    digest of the same bytes), timed in the same run; it says which ratio would be possible at all.
    """

    name: str
    what: str
    ours: Side
    opponents: tuple[Opponent, ...]
    sizes: Sizes
    quick: Sizes
    limit: Side | None = None

    def sides(self) -> dict[str, Side]:
        """Every party by its name, ours first."""
        others = [o.side for o in self.opponents] + ([self.limit] if self.limit else [])
        return {side.name: side for side in (self.ours, *others)}


@dataclass(frozen=True)
class Growth:
    """Time and memory of one piece of work against one size.

    ``time`` and ``memory``: the greatest exponents expected, None where none is claimed; ``why``
    they are expected, and what bends the curve. ``most_gigabytes``: the greatest peak allowed.
    """

    name: str
    what: str
    axis: Literal["records", "parameters", "clients", "rounds"]
    points: tuple[int, ...]
    quick: tuple[int, ...]
    side: Side
    why: str
    time: float | None = None
    memory: float | None = None
    most_gigabytes: float | None = None
