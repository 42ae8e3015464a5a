"""Estimates are proportions; attacks that were never timed are not in them; small ones unsaid."""

from __future__ import annotations

import pytest

from overheard.evaluation.attempt import Pace, scope
from overheard.evaluation.audit import AuditOptions, audit
from overheard.transcript.threat import EAVESDROPPER
from overheard.working import estimate


def test_what_is_left_is_in_proportion_to_the_records() -> None:
    pace = Pace()
    assert pace.expected("a", 10) is None
    assert pace.left({"a": 10**9}) == ""  # nothing is known of it
    pace.note("a", 10, 2.0)
    pace.note("a", 30, 6.0)
    assert pace.expected("a", 100) == pytest.approx(20.0)
    assert pace.left({"a": 100, "b": 10**9}) == ""
    assert pace.left({"a": 1200}) == "; about 4 min left (an estimate)"
    pace.note("b", 1, 60.0)
    assert pace.left({"a": 1200, "b": 4}) == "; about 8 min left (an estimate)"


def test_runs_that_are_new_or_long_are_worth_a_line() -> None:
    pace = Pace()
    assert pace.worth_saying("a", 10)
    pace.note("a", 10, 1.0)
    assert not pace.worth_saying("a", 10)
    assert pace.worth_saying("a", 100)


def test_in_words() -> None:
    assert estimate(59) == ""
    assert estimate(3 * 3600) == "; about 3.0 h left (an estimate)"
    assert scope([30, 30], 8, 3) == "2 clients of 30 records, 8 rounds, 3 attacks"
    assert scope([30, 1200], 8, 3) == "2 clients of 30 to 1,200 records, 8 rounds, 3 attacks"


def test_an_audit_says_what_is_left_after_its_first_client(federate, monkeypatch) -> None:
    """Where every run is taken to have lasted a minute."""
    real = Pace.note
    monkeypatch.setattr(Pace, "note", lambda self, attack, n, _: real(self, attack, n, 60.0))
    said: list[tuple[str, int, int]] = []
    recording = federate()
    names = ["max_entropy", "majority"]
    options = AuditOptions(progress=lambda *told: said.append(told))
    audit(recording, EAVESDROPPER, names, options=options)
    steps = [what for what, _, _ in said if what.startswith("attribute.s of ")]
    clients = [what for what in steps if ": " not in what]
    assert "left" not in clients[0]
    left = [f"; about {2 * n} min left (an estimate)" for n in range(len(clients) - 1, 0, -1)]
    assert [what[len("attribute.s of 1") :] for what in clients[1:]] == left
    # every run is said when it begins: the first because it is new, the others because they last
    assert len(steps) == len(clients) * (1 + len(names))
