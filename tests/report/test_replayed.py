"""Whether the clients trained as declared stands beside the verdict, wherever that is."""

from __future__ import annotations

import pytest
from report_words import section

from overheard.cli import audit as command
from overheard.evaluation.record import Audit, Replay
from overheard.report.digest import digest
from overheard.report.html import render
from overheard.report.markdown import render_markdown
from overheard.report.verdict import replay_lines, replay_words

FITS = Replay(client="a", outcome="fits", rounds=(0, 3), round=3, off=1e-7, by_chance=0.0)
NEAR = Replay(client="b", outcome="fits", rounds=(0, 3, 5), round=0, off=0.05, by_chance=0.06)
UNFIT = Replay(client="c", outcome="does not fit", rounds=(0,), round=0, off=0.5, by_chance=0.02)
HIDDEN = Replay(client="d", outcome="cannot be checked", reason="single updates are hidden")


@pytest.mark.parametrize(
    ("replays", "words"),
    [
        ((FITS, FITS), ["2 of 2 clients", "less than 0.0001% of an update (4 messages compared)"]),
        ((NEAR,), ["as closely as chance"]),
        ((FITS, NEAR), ["or as closely as chance"]),
        ((FITS, UNFIT, HIDDEN), [
            "1 of 3 clients did not train as declared", "says nothing",
            "c (off by 50% of its update in round 0, where chance leaves replays up to 2.0%",
            "1 could not be checked (single updates are hidden)."]),
        ((HIDDEN, HIDDEN), ["cannot be checked (single"]),
        ((), ["was not checked"]),
    ],
)  # fmt: skip
def test_every_outcome_in_words(
    audit: Audit, replays: tuple[Replay, ...], words: list[str]
) -> None:
    said = replay_words(audit.model_copy(update={"replays": replays}))
    assert [part for part in words if part not in said] == []


def test_one_line_a_client_the_unfit_first(audit: Audit) -> None:
    found = replay_lines(audit.model_copy(update={"replays": (FITS, HIDDEN, UNFIT)}))
    assert [client for client, _ in found] == ["c", "d", "a"]
    assert found[0][1].startswith("does not fit: off by 50%")
    assert found[1][1] == "cannot be checked: single updates are hidden"


def test_it_stands_in_the_section_of_the_verdict(audit: Audit) -> None:
    hostile = UNFIT.model_copy(update={"client": "<b>c</b>"})
    checked = audit.model_copy(update={"replays": (FITS, hostile)})
    page = render(checked)
    assert "1 of 2 clients did not train as declared" in section(page, "verdict")
    assert "<dt>&lt;b&gt;c&lt;/b&gt;</dt><dd>does not fit: off by 50%" in section(page, "verdict")
    verdict = render_markdown(checked).split("## Verdict")[1].split("\n## ")[0]
    assert "1 of 2 clients did not train as declared" in verdict
    told = digest(checked)["replayed"]
    assert told["sentence"] == replay_words(checked)
    assert told["clients"] == {"a": "fits", "<b>c</b>": "does not fit"}


def test_the_terminal_says_it_and_warns(audit: Audit, capsys: pytest.CaptureFixture[str]) -> None:
    for replay in (FITS, UNFIT):
        command.summary(audit.model_copy(update={"replays": (replay,)}))
    said = capsys.readouterr()
    assert "1 of 1 client returned" in " ".join(said.out.split())
    assert "1 of 1 client did not train as declared" in said.err
