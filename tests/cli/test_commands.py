"""Every command: from a config to a report in real processes, and what --help says."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from patience import PATIENCE

from overheard.cli import app

pytestmark = pytest.mark.slow

COMMANDS = [str(command.name) for command in app.registered_commands]
QUICK = ["--attack", "exact_linear", "--attack", "majority", "--attack", "max_entropy"]


def test_from_a_config_to_a_report(workplace: Any) -> None:
    simulated = workplace.process("simulate", "federation.toml", "--out", "new")
    assert simulated.returncode == 0, simulated.stderr
    assert "recording  new" in simulated.stdout
    files = {p.name: p.read_bytes() for p in (workplace.path / "new" / "messages").iterdir()}
    same = {p.name: p.read_bytes() for p in (workplace.path / "run" / "messages").iterdir()}
    assert files == same  # the same seed in another process, the same bits

    checked = workplace.done("verify", "new")
    assert checked.stdout == "new: sound (15 files, 8 rounds)\n"
    assert checked.stderr == ""

    audited = workplace.process("audit", "new", "--out", "out", *QUICK)
    assert audited.returncode == 0, audited.stderr
    assert "what the eavesdropper learns" in audited.stdout
    record = json.loads((workplace.path / "out" / "audit.json").read_text())
    assert record["run"]["recording"] == "new"
    found = {(f["attack"], f["client"]) for f in record["findings"]}
    sites = [f"site {k}" for k in range(3)]
    names = [a for a in QUICK if not a.startswith("--")]
    assert found == {(a, c) for a in names for c in sites}

    page = (workplace.path / "out" / "report.html").read_text()
    workplace.done("report", "out/audit.json", "--out", "again.html")
    assert (workplace.path / "again.html").read_text() == page
    assert page.lstrip().lower().startswith("<!doctype html>")
    assert "max_entropy" in page or "max entropy" in page.lower()
    assert str(workplace.path) not in page


def test_the_seed_option_overrides_the_config(workplace: Any) -> None:
    workplace.done("simulate", "federation.toml", "--out", "other", "--seed", "9")
    first = "messages/round-000000.safetensors"
    contents = workplace.contents()
    assert contents[f"run/{first}"] != contents[f"other/{first}"]
    (noted,) = (workplace.path / "other/truth").glob("*-seed.json")
    assert noted.read_text() == '{"seed":"9"}'
    assert "seed" not in (workplace.path / "other/messages/index.jsonl").read_text()


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(workplace: Any, command: str) -> None:
    done = workplace.done(*command.split(), "--help")
    assert f"Example: overheard {command}" in " ".join(done.stdout.split())
    assert done.stderr == ""


def test_help_lists_every_command(workplace: Any) -> None:
    done = workplace.done("--help")
    listed = set(re.findall(r"^. +([a-z]+) ", done.stdout, re.MULTILINE))
    assert set(COMMANDS) <= listed
    assert "--install-completion" in done.stdout
    bare = workplace.overheard()
    assert bare.returncode == 2
    assert "Usage: overheard" in bare.stdout + bare.stderr


@pytest.mark.parametrize("words", [["audit", "nowhere", "--out", "x"], ["verify", "nowhere"]])
def test_debug_shows_where_it_happened(workplace: Any, words: list[str]) -> None:
    quiet, loud = workplace.overheard(*words), workplace.process("--debug", *words)
    assert quiet.returncode == loud.returncode == 1
    assert "Traceback" not in quiet.stderr
    assert "Traceback" in loud.stderr
    assert "FixRecording: nowhere: no such recording" in loud.stderr


def test_an_interrupt_is_no_traceback_and_keeps_the_rounds(workplace: Any) -> None:
    config = workplace.path / "federation.toml"
    config.write_text(config.read_text().replace("rounds = 8", "rounds = 1000000"))
    command = [str(Path(sys.executable).with_name("overheard")), "simulate", str(config)]
    process = subprocess.Popen(
        [*command, "--out", "long"],
        cwd=workplace.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # a shell's background jobs ignore interrupts, and so would what they start
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    index = workplace.path / "long" / "messages" / "index.jsonl"
    deadline = time.monotonic() + PATIENCE
    try:
        while not index.exists() or index.read_bytes().count(b"\n") < 5:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        with process:  # closes its pipes and waits, or a later test is blamed for them
            pass
    assert process.returncode == 130
    assert stderr.splitlines()[-1] == "stopped; what was finished is kept"
    assert "Traceback" not in stderr
    checked = workplace.overheard("verify", "long")
    assert checked.returncode == 1
    assert "damaged" not in checked.stdout + checked.stderr
    assert "long: unfinished" in checked.stdout
