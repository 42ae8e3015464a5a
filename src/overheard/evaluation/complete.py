"""The whole audit: every attack, and how much more a longer ear or fewer known records would tell.

What ``overheard audit`` runs and `overheard.audit` returns are the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable

from overheard.evaluation.audit import audit as run_attacks
from overheard.evaluation.coverage import QUICK_RECORDS, by_coverage
from overheard.evaluation.kept import NOTHING_KEPT, Kept
from overheard.evaluation.listening import by_rounds
from overheard.evaluation.record import Audit
from overheard.transcript.store import Recording
from overheard.transcript.threat import Threat
from overheard.transcript.view import Attack

Progress = Callable[[str, int, int], None]


def audit(
    recording: Recording,
    threat: Threat,
    attacks: Iterable[str | Attack] = (),
    clients: Iterable[str] = (),
    targets: Iterable[str] = (),
    seed: int = 0,
    slow: bool = False,
    rounds: bool = True,
    coverage: bool | None = None,
    progress: Progress = lambda what, done, total: None,
    rows: bool = False,
    kept: Kept = NOTHING_KEPT,
    budget: float | None = None,
) -> Audit:
    """As `overheard.evaluation.audit.audit`, and two curves for what was learned most.

    ``rounds``: what the first rounds alone would have told. ``coverage``: what is learned when only
    a share of the records is known; by default of clients small enough for it to take seconds.
    """
    given = tuple(attacks)
    record = run_attacks(
        recording, threat, given, clients, targets, seed, slow, progress, rows, kept, budget
    )
    if rounds and record.findings:
        record = record.adding(by_rounds(recording, threat, record, progress, kept, budget, given))
    if coverage is not False and record.findings:
        most = sys.maxsize if coverage else QUICK_RECORDS
        record = record.adding(by_coverage(recording, threat, record, progress, most, kept, budget))
    return record
