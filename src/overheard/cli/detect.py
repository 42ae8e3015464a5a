"""``overheard detect``: which clients hold the record, poison the model or ride for free?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

import overheard
from overheard import terminal
from overheard.cli.audit import ATTACK_FAILED, run_audit, summary
from overheard.cli.describe import described
from overheard.cli.options import Describing, TrustCode
from overheard.files import refuse_existing, write_durably


def detect(
    run: Annotated[Path, Argument(help="A recording of sums, or of single updates.")],
    property_: Annotated[
        str, Option("--property", help="membership, poisoning or free-rider (membership-2, ...).")
    ],
    attack: Annotated[
        str, Option(help="Attack to use (see `overheard attacks`).")
    ] = "matched_filter",
    out: Annotated[Path | None, Option(help="Write the audit there; must not exist yet.")] = None,
    description: Describing = None,
    trust_code: TrustCode = False,
    seed: Annotated[int, Option(help="Seed of every random choice.")] = 0,
) -> None:
    """Rank the clients by the probability that they have a property, from sums of updates alone.

    A short form of `overheard audit --threat secure-server --target property.PROPERTY`: the server
    of a federation with secure aggregation knows who took part in each round and the sum of their
    updates, and has records like the clients'. Where the recording has
    the truth, the list is scored. If it does not say what to look for, [property] in the TOML file
    of --with does.
    """
    from overheard.report import words
    from overheard.report.digest import digest
    from overheard.transcript.target import client_property

    if out is not None:
        refuse_existing(out)
    target, how = client_property(property_), overheard.AuditOptions(seed=seed)
    with tempfile.TemporaryDirectory(prefix="overheard-") as work:
        recording = described(run, description, trust_code, Path(work))
        who = overheard.threat_named("secure-server")
        record = run_audit(recording, who, [attack], [], [target.key], how)
    numbers = ["probability", "rounds", "contribution"]
    listed = [suspect for found in record.findings for suspect in found.suspects]
    rows = []
    for s in listed:
        helped = "" if s.contribution is None else f"{s.contribution:.3g}"
        shares = f"{s.probability:.3f}", f"{s.rounds} of {record.run.rounds}", helped
        rows.append((s.client, "yes" if s.accused else "", *shares, s.remark))
    title = f"who {words.what_of(target.column)}, by {attack}"
    terminal.table(["client", "accused", *numbers, "remark"], rows, title, right=numbers)
    accused = ", ".join(s.client for s in listed if s.accused)
    terminal.say(f"- accused: {accused or 'nobody'}")
    summary(record)
    if out is not None:
        write_durably(out, [record.to_json().encode()])
        terminal.wrote("audit", out)
    terminal.emit({"suspects": [s.model_dump() for s in listed]} | digest(record))
    if record.failed:
        raise Exit(ATTACK_FAILED)
