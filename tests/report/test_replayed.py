"""Whether the clients trained as declared stands beside the verdict, wherever that is."""

from __future__ import annotations

import re

import pytest

from overheard.cli import audit as command
from overheard.evaluation.record import Audit, Replay
from overheard.report.digest import digest
from overheard.report.html import render
from overheard.report.markdown import render_markdown
from overheard.report.replayed import replay_lines, replay_words

FITS = Replay(client="a", outcome="fits", rounds=(0, 3), round=3, off=1e-7, by_chance=0.0)
NEAR = Replay(client="b", outcome="fits", rounds=(0, 3, 5), round=0, off=0.05, by_chance=0.06)
UNFIT = Replay(client="c", outcome="does not fit", rounds=(0,), round=0, off=0.5, by_chance=0.02)
HIDDEN = Replay(client="d", outcome="cannot be checked", reason="single updates are hidden")


def words_of(audit: Audit, *replays: Replay) -> str:
    return replay_words(audit.model_copy(update={"replays": replays}))


def test_every_outcome_in_words(audit: Audit) -> None:
    said = words_of(audit, FITS, FITS)
    assert said.startswith(
        "Replayed on their own records under the declared recipe, 2 of 2 clients"
    )
    assert "to less than 0.0001% of an update (4 messages compared)" in said
    assert "as closely as chance" in words_of(audit, NEAR)
    assert "or as closely as chance" in words_of(audit, FITS, NEAR)
    said = words_of(audit, FITS, UNFIT, HIDDEN)
    assert said.startswith("1 of 3 clients did not train as declared")
    assert "c (off by 50% of its update in round 0, where chance leaves replays up to 2.0%" in said
    assert "that they find little about these clients says nothing" in said
    assert said.endswith("1 could not be checked (single updates are hidden).")
    said = words_of(audit, HIDDEN, HIDDEN)
    assert said.startswith("Whether the clients trained as declared cannot be checked (single")
    assert words_of(audit).startswith("Whether the clients trained as declared was not checked")


def test_one_line_a_client_the_unfit_first(audit: Audit) -> None:
    found = replay_lines(audit.model_copy(update={"replays": (FITS, HIDDEN, UNFIT)}))
    assert [client for client, _ in found] == ["c", "d", "a"]
    assert found[0][1].startswith("does not fit: off by 50%")
    assert found[1][1] == "cannot be checked: single updates are hidden"


def test_it_stands_in_the_section_of_the_verdict(audit: Audit) -> None:
    hostile = UNFIT.model_copy(update={"client": "<b>c</b>"})
    checked = audit.model_copy(update={"replays": (FITS, hostile)})
    page = render(checked)
    section = re.search(r'<section id="verdict".*?</section>', page, re.S)
    assert section is not None
    assert "1 of 2 clients did not train as declared" in section[0]
    assert "<dt>&lt;b&gt;c&lt;/b&gt;</dt><dd>does not fit: off by 50%" in section[0]
    verdict = render_markdown(checked).split("## Verdict")[1].split("\n## ")[0]
    assert "1 of 2 clients did not train as declared" in verdict
    told = digest(checked)["replayed"]
    assert told["sentence"] == replay_words(checked)
    assert told["clients"] == {"a": "fits", "<b>c</b>": "does not fit"}


def test_the_terminal_says_it_and_warns(audit: Audit, capsys: pytest.CaptureFixture[str]) -> None:
    command.summary(audit.model_copy(update={"replays": (FITS,)}))
    said = capsys.readouterr()
    assert "1 of 1 client returned what the recipe leads to" in " ".join(said.out.split())
    command.summary(audit.model_copy(update={"replays": (UNFIT,)}))
    said = capsys.readouterr()
    assert "1 of 1 client did not train as declared" in said.err
