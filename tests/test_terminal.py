"""What commands say: plain into a pipe, quiet, as JSON; explaining, comparing and examining."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE

from overheard.attacks import all_attacks
from overheard.terminal import take_flags

pytestmark = pytest.mark.slow

QUICK = ["--attack", "exact_linear", "--attack", "majority", "--attack", "max_entropy"]


@pytest.fixture
def audited(workplace: Any) -> Any:
    workplace.done("audit", "run", "--out", "a", *QUICK)
    return workplace


@pytest.fixture(scope="module")
def piped(_recorded: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """An audit in a process of its own, into a pipe."""
    out = tmp_path_factory.mktemp("piped") / "a"
    return _recorded.process("audit", "run", "--out", str(out), *QUICK)


def test_into_a_pipe_lines_are_plain_and_whole(piped: Any) -> None:
    done = piped
    assert done.returncode == 0
    assert not set("\x1b━│┃╇…") & set(done.stdout + done.stderr)  # no bar
    header, *rows = [line.split("\t") for line in done.stdout.splitlines() if "\t" in line]
    assert header[:2] == ["question", "attack"]
    assert {len(row) for row in rows} == {len(header)}
    assert "max_entropy" in {row[1] for row in rows}
    sentences = [line for line in done.stdout.splitlines() if line.startswith("- ")]
    assert all(line.endswith(".") for line in sentences)


def test_into_a_pipe_every_step_is_said_when_it_begins(workplace: Any, piped: Any) -> None:
    """Clients by name, and what comes last; what a listener of the pipe can wait for."""
    lines = piped.stderr.splitlines()
    assert all(line.startswith("auditing ") and line.endswith(" done)") for line in lines)
    said = [line.removeprefix("auditing ").partition(" (")[0] for line in lines]
    for target in ("local_model", "attribute.s"):
        for client in ("site 0", "site 1", "site 2"):
            assert f"{target} of {client}" in said
    assert "attribute.s, by rounds: max_entropy" in said
    assert len(set(lines)) == len(lines)
    for flag in ("--quiet", "--json"):
        assert workplace.overheard("audit", "run", "--out", flag[2:], flag, *QUICK).stderr == ""


def on_a_terminal(workplace: Any, *words: str, **environment: str) -> str:
    """What a person sees: the command with a terminal for stdout and stderr."""
    ours, theirs = pty.openpty()
    command = [str(Path(sys.executable).with_name("overheard")), *words]
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    env |= {"TERM": "xterm-256color", "COLUMNS": "120", **environment}
    process = subprocess.Popen(command, cwd=workplace.path, env=env, stdout=theirs, stderr=theirs)
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(ours)
    assert process.wait(PATIENCE) == 0
    return seen.decode()


def test_on_a_terminal_there_are_tables_bars_and_colours(workplace: Any) -> None:
    seen = on_a_terminal(workplace, "audit", "run", "--out", "a", *QUICK)
    assert "━" in seen
    assert "0:00:0" in seen  # the time left
    assert "\x1b[1m" in seen or "\x1b[3" in seen
    plain = on_a_terminal(workplace, "attacks", NO_COLOR="1")
    assert "\x1b[3" not in plain


@pytest.mark.parametrize("place", [0, 1, 99])
def test_quiet_leaves_the_path_only(audited: Any, place: int) -> None:
    words = ["report", "a/audit.json", "--out", "r.html"]
    words.insert(place, "--quiet")
    done = audited.overheard(*words)
    assert (done.returncode, done.stdout, done.stderr) == (0, "r.html\n", "")


def test_flags_after_two_dashes_are_words() -> None:
    assert take_flags(["x", "--json", "--", "--quiet"]) == ["x", "--", "--quiet"]
    assert take_flags(["x"]) == ["x"]


def test_json_is_one_object(workplace: Any) -> None:
    done = workplace.overheard("audit", "run", "--out", "a", "--json", *QUICK)
    told = json.loads(done.stdout)
    assert told["audit"] == "a/audit.json"
    assert {s["secret"] for s in told["secrets"]} == {"s", "own model"}
    assert "rows" not in done.stdout
    listed = json.loads(workplace.overheard("attacks", "--json").stdout)
    assert {a["name"] for a in listed} == set(all_attacks())
    sound = json.loads(workplace.overheard("--json", "verify", "run").stdout)
    assert sound["state"] == "sound"


def test_the_doctor(workplace: Any) -> None:
    done = workplace.done("doctor")
    for word in ("python\t", "overheard\t", "torch\t", "flower\t", "randhie\t"):
        assert word in done.stdout
    told = json.loads(workplace.overheard("doctor", "--json").stdout)
    assert told["packages"]["overheard"]
    assert {"flower", "nvflare", "dp", "ray", "xgboost"} <= set(told["extras"])


def changed_audit(audited: Any, name: str, run: dict[str, Any], **figures: float) -> str:
    """The audit again, of another run and with other figures of max_entropy."""
    record = json.loads((audited.path / "a/audit.json").read_text())
    record["run"] |= run
    for part in (*record["pooled"], *record["findings"]):
        part |= figures if part["attack"] == "max_entropy" else {}
    (audited.path / name).write_text(json.dumps(record))
    return name


def test_compare_the_same_and_a_rise(audited: Any) -> None:
    same = audited.done("compare", "a/audit.json", "a/audit.json", "--clients")
    assert "no rise" in same.stdout
    recipe = json.loads((audited.path / "a/audit.json").read_text())["run"]["recipe"]
    run = {"recipe": recipe | {"epochs": 5}}
    less = {"value": 0.6, "low": 0.55, "high": 0.65, "lift": 0.05, "n": 100_000}
    more = {"value": 0.9, "low": 0.85, "high": 0.95, "lift": 0.35, "n": 100_000}
    b = changed_audit(audited, "b.json", run, **less)
    c = changed_audit(audited, "c.json", run, **more)
    risen = audited.overheard("compare", b, c)
    assert risen.returncode == 1
    assert "leakage rose: s\n" in risen.stdout
    assert re.search(r"\+30.0 points\t\+\d+.\d to \+\d+.\d\trose", risen.stdout)
    fallen = audited.done("compare", c, b, "--json")
    told = json.loads(fallen.stdout)
    assert {row["secret"]: row["change"] for row in told["rows"]}["s"] == "fell"
    assert "epochs\t1\t5" in audited.overheard("compare", "a/audit.json", b).stdout
    other = changed_audit(audited, "d.json", {"threat": "server"})
    refused = audited.overheard("compare", b, other)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: not comparable: ")
    assert audited.overheard("compare", b, other, "--anyway").returncode in (0, 1)
