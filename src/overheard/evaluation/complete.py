"""The whole audit: every attack, and how much more a longer ear or fewer known records would tell.

What ``overheard audit`` runs and `overheard.audit` returns are the same.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from overheard.evaluation.audit import AuditOptions
from overheard.evaluation.audit import audit as run_attacks
from overheard.evaluation.coverage import QUICK_RECORDS, by_coverage
from overheard.evaluation.kept import NOTHING_KEPT, Kept
from overheard.evaluation.listening import by_rounds
from overheard.evaluation.record import Audit
from overheard.transcript.store import Recording
from overheard.transcript.threat import Threat
from overheard.transcript.view import Attack


def audit(
    recording: Recording,
    threat: Threat,
    attacks: Iterable[str | Attack] = (),
    clients: Iterable[str] = (),
    targets: Iterable[str] = (),
    options: AuditOptions = AuditOptions(),  # noqa: B008  # frozen
    kept: Kept = NOTHING_KEPT,
) -> Audit:
    """As `overheard.evaluation.audit.audit`, and two curves for what was learned most."""
    given, progress, budget = tuple(attacks), options.progress, options.budget
    record = run_attacks(recording, threat, given, clients, targets, options, kept)
    if options.rounds and record.findings:
        record = record.adding(by_rounds(recording, threat, record, progress, kept, budget, given))
    if options.coverage is not False and record.findings:
        most = sys.maxsize if options.coverage else QUICK_RECORDS
        record = record.adding(by_coverage(recording, threat, record, progress, most, kept, budget))
    return record
