"""What the federation promised its records, in one sentence, for whoever reads the audit.

The simulator writes it as side knowledge of the kind `PrivacyBudget`: for each client the epsilon
of whether a record is there, the epsilon of what its values are, delta, and the mechanism in words;
None is no bound at all.
"""

from __future__ import annotations

from math import inf
from typing import Any

from overheard.errors import FixRecording
from overheard.programs.program import Told
from overheard.programs.records import OneHot
from overheard.transcript.observe import told_of
from overheard.transcript.store import Recording

PRIVACY_BUDGET = "PrivacyBudget"


def promise_notes(recording: Recording) -> tuple[str, ...]:
    """The promise to the records of the client that is promised least, and what it leaves out; none
    if there is none. Epsilons at different deltas are not compared: one promise for each delta."""
    content = recording.side(PRIVACY_BUDGET)
    if not content:
        return ()
    try:
        at: dict[float, dict[str, Any]] = {}
        for client, promise in content.items():
            at.setdefault(float(promise["delta"]), {})[client] = promise
        said = tuple(_least(promises, delta, len(content)) for delta, promises in at.items())
        bounded = any(_number(promise["epsilon"]) < inf for promise in content.values())
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FixRecording(
            f"{recording.side_folder}: {PRIVACY_BUDGET} is not what the format says "
            f"({type(error).__name__}: {error}); record again"
        ) from error
    return (*said, *(_left_out(told_of(recording)) if bounded else ()))


def _least(promises: dict[str, Any], delta: float, clients: int) -> str:
    """Of the promises at one delta the weakest, in a sentence."""
    client, worst = max(promises.items(), key=lambda item: _number(item[1]["epsilon"]))
    present, changed = _number(worst["epsilon"]), _number(worst.get("changed"))
    how = str(worst["words"])
    among = f"of {len(promises)}" + (" at this delta" if len(promises) < clients else "")
    whose = f"client {client}, promised the least {among}" if clients > 1 else client
    if present == inf:
        return f"Differential privacy: none is promised to a record ({how}; {whose})."
    values = f" and {changed:.3g} for its values" if changed < inf else ""
    return (
        f"Differential privacy promised to a record: epsilon {present:.3g} for its presence{values}"
        f", at delta {delta:.3g} ({how}; {whose})."
    )


def _left_out(recipe: Told | None) -> tuple[str, ...]:
    """What everybody is told of the records besides the updates, and no epsilon counts."""
    if recipe is None:
        return ()
    plain = (0.0, 1.0)
    blocks = recipe.encoding.blocks
    scaled = [b.column for b in blocks if not isinstance(b, OneHot) and (b.shift, b.scale) != plain]
    listed = [b.column for b in blocks if isinstance(b, OneHot)]
    target = recipe.target
    if target.classes:
        listed.append(target.column)
    elif (target.shift, target.scale) != plain:
        scaled.append(target.column)
    parts = []
    if scaled:
        parts.append(f"the means and scales of {_some(scaled)}")
    if listed:
        parts.append(f"the lists of values of {_some(listed)}")
    if not parts:
        return ()
    return (
        f"This epsilon does not count what the recipe publishes: {' and '.join(parts)}. It holds "
        "only where these were chosen without looking at the records (data-independent); computed "
        "from the records they are exact, and with everybody else's records one person's values "
        "follow from them.",
    )


def _some(columns: list[str], most: int = 5) -> str:
    more = f" and {len(columns) - most} more" if len(columns) > most else ""
    return ", ".join(columns[:most]) + more


def _number(epsilon: Any) -> float:
    return inf if epsilon is None else float(epsilon)
