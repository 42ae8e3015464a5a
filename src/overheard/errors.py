"""What can go wrong, named after what the user can do about it.

Every message follows one pattern: what was given, what is allowed, what to do.
The command line prints the message as one line and exits non-zero; a traceback
appears only with ``--debug``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

LONGEST = 4000
"""Letters of a message; a foreign file may quote itself into one at any length."""


class OverheardError(Exception):
    """Base of every error that a user can mend."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message if len(message) <= LONGEST else f"{message[:LONGEST]}...")


class FixConfig(OverheardError):
    """A setting, option or name is not one of those allowed."""


class FixData(OverheardError):
    """The input records cannot be used as they are."""


class FixRecording(OverheardError):
    """A recording is missing a file, is damaged or contradicts itself."""


class NotRun(OverheardError):
    """An attack cannot run here; an audit lists it as skipped, with the reason."""


class GrantKnowledge(NotRun):
    """An attack needs knowledge that the threat model does not grant."""


class DeclareKnowledge(OverheardError):
    """An attack reached for knowledge that it did not declare in ``needs``."""


class ChooseAnotherAttack(NotRun):
    """The attack does not apply to this federation (model, loss or recipe)."""


class AttackFailed(OverheardError):
    """What an attack returned is no answer to the question."""


class ListenLonger(NotRun):
    """The messages observed do not determine what was asked for."""


class ChooseAnotherOutput(OverheardError):
    """The output already exists; nothing is ever overwritten."""


class InstallExtra(NotRun, ImportError):
    """A package is missing that only some installations need."""


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Around imports of what comes with an extra: where it is missing, the error names it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise InstallExtra(f"{error}: pip install 'overheard[{extra}]'") from error
