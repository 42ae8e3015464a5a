"""The report for programs: the verdicts and the numbers behind them, as plain JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from overheard.evaluation.decision import best_of
from overheard.evaluation.record import Audit, Finding
from overheard.report import verdict, words
from overheard.report.model import First

DIGEST_VERSION = 3


def digest(audit: Audit) -> dict[str, Any]:
    """Level and sentence per secret, the strongest attack over all clients and per client.

    ``level`` at the top is the highest of all; "no sign" only if everything was measured.
    """
    best, first = best_of(audit.findings), First(audit)
    return {
        "digest": DIGEST_VERSION,
        "level": audit.level,
        "decision": asdict(first.decision) | {"policy": first.policy.model_dump()},
        "people_known": [
            {
                "secret": words.secret(risk.secret.topic),
                "all_clients": asdict(risk.people[None]),
                "by_client": {c: asdict(one) for c, one in risk.people.items() if c is not None},
            }
            for risk in first.counted
        ],
        **audit.run.model_dump(include={"threat", "data", "rounds", "seed", "software"}),
        "clients": len(audit.run.clients),
        "rules": words.rules(),
        "secrets": [
            {
                "secret": words.secret(secret.topic),
                **secret.model_dump(include={"question", "metric", "level"}),
                "sentence": verdict.verdict(audit, secret),
                "all_clients": _entry(audit.over_all(secret)),
                "by_client": {
                    client: _entry(found)
                    for (client, topic), found in best.items()
                    if topic == secret.topic
                },
            }
            for secret in audit.secrets
        ],
        "replayed": {
            "sentence": verdict.replay_words(audit),
            "clients": {r.client: r.outcome for r in audit.replays},
        },
        "curves": [_entry(f) for f in audit.curves],
        "skipped": len(audit.skipped),
        "failed": [one.model_dump() for one in audit.failed],
        "try": [{"what": a.name, "command": a.command} for a in first.advice()],
    }


def _entry(found: Finding | None) -> dict[str, Any] | None:
    if found is None:
        return None
    names = "attack value low high majority imputation lift n p_value level why calibration"
    names += " clients flagged" if found.client is None else ""
    about = "question attribute client rounds" if found.rounds else ""
    return found.model_dump(include={*names.split(), *about.split()})
