"""One run of one attack: its answer, or why there is none. Whatever it raises ends no audit."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from overheard.errors import ChooseAnotherAttack, FixData, GrantKnowledge, ListenLonger
from overheard.evaluation.record import Failed

Answer = TypeVar("Answer")
NOT_RUN = (ChooseAnotherAttack, GrantKnowledge, ListenLonger, FixData)
"""An attack that raises one of these does not apply; anything else is an error of the attack."""
LONGEST = 300


def attempt(
    run: Callable[[], Answer], attack: str, client: str, attribute: str | None, doing: str = ""
) -> Answer | Failed:
    """What ``run`` returns, or how it failed: its error's class, first line and place.

    ``NOT_RUN`` passes, for the caller to say so; so do an interrupt and an exit, which are asked of
    the whole audit, and a warning that is an error, which only `python -W error` makes it.
    """
    try:
        return run()
    except (*NOT_RUN, Warning):
        raise
    except Exception as error:  # a MemoryError too: the next attack may need less
        lines = str(error).strip().splitlines()
        return Failed(
            attack=attack,
            client=client,
            attribute=attribute,
            error=type(error).__name__,
            message=lines[0][:LONGEST] if lines else "",
            where=_where(error),
            doing=doing,
        )


def _where(error: Exception) -> str:
    """The file and line in which it was raised, without the machine's own folders."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    path = Path(frames[-1].filename)
    return f"{path.parent.name}/{path.name}:{frames[-1].lineno}"
