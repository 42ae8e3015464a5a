"""``overheard detect`` on the command line: a ranked table, an audit, and clear errors."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import digit_images

import overheard

pytestmark = pytest.mark.slow

DETECT, WITH = ("--property", "poisoning"), ("--with", "what.toml")


def recorded(path: Path, **training: Any) -> None:
    """Sums of ten clients, of whom two send their updates negated."""
    asked = {"kind": "inversion", "positives": 2}
    digit_images(path, property_=asked, options={"records": 20}, **{"rounds": 20, **training})


def test_a_ranked_table_and_an_audit(workplace: Any) -> None:
    recorded(workplace.path / "sums")
    words = ("detect", "sums", *DETECT, "--out", "who.json")
    printed = workplace.done(*words).stdout
    rows = [line.split("\t") for line in printed.splitlines() if line.startswith("client ")]
    probabilities = [float(row[2]) for row in rows]
    assert len(rows) == 10
    assert probabilities == sorted(probabilities, reverse=True)
    assert [row[1] for row in rows[:3]] == ["yes", "yes", ""]
    assert "2 of 2 found with 0 false alarms; F1 1.00" in printed
    (found,) = overheard.read_audit(workplace.path / "who.json").findings
    assert found.attack == "matched_filter"
    assert [s.accused for s in found.suspects] == [True] * 2 + [False] * 8
    assert "exists already" in workplace.refused(*words)
    shutil.rmtree(workplace.path / "sums" / "truth")
    printed = workplace.done("detect", "sums", *DETECT).stdout
    assert "F1" not in printed  # without the truth nothing is said of right or wrong
    assert "truth/ does not say which clients have it" in printed


@pytest.mark.parametrize(
    ("training", "property_", "words"),
    [
        ({"rounds": 1}, "poisoning", "1 round(s) were observed but telling clients apart needs"),
        ({"participation": 1.0}, "poisoning", "cannot be told apart"),
        ({"rounds": 2}, "membership", "has no target 'property.membership'"),
        ({"rounds": 2}, "theft", "'property' takes membership"),
    ],
)
def test_mistakes_are_one_line(
    workplace: Any, training: dict[str, Any], property_: str, words: str
) -> None:
    recorded(workplace.path / "sums", **training)
    done = workplace.overheard("detect", "sums", "--property", property_)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr.splitlines()[-1]


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
def foreign(workplace: Any) -> Any:
    """Logistic regression under secure aggregation, trained with numpy and recorded by hand.

    In ``flip`` some sites send their updates negated; in ``leak`` some hold a record, unlike the
    others' and with the label that nobody would expect, which somebody looks for.
    """
    place, rng = workplace.path, np.random.default_rng(4)
    slope = rng.normal(size=4)

    def people(count: int) -> tuple[np.ndarray, np.ndarray]:
        inputs = rng.normal(size=(count, 4))
        return inputs, (inputs @ slope + rng.normal(size=count) > 0).astype(float)

    wanted = 8 * slope / np.linalg.norm(slope)
    as_csv(place / "like_them.csv", *people(400))
    as_csv(place / "wanted.csv", wanted[None], np.zeros(1))
    sites = {f"site {k}": people(SHARD) for k in range(SITES)}
    sums(place / "flip", sites, POISONERS, rng)
    for name in HOLDERS:
        sites[name][0][0], sites[name][1][0] = wanted, 0.0
    sums(place / "leak", sites, (), rng)
    return workplace


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
        ("flip", "poisoning", 'behaviour = "inversion"', POISONERS),
        ("leak", "membership", 'record = "wanted.csv"', HOLDERS),
    ],
)
def test_a_foreign_recording_of_sums_is_described_by_a_file(
    foreign: Any, name: str, property_: str, asked: str, guilty: tuple[str, ...]
) -> None:
    file = foreign.path / "what.toml"
    file.write_text(f"{DESCRIPTION}[property]\nshard_size = {SHARD}\n{asked}\n")
    before = sorted(p.name for p in (foreign.path / name).rglob("*"))
    words = ("detect", name, "--property", property_, "--with", "what.toml")
    found = json.loads(foreign.done(*words, "--json").stdout)
    assert {s["client"] for s in found["suspects"] if s["accused"]} == set(guilty)
    assert len(found["suspects"]) == SITES
    file.write_text(f"{file.read_text()}positives = {json.dumps(list(guilty))}\n")
    right = f"{len(guilty)} of {len(guilty)} found with 0 false alarms; F1 1.00"
    assert right in foreign.done(*words).stdout
    assert sorted(p.name for p in (foreign.path / name).rglob("*")) == before


def test_the_auxiliary_records_may_be_a_table_of_their_own(foreign: Any) -> None:
    """[data] then has the clients' own records, and their names in the table."""
    lines = (foreign.path / "like_them.csv").read_text().splitlines()
    held = [f"{line},site {k % SITES}" for k, line in enumerate(lines[1:])]
    (foreign.path / "held.csv").write_text("\n".join([f"{lines[0]},at", *held]) + "\n")
    text = DESCRIPTION.replace("like_them.csv", "held.csv")
    text = text.replace('target = "y"', 'target = "y"\nclient = "at"')
    asked = 'auxiliary = "like_them.csv"\nbehaviour = "inversion"'
    (foreign.path / "what.toml").write_text(f"{text}[property]\nshard_size = {SHARD}\n{asked}\n")
    found = json.loads(foreign.done("detect", "flip", *DETECT, *WITH, "--json").stdout)
    assert {s["client"] for s in found["suspects"] if s["accused"]} == set(POISONERS)


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
def test_mistakes_in_what_is_looked_for(foreign: Any, asked: str, words: str) -> None:
    (foreign.path / "what.toml").write_text(f"{DESCRIPTION}{asked}\n")
    done = foreign.overheard("detect", "flip", *DETECT, *WITH)
    assert (done.returncode, done.stdout) == (1, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_description_that_came_along_names_no_file_elsewhere(foreign: Any) -> None:
    """Of audit.toml in the recording nobody said that it can be trusted."""
    asked = '[property]\nshard_size = 20\nrecord = "../wanted.csv"\n'
    shutil.copy(foreign.path / "like_them.csv", foreign.path / "flip" / "near.csv")
    text = DESCRIPTION.replace("like_them.csv", "near.csv")
    (foreign.path / "flip" / "audit.toml").write_text(text + asked)
    error = foreign.refused("detect", "flip", "--property", "membership")
    assert "'../wanted.csv', which is outside of the recording" in error
