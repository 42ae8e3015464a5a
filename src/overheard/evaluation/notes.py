"""What must be known to read an audit's numbers? Sentences that stand beside them.

What was said in the clear and promised, whether the recording is whole, what counts as right, where
equations were too few, and which answers flag themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from overheard.errors import FixRecording
from overheard.evaluation.record import Finding
from overheard.programs.program import Told
from overheard.programs.records import Codes, OneHot
from overheard.questions.question import grouped
from overheard.transcript.kind import told_of
from overheard.transcript.store import Recording
from overheard.transcript.view import in_the_clear


def notes_of(recording: Recording, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Of the recording first, then of what was found."""
    return (
        *in_the_clear(recording).sentences(),
        *promise_notes(recording),
        *(["The recording was not closed: its recorder was stopped."] * (not recording.closed)),
        *range_notes(findings),
        *rank_notes(findings),
        *flag_notes(findings),
    )


def range_notes(findings: Sequence[Finding]) -> tuple[str, ...]:
    """In words, once per secret that is a number cut into ranges: which, and what is right."""
    said = dict.fromkeys((f.attribute, f.details.get("right_is")) for f in findings)
    return tuple(
        f"{secret} is a number: a guess counts as right if it names {right}."
        for secret, right in said
        if right
    )


def rank_notes(findings: Sequence[Finding]) -> tuple[str, ...]:
    """In words, once per secret: where there were fewer equations than unknown values."""
    groups: dict[str, list[Finding]] = {}
    for found in findings:
        rank, unknowns = found.details.get("rank"), found.details.get("unknowns")
        if isinstance(rank, int) and isinstance(unknowns, int) and rank < unknowns:
            groups.setdefault(found.attribute or found.question, []).append(found)
    notes = []
    for secret, members in groups.items():
        fewest = min(members, key=lambda f: f.details["rank"] / f.details["unknowns"])  # type: ignore[operator]
        attacks = ", ".join(dict.fromkeys(f.attack for f in members))
        clients = len({f.client for f in members})
        notes.append(
            f"{secret}: fewer independent equations than unknown values were heard at {clients} "
            f"client(s) ({attacks}; {fewest.details['rank']} for {fewest.details['unknowns']} at "
            f"{fewest.client}). What is said of single records there is likely, not proven."
        )
    return tuple(notes)


def flag_notes(findings: Sequence[Finding]) -> tuple[str, ...]:
    """In words, once per attack, secret and reason: whose findings flag themselves."""
    flagged = (found for found in findings if found.flag)
    groups = grouped(flagged, lambda f: (f.attack, f.attribute, f.flag.partition(":")[0]))
    notes = []
    for (attack, about, _), members in groups.items():
        secret = f" on {about}" if about else ""
        notes.append(
            f"{attack}{secret} flags its own answer for {few([f.client for f in members])}: "
            f"{members[0].flag}."
        )
    return tuple(notes)


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
    listed = [b.column for b in blocks if isinstance(b, OneHot | Codes)]
    target = recipe.target
    if target.classes:
        listed.append(target.column)
    elif (target.shift, target.scale) != plain:
        scaled.append(target.column)
    parts = []
    if scaled:
        parts.append(f"the means and scales of {few(scaled)}")
    if listed:
        parts.append(f"the lists of values of {few(listed)}")
    if not parts:
        return ()
    return (
        f"This epsilon does not count what the recipe publishes: {' and '.join(parts)}. It holds "
        "only where these were chosen without looking at the records (data-independent); computed "
        "from the records they are exact, and with everybody else's records one person's values "
        "follow from them.",
    )


def few(names: Sequence[str], most: int = 5) -> str:
    """The first of them, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def _number(epsilon: Any) -> float:
    return inf if epsilon is None else float(epsilon)
