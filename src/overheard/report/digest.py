"""The report for programs: the verdicts and the numbers behind them, as plain JSON."""

from __future__ import annotations

from typing import Any

from overheard.evaluation.judged import Judged, best_of, judge
from overheard.evaluation.record import Audit
from overheard.report import advice, verdict, words
from overheard.report.replayed import replay_words

DIGEST_VERSION = 1


def digest(audit: Audit, show_records: bool = False) -> dict[str, Any]:
    """Level and sentence per secret, the strongest attack over all clients and per client.

    ``level`` at the top is the highest of all; "no sign" only if everything was measured. Row
    numbers of records only with ``show_records``.
    """
    judgement = judge(audit)
    answers = verdict.verdicts(audit, judgement)
    best = best_of((*judgement.pooled, *judgement.findings))
    return {
        "digest": DIGEST_VERSION,
        "level": verdict.overall(answers).name,
        "threat": audit.run.threat,
        "data": audit.run.data,
        "clients": len(audit.run.clients),
        "rounds": audit.run.rounds,
        "missing": list(audit.run.damage),
        "seed": audit.run.seed,
        "software": audit.run.software,
        "rules": {level.name: rule for level, rule in verdict.rules().items()},
        "secrets": [
            {
                "secret": v.topic.name,
                "question": v.topic.question,
                "metric": v.topic.metric,
                "level": v.level.name,
                "sentence": v.text,
                "all_clients": _told(best.get((None, v.topic)), show_records),
                "by_client": {
                    client: _told(best.get((client, v.topic)), show_records)
                    for client in words.unique(
                        f.client for f in audit.findings if f.topic == v.topic
                    )
                },
            }
            for v in answers
        ],
        "replayed": {
            "sentence": replay_words(audit),
            "clients": {r.client: r.outcome for r in audit.replays},
        },
        "heard": [h.model_dump() for h in audit.heard],
        "skipped": len(audit.skipped),
        "failed": [one.model_dump() for one in audit.failed],
        "try": [{"what": a.name, "command": a.command} for a in advice.ranked(audit)],
    }


def _told(best: Judged | None, show_records: bool) -> dict[str, Any] | None:
    if best is None:
        return None
    found = best.finding
    names = ("attack", "value", "low", "high", "majority", "imputation", "lift", "n", "p_value")
    sure = None if found.sure is None else found.sure.model_dump()
    if sure is not None and not show_records:
        sure.pop("rows")
    return {name: getattr(found, name) for name in names} | {
        "level": best.level.name,
        "why": best.why,
        "sure": sure,
    }
