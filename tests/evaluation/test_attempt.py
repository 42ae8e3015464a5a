"""An attack that breaks down is listed, with what it raised; the others run to their ends."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
import time
from typing import Any

import pytest

from overheard.attacks.attribute import MaxEntropy
from overheard.attacks.partial import PartialDecode
from overheard.errors import FixConfig
from overheard.evaluation import attempt as attempt_module
from overheard.evaluation.attempt import attempt
from overheard.evaluation.audit import AuditOptions, audit
from overheard.evaluation.complete import by_knowledge, by_rounds
from overheard.evaluation.record import Failed, Skipped, read_audit
from overheard.evaluation.resume import Kept
from overheard.report.digest import digest
from overheard.report.html import render
from overheard.report.markdown import render_markdown
from overheard.transcript.knowledge import Link
from overheard.transcript.threat import EAVESDROPPER

pytestmark = pytest.mark.slow

NAMES = ("majority", "max_entropy", "model_based_linear")


def crashing(error: BaseException, when: Any = lambda view: True) -> Any:
    real = MaxEntropy.__call__

    def call(self: MaxEntropy, view: Any, rng: Any) -> Any:
        if when(view):
            raise error
        return real(self, view, rng)

    return call


@pytest.mark.parametrize(
    "error",
    [ValueError("shapes (3,) and <b>(4,)</b>\nsecond line"), MemoryError(), AssertionError("no")],
)
def test_a_crash_ends_that_attack_and_nothing_else(federate, monkeypatch, error, tmp_path):
    recording = federate()
    whole = audit(recording, EAVESDROPPER, NAMES)
    assert not whole.failed
    monkeypatch.setattr(MaxEntropy, "__call__", crashing(error, lambda view: view.client == "1"))
    kept = Kept(tmp_path)
    record = audit(recording, EAVESDROPPER, NAMES, kept=kept)
    (failed,) = record.failed
    assert (failed.attack, failed.client, failed.attribute) == ("max_entropy", "1", "s")
    assert failed.error == type(error).__name__
    assert failed.message == str(error).partition("\n")[0]
    assert failed.where.startswith("evaluation/test_attempt.py:")
    answered = {(f.attack, f.client) for f in whole.findings}
    assert {(f.attack, f.client) for f in record.findings} == answered - {("max_entropy", "1")}
    monkeypatch.undo()  # what was kept is not asked again
    assert audit(recording, EAVESDROPPER, NAMES, kept=kept).failed == record.failed
    path = tmp_path / "audit.json"
    path.write_text(record.to_json())
    assert read_audit(path).failed == record.failed


def test_a_broken_guess_is_the_attack_s_failure(federate, monkeypatch):
    monkeypatch.setattr(MaxEntropy, "__call__", lambda self, view, rng: "no guess")
    record = audit(federate(), EAVESDROPPER, NAMES)
    assert {f.attack for f in record.failed} == {"max_entropy"}
    assert {f.attack for f in record.findings} == {"majority", "model_based_linear"}


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(2), RuntimeWarning("asked for")])
def test_what_is_meant_for_the_whole_audit_passes(federate, monkeypatch, error):
    monkeypatch.setattr(MaxEntropy, "__call__", crashing(error))
    with pytest.raises(type(error)):
        audit(federate(), EAVESDROPPER, NAMES)


def test_the_curves_note_what_failed_and_go_on(federate, monkeypatch, tmp_path):
    recording = federate()
    record = audit(recording, EAVESDROPPER, ["max_entropy"], ["1"])
    whole = by_rounds(recording, EAVESDROPPER, record)
    few = crashing(ValueError("few"), lambda view: len(view.know(Link)) == 2)
    monkeypatch.setattr(MaxEntropy, "__call__", few)
    monkeypatch.setattr(PartialDecode, "__call__", crashing(IndexError("5")))
    kept = Kept(tmp_path)
    heard = by_rounds(recording, EAVESDROPPER, record, kept=kept)
    (failed,) = (part for part in heard if isinstance(part, Failed))
    assert failed.doing == "with the first 2 rounds alone"
    assert [p for p in heard if p != failed] == [p for p in whole if p.rounds != 2]
    rungs = by_knowledge(recording, EAVESDROPPER, record, kept=kept)
    assert {part.doing for part in rungs if isinstance(part, Failed)} >= {"as half", "as schema"}
    more = record.adding(heard).adding(rungs)
    assert {f.error for f in more.failed} == {"ValueError", "IndexError"}
    assert len(more.heard) == len(whole) - 1
    monkeypatch.undo()
    assert by_rounds(recording, EAVESDROPPER, record, kept=kept) == heard


def test_every_report_lists_it(federate, monkeypatch):
    monkeypatch.setattr(MaxEntropy, "__call__", crashing(ValueError("<b>bold</b>")))
    record = audit(federate(), EAVESDROPPER, NAMES)
    page, text = render(record), render_markdown(record)
    assert "What failed" in page
    assert "ValueError: &lt;b&gt;bold&lt;/b&gt;" in page
    assert "<b>bold" not in page
    assert "## What failed" in text
    assert "ValueError: \\<b\\>bold" in text
    assert [f["error"] for f in digest(record)["failed"]] == ["ValueError"] * len(record.failed)


def test_the_command_writes_everything_and_exits_3(workplace, monkeypatch):
    monkeypatch.setattr(MaxEntropy, "__call__", crashing(ValueError("shapes")))
    words = ["audit", "run", "--attack", "max_entropy", "--attack", "majority"]
    done = workplace.overheard(*words, "--out", "a")
    assert done.returncode == 3
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("failed: "))
    assert line.startswith("failed: max_entropy on s (site 0, site 1 and site 2): ValueError: shap")
    record = read_audit(workplace.path / "a" / "audit.json")
    assert {f.attack for f in record.findings} == {"majority"}
    assert workplace.overheard("report", "a/audit.json", "--out", "r.html").returncode == 0
    done = workplace.overheard(*words, "--out", "b", "--json")
    assert done.returncode == 3
    assert len(json.loads(done.stdout)["failed"]) == 3


def forever() -> None:
    """An attack that catches errors, too."""
    while True:
        with contextlib.suppress(Exception):
            time.sleep(0.01)


def test_a_run_that_takes_too_long_is_ended() -> None:
    before = signal.getsignal(signal.SIGALRM)
    ended = attempt(forever, "a", "c", "s", "with half", budget=0.05)
    assert isinstance(ended, Skipped)
    assert ended.reason == "with half: over its budget of 0.05 s"
    assert signal.getsignal(signal.SIGALRM) is before
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def test_who_is_told_once_and_goes_on_is_told_again(monkeypatch) -> None:
    monkeypatch.setattr(attempt_module, "AGAIN", 0.05)
    told = []

    def stubborn() -> None:
        while True:
            try:
                time.sleep(0.01)
            except BaseException as error:
                told.append(error)
                if len(told) > 2:
                    raise

    assert isinstance(attempt(stubborn, "a", "c", None, budget=0.05), Skipped)
    assert len(told) == 3


@pytest.mark.parametrize("where", ["thread", "alarm in use"])
def test_what_cannot_be_interrupted_is_dropped_when_it_comes_too_late(where: str) -> None:
    found: list[Any] = []

    def run() -> None:
        for seconds in (0.05, 1e6):
            found.append(attempt(lambda: time.sleep(0.1) or 5, "a", "c", None, budget=seconds))

    if where == "thread":
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    else:
        signal.setitimer(signal.ITIMER_REAL, 1000)  # somebody else's
        try:
            run()
            assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    assert isinstance(found[0], Skipped)
    assert found[1] == 5


@pytest.mark.parametrize("budget", [0.0, -1.0, float("nan"), float("inf")])
def test_a_budget_is_a_time(federate, budget: float) -> None:
    with pytest.raises(FixConfig, match="a budget of"):
        audit(federate(), EAVESDROPPER, NAMES, options=AuditOptions(budget=budget))


def test_an_audit_within_a_budget(workplace, monkeypatch) -> None:
    """The others run, what took too long is listed and asked no more, and it is no failure."""
    monkeypatch.setattr(MaxEntropy, "__call__", lambda self, view, rng: forever())
    words = ["audit", "run", "--attack", "max_entropy", "--attack", "majority"]
    done = workplace.overheard(*words, "--out", "a", "--budget", "0.1")
    assert done.returncode == 0, done.stderr
    assert "- over its budget of 0.1 s" in done.stdout
    record = read_audit(workplace.path / "a" / "audit.json")
    late = [s for s in record.skipped if s.attack == "max_entropy"]
    assert {s.reason for s in late} == {"over its budget of 0.1 s"}
    assert len(late) == 3
    assert not record.failed
    refused = workplace.overheard(*words, "--out", "b", "--budget", "-1")
    assert refused.returncode == 1
    assert "a budget of -1.0 seconds; give a number above 0" in refused.stderr
