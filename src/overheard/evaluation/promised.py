"""What the federation promised its records, in one sentence, for whoever reads the audit.

The simulator writes it as side knowledge of the kind `PrivacyBudget`: for each client the epsilon
of whether a record is there, the epsilon of what its values are, delta, and the mechanism in words;
None is no bound at all.
"""

from __future__ import annotations

from math import inf
from typing import Any

from overheard.errors import FixRecording
from overheard.transcript.store import Recording

PRIVACY_BUDGET = "PrivacyBudget"


def promise_notes(recording: Recording) -> tuple[str, ...]:
    """The promise to the records of the client that is promised least; none if there is none."""
    content = recording.side(PRIVACY_BUDGET)
    if not content:
        return ()
    try:
        client, worst = max(content.items(), key=lambda item: _number(item[1]["epsilon"]))
        present, changed = _number(worst["epsilon"]), _number(worst.get("changed"))
        delta, how = float(worst["delta"]), str(worst["words"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FixRecording(
            f"{recording.path / 'side'}: {PRIVACY_BUDGET} is not what the format says "
            f"({type(error).__name__}: {error}); record again"
        ) from error
    whose = f"client {client}, promised the least of {len(content)}" if len(content) > 1 else client
    if present == inf:
        return (f"Differential privacy: none is promised to a record ({how}; {whose}).",)
    values = f" and {changed:.3g} for its values" if changed < inf else ""
    return (
        f"Differential privacy promised to a record: epsilon {present:.3g} for its presence{values}"
        f", at delta {delta:.3g} ({how}; {whose}).",
    )


def _number(epsilon: Any) -> float:
    return inf if epsilon is None else float(epsilon)
