"""The report for programs: the verdicts and the numbers behind them, as plain JSON."""

from __future__ import annotations

from typing import Any

from overheard.evaluation.decision import best_of
from overheard.evaluation.record import Audit, Finding
from overheard.report import advice, verdict, words

DIGEST_VERSION = 2


def digest(audit: Audit, show_records: bool = False) -> dict[str, Any]:
    """Level and sentence per secret, the strongest attack over all clients and per client.

    ``level`` at the top is the highest of all; "no sign" only if everything was measured. Row
    numbers of records only with ``show_records``.
    """
    best = best_of(audit.findings)
    return {
        "digest": DIGEST_VERSION,
        "level": audit.level,
        "threat": audit.run.threat,
        "data": audit.run.data,
        "clients": len(audit.run.clients),
        "rounds": audit.run.rounds,
        "missing": list(audit.run.damage),
        "seed": audit.run.seed,
        "software": audit.run.software,
        "rules": words.rules(),
        "secrets": [
            {
                "secret": words.secret(v.secret.topic),
                "question": v.secret.question,
                "metric": v.secret.metric,
                "level": v.level,
                "sentence": v.text,
                "all_clients": _told(audit.over_all(v.secret), show_records),
                "by_client": {
                    client: _told(found, show_records)
                    for (client, topic), found in best.items()
                    if topic == v.secret.topic
                },
            }
            for v in verdict.verdicts(audit)
        ],
        "replayed": {
            "sentence": verdict.replay_words(audit),
            "clients": {r.client: r.outcome for r in audit.replays},
        },
        "curves": [_told(f, show_records) for f in audit.curves],
        "skipped": len(audit.skipped),
        "failed": [one.model_dump() for one in audit.failed],
        "try": [{"what": a.name, "command": a.command} for a in advice.ranked(audit)],
    }


def _told(found: Finding | None, show_records: bool) -> dict[str, Any] | None:
    if found is None:
        return None
    names = "attack value low high majority imputation lift n p_value level why calibration"
    about = "question attribute client rounds" if found.rounds else ""
    told = found.model_dump(include={*names.split(), *about.split()})
    if told["calibration"] is not None and not show_records:
        told["calibration"].pop("rows")
    return told
