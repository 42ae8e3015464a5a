"""Levels of what was found over all clients agree with those of the clients."""

from __future__ import annotations

from overheard.evaluation.record import Audit, Finding, Pooled, Replay
from overheard.report.verdict import NO_SIGN, NOT_MEASURED, Judged, judge_pooled


def about(audit: Audit, attack: str, attribute: str) -> tuple[list[Finding], Pooled]:
    mine = [f for f in audit.findings if (f.attack, f.attribute) == (attack, attribute)]
    return mine, next(p for p in audit.pooled if (p.attack, p.attribute) == (attack, attribute))


def pooled(audit: Audit, findings: list[Finding], row: Pooled, *replays: Replay) -> Judged:
    update = {"findings": tuple(findings), "pooled": (row,), "replays": replays}
    (found,) = judge_pooled(audit.model_copy(update=update))
    return found


def test_no_sign_over_all_clients_needs_all_clients(audit: Audit) -> None:
    """Programs read this level from the digest, beside the secret's verdict."""
    findings, row = about(audit, "max_entropy", "physlm")
    assert pooled(audit, findings, row).level is NO_SIGN
    flag = {"details": {"flag": "poor fit: why"}}
    flagged = [findings[0].model_copy(update=flag), *findings[1:]]
    found = pooled(audit, flagged, row)
    assert found.level is NOT_MEASURED
    assert found.why == f"at {findings[0].client} max_entropy flags its own answer: poor fit: why"
    unfit = Replay(client=findings[1].client, outcome="does not fit", rounds=(1,), round=1, off=0.8)
    found = pooled(audit, findings, row, unfit)
    assert found.level is NOT_MEASURED
    assert found.why.startswith(f"at {findings[1].client} the declared recipe does not")
