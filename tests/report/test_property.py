"""A property of clients is asked of all of them together, and shown so."""

from __future__ import annotations

import pytest
from report_words import words_of

from overheard.evaluation.record import AttackInfo, Audit, Finding
from overheard.report import render
from overheard.report.digest import digest
from overheard.report.markdown import render_markdown

NEEDS = {"matched_filter": ("sums of updates",), "nobody": ("the global model",)}


@pytest.fixture(scope="module")
def poisoned(audit: Audit) -> Audit:
    """Two of six clients poison; one attack finds both, one guesses nobody."""
    found = [
        Finding(
            attack=name, paper=paper, question="property", threat="secure-server",
            client="all clients", attribute="poisoning", metric="f1", value=value, low=value / 2,
            high=min(1.0, value + 0.2), majority=0.45, lift=value - 0.45, n=6, seconds=1.0, seed=0,
            p_value=0.01 if hits else 1.0,
            details={"found": hits, "positives": 2, "false_alarms": alarms},
        )
        for name, paper, value, hits, alarms in (
            ("matched_filter", "overheard", 0.95, 2, 0), ("nobody", "baseline", 0.0, 0, 0),
        )
    ]  # fmt: skip
    pooled = [f.model_copy(update={"client": None, "clients": 6}) for f in found]
    infos = [
        AttackInfo(
            name=f.attack, question="property", paper=f.paper, needs=NEEDS[f.attack], words=""
        )
        for f in found
    ]
    run = audit.run.model_copy(update={"threat": "secure-server"})
    return audit.model_copy(
        update={"run": run, "attacks": tuple(infos), "findings": tuple(found),
                "pooled": tuple(pooled), "skipped": ()}
    )  # fmt: skip


def test_the_page_counts_clients_and_not_records(poisoned: Audit) -> None:
    text = words_of(render(poisoned))
    assert "0.95 (0.47–1.00)" in text
    assert "2 of 2" in text
    assert "all 6 together" in text
    assert "nobody or everybody" in text
    assert "guessed right" not in text.split("How it was measured")[0].lower()
    assert "Client by client" not in text
    assert "Clients by lift" not in text
    assert "overheard detect" in text
    assert "F1 0.95 (0.47–1.00)" in render_markdown(poisoned)
    (secret,) = digest(poisoned)["secrets"]
    assert secret["metric"] == "f1"
    assert secret["level"] == "exposed"


def test_beside_attributes_both_are_shown(poisoned: Audit, audit: Audit) -> None:
    parts = ("attacks", "findings", "pooled")
    both = {part: getattr(audit, part) + getattr(poisoned, part) for part in parts}
    text = words_of(render(audit.model_copy(update=both)))
    for words in ("Clients by lift", "Client by client", "Properties of", "0.95 (0.47–1.00)"):
        assert words in text
