"""An audit that was stopped goes on, ends the same, and nobody else writes there meanwhile."""

from __future__ import annotations

import fcntl
import json
from typing import Any

import pytest
from report_words import without_seconds
from stopping import stopped_after

from overheard.evaluation import parts

pytestmark = pytest.mark.slow

ATTACKS = "exact_linear", "majority", "max_entropy", "sum_decode"
QUICK = ["--no-ladder", *(f"--attack={name}" for name in ATTACKS)]
AUDIT = ["audit", "run", "--out", "out", *QUICK]


def test_a_stopped_audit_goes_on_and_ends_the_same(
    workplace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    workplace.done("audit", "run", "--out", "whole", *QUICK)
    text = without_seconds((workplace.path / "whole" / "audit.json").read_text())
    whole = json.loads(text)
    assert whole["curves"]
    assert whole["skipped"]
    launched: list[tuple[str, str]] = []
    real = parts.launch  # type: ignore[attr-defined]

    def launch(attack: Any, view: Any, seed: int) -> Any:
        launched.append((attack.name, view.client))
        return real(attack, view, seed)

    monkeypatch.setattr(parts, "launch", launch)
    for pieces in (2, 2, 2):
        with stopped_after(pieces):
            done = workplace.overheard(*AUDIT)
        assert done.returncode == 130
        assert [p.name for p in (workplace.path / "out").iterdir()] == ["unfinished"]
    stopped = len(launched)
    workplace.done(*AUDIT)
    assert without_seconds((workplace.path / "out" / "audit.json").read_text()) == text
    assert {p.name for p in (workplace.path / "out").iterdir()} == {"audit.json", "report.html"}
    assert stopped == 12 + 3 + 1  # once each, and again what the lost piece held
    assert len(launched) == stopped + len(whole["curves"])  # which come last
    assert "out exists already; choose another path" in workplace.refused(*AUDIT)


def test_a_full_disk_ends_the_audit_with_one_line_and_keeps_what_was_found(workplace: Any) -> None:
    with stopped_after(4, OSError(28, "No space left on device", "out/x")):
        done = workplace.overheard(*AUDIT)
    assert done.returncode == 1
    (line,) = (line for line in done.stderr.splitlines() if not line.startswith("auditing "))
    assert line == (
        "error: out/x: No space left on device; what was found so far is kept in out: mend that "
        "and give the same command again"
    )
    assert workplace.overheard(*AUDIT).returncode == 0
    assert {p.name for p in (workplace.path / "out").iterdir()} == {"audit.json", "report.html"}


def test_two_audits_of_one_output(workplace: Any) -> None:
    with stopped_after(2):
        workplace.overheard(*AUDIT)
    before = workplace.contents()
    with (workplace.path / "out" / "unfinished" / ".lock").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = workplace.overheard(*AUDIT)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "another audit is writing there; wait for it or choose another folder" in line
    assert workplace.contents() == before
    assert workplace.overheard(*AUDIT).returncode == 0


def test_an_unfinished_audit_of_something_else_is_kept(
    workplace: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other options, another recording, another version."""
    workplace.done("simulate", "federation.toml", "--out", "new", "--seed", "3")
    with stopped_after(1):
        workplace.overheard(*AUDIT)
    before = workplace.contents()
    for more, differs in (
        (["--seed", "1"], "seed"),
        (["--client", "site 1"], "client"),
        (["--no-rounds"], "rounds"),
        (["--threat", "server"], "threat"),
    ):
        done = workplace.refused(*AUDIT, *more)
        assert f"out holds an unfinished audit that differs in {differs};" in done
    assert workplace.overheard(*AUDIT, "--threat", "nobody").returncode == 1
    monkeypatch.setattr("overheard.cli.audit.version", lambda name: "another")
    done = workplace.overheard("audit", "new", "--out", "out", *QUICK)
    assert "differs in recording, version of overheard;" in done.stderr
    assert workplace.contents() == before


def test_stopped_before_it_began(workplace: Any) -> None:
    """Between the folder and what is in it; a folder with anything else in it is not ours."""
    (workplace.path / "out").mkdir()
    assert workplace.overheard(*AUDIT).returncode == 0
    (workplace.path / "out2").mkdir()
    (workplace.path / "out2" / "notes.txt").write_text("mine")
    done = workplace.overheard("audit", "run", "--out", "out2", *QUICK)
    assert "out2 exists already" in done.stderr


def test_an_audit_that_never_began_leaves_no_folder(workplace: Any) -> None:
    """Whether the user has something to mend or the disk is full before anything was found."""
    words = ["audit", "run", "--out", "some/where/new"]
    before = workplace.contents()
    assert workplace.overheard(*words, "--threat", "nobody").returncode == 1
    assert workplace.contents() == before
    with stopped_after(0, OSError(28, "No space left on device", "some/where/new/x")):
        done = workplace.overheard(*words, *QUICK)
    assert "\nerror: some/where/new/x: No space left on device; make room" in done.stderr
    assert workplace.contents() == before
