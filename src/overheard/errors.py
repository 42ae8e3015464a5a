"""What can go wrong, named after what the user can do about it.

Every message follows one pattern: what was given, what is allowed, what to do.
The command line prints the message as one line and exits non-zero; a traceback
appears only with ``--debug``.
"""

from __future__ import annotations

LONGEST = 4000
"""Letters of a message; a stranger's file may quote itself into one at any length."""


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


class GrantKnowledge(OverheardError):
    """An attack needs knowledge that the threat model does not grant."""


class DeclareKnowledge(OverheardError):
    """An attack reached for knowledge that it did not declare in ``needs``."""


class ChooseAnotherAttack(OverheardError):
    """The attack does not apply to this federation (model, loss or recipe)."""


class AttackFailed(OverheardError):
    """What an attack returned is no answer to the question."""


class ListenLonger(OverheardError):
    """The messages heard do not determine what was asked for."""


class ChooseAnotherOutput(OverheardError):
    """The output already exists; nothing is ever overwritten."""
