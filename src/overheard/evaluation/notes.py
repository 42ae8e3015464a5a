"""What must be known to read an audit's numbers? Sentences that stand beside them.

What was said in the clear and promised, whether the recording is whole, whose order of batches can
be guessed, what counts as right, where equations were too few, and which answers flag themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

from overheard.evaluation.promised import promise_notes
from overheard.evaluation.record import Finding
from overheard.transcript.observe import in_the_clear
from overheard.transcript.store import Recording


def notes_of(recording: Recording, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Of the recording first, then of what was found."""
    stopped = "The recording was not closed: its recorder was stopped."
    said = (*in_the_clear(recording).sentences(), *promise_notes(recording))
    return (
        *said,
        *(() if recording.closed else (stopped,)),
        *order_notes(findings),
        *range_notes(findings),
        *rank_notes(findings),
        *flag_notes(findings),
    )


def order_notes(findings: Sequence[Finding]) -> tuple[str, ...]:
    """In words, once per seed: whose mini-batches come in an order that was guessed."""
    clients: dict[str, list[str]] = {}
    for found in findings:
        if said := found.details.get("order_guessed"):
            clients.setdefault(str(said), []).append(found.client)
    return tuple(
        f"Clients shuffle in an order that can be guessed, {', '.join(dict.fromkeys(who))} with "
        f"{said}. Their mini-batches then hide nothing: what is said of their records was proven "
        "by training again. Do not seed the shuffling, or seed it at every client from a secret of "
        "its own."
        for said, who in clients.items()
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
    groups: dict[tuple[str, str | None, str], list[Finding]] = {}
    for found in findings:
        flag = found.details.get("flag")
        if isinstance(flag, str):
            kind = flag.partition(":")[0]
            groups.setdefault((found.attack, found.attribute, kind), []).append(found)
    notes = []
    for (attack, about, _), members in groups.items():
        clients = ", ".join(f.client for f in members[:5])
        more = f" and {len(members) - 5} more" if len(members) > 5 else ""
        secret = f" on {about}" if about else ""
        notes.append(
            f"{attack}{secret} flags its own answer for {clients}{more}: "
            f"{members[0].details['flag']}."
        )
    return tuple(notes)
