"""``overheard detect`` on the command line: a ranked table, an audit, and clear errors."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import overheard
from overheard.cli import main

pytestmark = pytest.mark.slow

CONFIG = """
[data]
source = "digits_images"
options = {{ clients = 10, records = 20, auxiliary = 300 }}
[model]
name = "logistic"
[training]
rounds = {rounds}
learning_rate = 0.01
participation = {participation}
[property]
kind = "{kind}"
positives = {positives}
[[defence]]
name = "secure_sum"
dropout_rate = {dropout}
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The program as started in a shell: exit code, what it printed, what it complained about."""

    def start(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["overheard", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return start


@pytest.fixture
def record(tmp_path: Path, run: Run) -> Callable[..., Path]:
    def make(**settings: object) -> Path:
        usual: dict[str, object] = {"rounds": 20, "participation": 0.4, "kind": "inversion"}
        usual |= {"positives": 2, "dropout": 0.0}
        file = tmp_path / "federation.toml"
        file.write_text(CONFIG.format(**(usual | settings)))
        out = tmp_path / "run"
        code, _, complaint = run("simulate", file, "--out", out)
        assert code == 0, complaint
        return out

    return make


def test_a_ranked_table_and_an_audit(record: Callable[..., Path], run: Run, tmp_path: Path) -> None:
    recording = record()
    out = tmp_path / "who.json"
    options = ("--property", "poisoning", "--out", out)
    code, printed, complaint = run("detect", recording, *options)
    assert code == 0, complaint
    rows = [line.split("\t") for line in printed.splitlines() if line.startswith("client ")]
    probabilities = [float(row[2]) for row in rows]
    assert len(rows) == 10
    assert probabilities == sorted(probabilities, reverse=True)
    assert [row[1] for row in rows[:3]] == ["yes", "yes", ""]
    assert "2 of 2 found with 0 false alarms; F1 1.00" in printed
    (found,) = overheard.read_audit(out).findings
    assert found.attack == "matched_filter"
    assert [s.accused for s in found.suspects] == [True] * 2 + [False] * 8
    code, _, complaint = run("detect", recording, *options)
    assert code == 1
    assert "exists already" in complaint
    shutil.rmtree(recording / "truth")  # without it nothing is said of right or wrong
    code, printed, complaint = run("detect", recording, "--property", "poisoning")
    assert code == 0, complaint
    assert "F1" not in printed
    assert "truth/ does not say which clients have it" in printed


@pytest.mark.parametrize(
    ("settings", "property_", "words"),
    [
        ({"rounds": 1}, "poisoning", "1 round(s) were heard but telling clients apart needs"),
        ({"participation": 1.0}, "poisoning", "cannot be told apart"),
        ({"rounds": 2}, "membership", "has no target 'property.membership'"),
        ({"rounds": 2}, "theft", "'property' takes membership"),
    ],
)
def test_mistakes_are_one_line(
    record: Callable[..., Path], run: Run, settings: dict[str, object], property_: str, words: str
) -> None:
    code, printed, complaint = run("detect", record(**settings), "--property", property_)
    assert code == 1
    assert printed == ""
    assert words in complaint.splitlines()[-1]


# --- recordings of federations that know nothing of overheard ----------------------------------

ROUNDS, SITES, SHARD, RATE = 60, 12, 20, 0.5
Sites = dict[str, tuple[np.ndarray, np.ndarray]]
POISONERS, HOLDERS = ("site 3", "site 8"), ("site 1", "site 5", "site 9")
DESCRIPTION = """
encoding = [{ column = "x0" }, { column = "x1" }, { column = "x2" }, { column = "x3" }]
[data]
source = "file"
path = "like_them.csv"
target = "y"
task = "classification"
[model]
name = "logistic"
[training]
learning_rate = 0.5
"""


def as_csv(path: Path, inputs: np.ndarray, labels: np.ndarray) -> None:
    rows = [",".join(map(repr, [*x.tolist(), int(y)])) for x, y in zip(inputs, labels, strict=True)]
    path.write_text("x0,x1,x2,x3,y\n" + "\n".join(rows) + "\n")


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """Logistic regression under secure aggregation, trained with numpy and recorded by hand.

    In ``run`` some sites send their updates negated; in ``leak`` some hold a record, unlike the
    others' and with the label that nobody would expect, which somebody looks for.
    """
    rng = np.random.default_rng(4)
    slope = rng.normal(size=4)

    def people(count: int) -> tuple[np.ndarray, np.ndarray]:
        inputs = rng.normal(size=(count, 4))
        return inputs, (inputs @ slope + rng.normal(size=count) > 0).astype(float)

    wanted = 8 * slope / np.linalg.norm(slope)
    as_csv(tmp_path / "like_them.csv", *people(400))
    as_csv(tmp_path / "wanted.csv", wanted[None], np.zeros(1))
    sites = {f"site {k}": people(SHARD) for k in range(SITES)}
    sums(tmp_path / "run", sites, POISONERS, rng)
    for name in HOLDERS:
        sites[name][0][0], sites[name][1][0] = wanted, 0.0
    sums(tmp_path / "leak", sites, (), rng)
    return tmp_path


def sums(path: Path, sites: Sites, poisoners: tuple[str, ...], rng: np.random.Generator) -> None:
    weight, bias = np.zeros(4), 0.0
    with overheard.Recorder(path) as recorder:
        for number in range(ROUNDS):
            chosen = sorted(rng.choice(SITES, 5, replace=False).tolist())
            steps = []
            for name in (f"site {k}" for k in chosen):
                inputs, labels = sites[name]
                wrong = 1 / (1 + np.exp(-(inputs @ weight + bias))) - labels
                sign = -1 if name in poisoners else 1
                steps.append(sign * RATE * np.array([*(wrong @ inputs), wrong.sum()]) / SHARD)
            recorder.sent(number, "", {"fc.weight": weight[None], "fc.bias": np.array([bias])})
            step = np.mean(steps, axis=0)
            weight, bias = weight - step[:4], bias - step[4]
            mean = {"fc.weight": weight[None], "fc.bias": np.array([bias])}
            recorder.aggregated(number, mean, [f"site {k}" for k in chosen])


@pytest.mark.parametrize(
    ("name", "property_", "asked", "guilty"),
    [
        ("run", "poisoning", 'behaviour = "inversion"', POISONERS),
        ("leak", "membership", 'record = "wanted.csv"', HOLDERS),
    ],
)
def test_a_foreign_recording_of_sums_is_described_by_a_file(
    foreign: Path, run: Run, name: str, property_: str, asked: str, guilty: tuple[str, ...]
) -> None:
    file = foreign / "what.toml"
    file.write_text(f"{DESCRIPTION}[property]\nshard_size = {SHARD}\n{asked}\n")
    before = sorted(p.name for p in (foreign / name).rglob("*"))
    options = ("detect", foreign / name, "--property", property_, "--with", file)
    code, printed, complaint = run(*options, "--json")
    assert code == 0, complaint
    found = json.loads(printed)
    assert {s["client"] for s in found["suspects"] if s["accused"]} == set(guilty)
    assert len(found["suspects"]) == SITES
    positives = json.dumps(list(guilty))
    file.write_text(f"{file.read_text()}positives = {positives}\n")
    code, printed, complaint = run(*options)
    assert code == 0, complaint
    assert f"{len(guilty)} of {len(guilty)} found with 0 false alarms; F1 1.00" in printed
    assert sorted(p.name for p in (foreign / name).rglob("*")) == before


def test_the_auxiliary_records_may_be_a_table_of_their_own(foreign: Path, run: Run) -> None:
    """[data] then has the clients' own records, and their names in the table."""
    lines = (foreign / "like_them.csv").read_text().splitlines()
    held = [f"{line},site {k % SITES}" for k, line in enumerate(lines[1:])]
    (foreign / "held.csv").write_text("\n".join([f"{lines[0]},at", *held]) + "\n")
    text = DESCRIPTION.replace("like_them.csv", "held.csv")
    text = text.replace('target = "y"', 'target = "y"\nclient = "at"')
    asked = 'auxiliary = "like_them.csv"\nbehaviour = "inversion"'
    file = foreign / "what.toml"
    file.write_text(f"{text}[property]\nshard_size = {SHARD}\n{asked}\n")
    options = ("detect", foreign / "run", "--property", "poisoning", "--with", file, "--json")
    code, printed, complaint = run(*options)
    assert code == 0, complaint
    accused = {s["client"] for s in json.loads(printed)["suspects"] if s["accused"]}
    assert accused == set(POISONERS)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("", "needs path, client and target in [data]"),
        ("[property]\nshard_size = 20", "give a record whose holders are looked for, or a"),
        ('[property]\nbehaviour = "inversion"', "give shard_size"),
        ('[property]\nshard_size = 20\nbehaviour = "theft"', "'inversion', 'ascent'"),
        ('[property]\nshard_size = 20\nrecord = "none.csv"', "none.csv: no such file"),
        (
            '[property]\nshard_size = 20\nbehaviour = "ascent"\npositives = ["site 99"]',
            "'site 99' is not in the recording",
        ),
        (
            '[property]\nshard_size = 20\nbehaviour = "ascent"\n[audit]\nattributes = ["x0"]',
            "names no client column",
        ),
    ],
)
def test_mistakes_in_what_is_looked_for(foreign: Path, run: Run, asked: str, words: str) -> None:
    file = foreign / "what.toml"
    file.write_text(f"{DESCRIPTION}{asked}\n")
    options = ("detect", foreign / "run", "--property", "poisoning", "--with", file)
    code, printed, complaint = run(*options)
    assert (code, printed) == (1, "")
    assert words in complaint
    assert complaint.count("\n") == 1


def test_a_description_that_came_along_names_no_file_elsewhere(foreign: Path, run: Run) -> None:
    """Of audit.toml in the recording nobody said that it can be trusted."""
    asked = '[property]\nshard_size = 20\nrecord = "../wanted.csv"\n'
    text = DESCRIPTION.replace("like_them.csv", "near.csv")
    (foreign / "run" / "near.csv").write_text((foreign / "like_them.csv").read_text())
    (foreign / "run" / "audit.toml").write_text(text + asked)
    code, _, complaint = run("detect", foreign / "run", "--property", "membership")
    assert code == 1
    assert "'../wanted.csv', which is outside of the recording" in complaint
