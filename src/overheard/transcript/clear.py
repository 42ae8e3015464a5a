"""What messages say besides the models: findings that need no attack.

A recorder writes them as side knowledge of the kind `InTheClear`: ``notes`` are sentences, and
``values`` holds, by name and client, what was said in each message (a metric, a record count).
"""

from __future__ import annotations

from overheard.errors import FixRecording
from overheard.transcript.store import Recording

IN_THE_CLEAR = "InTheClear"
_SHOWN = 5


def clear_notes(recording: Recording) -> tuple[str, ...]:
    """The findings as sentences, for an audit's notes; none if the recorder noticed none."""
    content = recording.side(IN_THE_CLEAR)
    if content is None:
        return ()
    try:
        notes = [str(note) for note in content["notes"]]
        for what, clients in content["values"].items():
            told = [f"{client}: {_span(list(said))}" for client, said in clients.items()]
            more = f" and {len(told) - _SHOWN} more" if len(told) > _SHOWN else ""
            notes.append(
                f"Sent in the clear besides the models: {what!r} of {len(told)} client(s) "
                f"({'; '.join(told[:_SHOWN])}{more})."
            )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FixRecording(
            f"{recording.path / 'side'}: {IN_THE_CLEAR} is not what the format says "
            f"({type(error).__name__}: {error}); record again"
        ) from error
    return tuple(notes)


def _span(said: list[float | str]) -> str:
    """One value as it is; several numbers as their range."""
    different = list(dict.fromkeys(said))
    if len(different) == 1:
        return str(different[0])
    if all(isinstance(value, int | float) for value in different):
        numbers = [float(value) for value in different]
        return f"{min(numbers):.6g} to {max(numbers):.6g}"
    return ", ".join(map(str, different[:3]))
