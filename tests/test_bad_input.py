"""Bad input gets one clear line that names the culprit and the remedy, and nothing is lost."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from overheard.programs.records import Records
from overheard.transcript.ledger import INDEX
from overheard.transcript.store import Recorder, Recording

pytestmark = pytest.mark.slow

Change = Callable[[Path], None]
AUDIT = "audit run --out out --attack majority --attack exact_linear".split()
ROUND = "run/messages/round-000003.safetensors"


def refused(workplace: Any, words: list[str], *expected: str, start: str = "error: ") -> str:
    """Run the command; it must fail in one line and leave every file as it was."""
    before = workplace.contents()
    done = workplace.overheard(*words)
    assert done.returncode in (1, 2), done.stdout
    lines = done.stderr.splitlines()
    (line,) = lines
    assert line.startswith(start)
    for part in expected:
        assert part in line
    assert workplace.contents() == before
    return line


def edit(file: str, old: str, new: str) -> Change:
    def change(place: Path) -> None:
        text = (place / file).read_text()
        assert old in text
        (place / file).write_text(text.replace(old, new, 1))

    return change


def cut(file: str) -> Change:
    return lambda place: (place / file).write_bytes((place / file).read_bytes()[:-9]) and None


def remove(path: str) -> Change:
    def change(place: Path) -> None:
        if (place / path).is_dir():
            shutil.rmtree(place / path)
        else:
            (place / path).unlink()

    return change


TOML = "federation.toml"
SIMULATE = ["simulate", TOML, "--out", "new"]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (remove(TOML), ["federation.toml: cannot be read"]),
        (edit(TOML, "[model]", "[model"), ["federation.toml: is not TOML", "line"]),
        (edit(TOML, "rounds", "roundz"), ["unknown key training.'roundz'", "mean 'rounds'?"]),
        (remove("people.csv"), ["people.csv: no such file", "`path`"]),
        (edit("people.csv", "\n", ",z\n"), ["people.csv: cannot be read"]),
        (edit(TOML, '["s"]', '["sex"]'), ["no column 'sex'", "columns: x0, x1, s, y, at"]),
        (edit("people.csv", "site 0", "a/b"), ["client name 'a/b' is not allowed; use"]),
    ],
)
def test_simulate(workplace: Any, change: Change, expected: list[str]) -> None:
    change(workplace.path)
    refused(workplace, SIMULATE, *expected)


@pytest.mark.parametrize(
    ("change", "culprit", "remedy"),
    [
        (remove("run"), "run: no such recording", "`overheard simulate` makes one"),
        (remove("run/messages"), "messages/index.jsonl: cannot be read", "is this a recording?"),
        (cut(ROUND), f"{ROUND}: has ", "it is truncated or was changed; restore it from a copy"),
        (remove("run/truth"), "run/truth: missing, so nothing can be scored", "attacks can still"),
    ],
)
def test_audit_of_a_damaged_recording(
    workplace: Any, change: Change, culprit: str, remedy: str
) -> None:
    change(workplace.path)
    refused(workplace, AUDIT, culprit, remedy)


def test_verify_names_the_broken_file(workplace: Any) -> None:
    cut(ROUND)(workplace.path)
    refused(workplace, ["verify", "run"], ROUND, start="damaged: ")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--threat", "eavesdroper"], ["unknown threat model 'eavesdroper'", "'eavesdropper'?"]),
        (["--attack", "max_entropi"], ["unknown attack 'max_entropi'", "mean 'max_entropy'?"]),
        (["--client", "site 9"], ["no client 'site 9'", "there are site 0, site 1"]),
        (["--target", "x0"], ["no target 'x0'", "it has attribute.s, local_model"]),
        (["--thret", "server"], ["No such option", "'--threat'", "See `overheard audit --help`"]),
        (["--seed", "many"], ["--seed", "'many'", "See `overheard audit --help`"]),
    ],
)
def test_names_that_do_not_exist(workplace: Any, words: list[str], expected: list[str]) -> None:
    refused(workplace, ["audit", "run", "--out", "out", *words], *expected)


def test_an_adversary_who_hears_no_link(workplace: Any) -> None:
    """Who needs one is refused and told who hears it; guesses alone measure nothing."""
    words = ["--threat", "secure-server", "--target", "local_model"]
    audit = ["audit", "run", "--out", "out", *words]
    why = "attack 'last_returned' needs Messages; the threat model 'secure-server' gives"
    refused(workplace, [*audit, "--quiet", "--attack", "last_returned"], why, "granted by: eaves")
    done = workplace.done(*audit)
    said = " ".join(done.stdout.split())
    assert why in said
    assert "was not measured: no attack on the updates was run, only baselines" in said
    record = json.loads((workplace.path / "out" / "audit.json").read_text())
    assert {f["attack"] for f in record["findings"]} == {"global_model"}


@pytest.mark.parametrize("words", [["simulate", "--out", "x"], ["audit", "run"], ["nothing"]])
def test_usage(workplace: Any, words: list[str]) -> None:
    refused(workplace, words, "See `overheard")


def test_nothing_is_overwritten(workplace: Any) -> None:
    (workplace.path / "out").write_text("precious")
    for words in (AUDIT, ["simulate", TOML, "--out", "out"], ["demo", "--out", "out"]):
        refused(workplace, words, "out exists already; choose another path")


def test_a_report_is_never_overwritten(workplace: Any) -> None:
    workplace.done(*AUDIT[:5], "majority")
    (workplace.path / "page.html").write_text("precious")
    words = ["report", "out/audit.json", "--out", "page.html"]
    refused(workplace, words, "page.html", "exists already", "choose another")


# --- recordings that are whole but cannot be used ---------------------------------------------


def again(workplace: Any) -> None:
    """The recording of two clients only, which return the same."""
    run = workplace.path / "run"
    old = Recording.open(run)
    observed = list(old.releases("site 0"))
    with Recorder(workplace.path / "again", old.payload, old.about) as recorder:
        recorder.truth(old.truth())
        recorder.side("ClientProgram", old.side("ClientProgram"))
        for entry, sent, back in observed:
            recorder.round(entry.number, sent, {"site 0": back, "site 1": back})
    shutil.rmtree(run)
    (workplace.path / "again").rename(run)


def test_a_client_that_never_takes_part(workplace: Any) -> None:
    again(workplace)
    one = ["--client", "site 2"]
    words = "client 'site 2' never took part; there is nothing to listen to: record more rounds"
    refused(workplace, [*AUDIT, *one, "--quiet"], "run: no attack could run", words)
    done = workplace.done(*AUDIT)
    assert words in " ".join(done.stdout.split())
    record = json.loads((workplace.path / "out" / "audit.json").read_text())
    assert {f["client"] for f in record["findings"]} == {"site 0", "site 1"}
    assert {s["client"] for s in record["skipped"]} == {"site 2"}


def test_an_unfinished_recording_is_audited_as_far_as_it_goes(workplace: Any) -> None:
    index = workplace.path / "run" / "messages" / INDEX
    index.write_bytes(index.read_bytes()[:-200])
    checked = workplace.overheard("verify", "run")
    assert checked.returncode == 1
    assert "unfinished: run/messages/index.jsonl: not closed" in checked.stderr
    assert "run: unfinished" in checked.stdout
    workplace.done(*AUDIT)
    record = json.loads((workplace.path / "out" / "audit.json").read_text())
    assert record["run"]["rounds"] == 7
    assert record["run"]["closed"] is False
    assert record["notes"]


def test_a_recording_without_rounds(workplace: Any) -> None:
    shutil.rmtree(workplace.path / "run")
    with Recorder(workplace.path / "run") as recorder:
        recorder.truth({"a": Records({"x": np.zeros(2)})})
    refused(workplace, AUDIT, "run: no round was recorded")
