"""A recording says itself how its clients trained, or that nothing that was tried explains it."""

from __future__ import annotations

import json
import shutil
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from generated import write_csv

from overheard.data.dataset import Dataset
from overheard.identify.search import Options, held_out, identify
from overheard.programs.records import Records
from overheard.recorders.describe import describe
from overheard.recorders.recorder import Recorder
from overheard.recorders.template import possible
from overheard.transcript.store import Recording

pytestmark = pytest.mark.slow

GIVEN = ["--data", "people.csv", "--client", "at", "--target", "y", "--secret", "s"]


@pytest.fixture
def bare(workplace: Any) -> Any:
    """The messages of the recording, without what describes them."""
    shutil.copytree(workplace.path / "run" / "messages", workplace.path / "bare" / "messages")
    return workplace


def test_init_finds_the_recipe_and_the_audit_follows(bare: Any) -> None:
    """One line of code recorded it; two commands end in a report, and no TOML is typed."""
    found = bare.done("init", "bare", *GIVEN, "--json")
    assert json.loads(found.stdout)["fits"]
    shown = tomllib.loads((bare.path / "bare" / "audit.toml").read_text())
    simulated = tomllib.loads((bare.path / "federation.toml").read_text())["training"]
    assert shown["training"]["learning_rate"] == pytest.approx(simulated["learning_rate"], rel=1e-4)
    assert shown["model"]["name"] == "linear"
    words = ["--with", "bare/audit.toml", "--attack", "majority", "--out", "audit"]
    bare.done("audit", "bare", *words)
    record = json.loads((bare.path / "audit" / "audit.json").read_text())
    assert [r["outcome"] for r in record["replays"]] == ["fits"] * 3
    others = shown["audit"]["also_fits"]  # one full-batch step of momentum is one of plain SGD
    assert any("momentum" in words for words in others)
    assert any("fit as well" in note and others[0] in note for note in record["notes"])
    assert "exists already" in bare.refused("init", "bare", *GIVEN)


def test_who_is_who_is_found(bare: Any) -> None:
    """Flower knows its nodes by numbers: whose records they hold is seen in what they sent."""
    table = bare.path / "people.csv"
    names = {"site 0": "west", "site 1": "east", "site 2": "north"}
    text = table.read_text()
    for old, new in names.items():
        text = text.replace(old, new)
    table.write_text(text)
    found = bare.done("init", "bare", *GIVEN)
    assert tomllib.loads((bare.path / "bare" / "audit.toml").read_text())["clients"] == names
    assert "Replay check passed: it reproduces the messages of" in found.stdout


def test_what_nothing_explains_is_reported(bare: Any) -> None:
    """Labels that are not those that were trained on: every recipe is wrong, and called so."""
    table = bare.path / "people.csv"
    head, *lines = table.read_text().splitlines()
    place = head.split(",").index("y")
    cells = [line.split(",") for line in lines]
    shuffled = np.random.default_rng(0).permutation([c[place] for c in cells])
    for row, label in zip(cells, shuffled, strict=True):
        row[place] = str(label)
    table.write_text("\n".join([head, *map(",".join, cells)]) + "\n")
    found = bare.done("init", "bare", *GIVEN)
    assert "NONE FITS" in found.stderr
    assert "# NONE FITS" in (bare.path / "bare" / "audit.toml").read_text()


@pytest.mark.parametrize("limit", [0, 1, 7, 40])
def test_one_limit_holds_for_everything_that_is_tried(bare: Any, limit: int) -> None:
    """By a clock that advances by one with every try. The first is made in any case, and the best
    found so far is given; what was not tried is listed."""
    data = {"source": "file", "path": str(bare.path / "people.csv"), "client": "at", "target": "y"}
    given, tries = {"data": data, "audit": {"attributes": ["s"]}}, list[str]()
    options = Options(
        seconds=limit, clock=lambda: len(tries), show=lambda what, *_: tries.append(what)
    )
    found = identify(Recording.open(bare.path / "bare"), given, options)
    assert len(tries) == max(limit, 1)
    assert found.skipped
    assert found.ranking
    assert len(found.fits) == 3


def test_what_was_not_tried_is_written(bare: Any) -> None:
    bare.done("init", "bare", *GIVEN, "--minutes", "0")
    assert "did not try" in (bare.path / "bare" / "audit.toml").read_text()


def test_a_table_with_gaps_is_refused_with_an_option_that_works(bare: Any) -> None:
    table = bare.path / "people.csv"
    head, first, *lines = table.read_text().splitlines()
    table.write_text("\n".join([head, "," + first.partition(",")[2], *lines]) + "\n")
    asked = ["init", "bare", *GIVEN, "--minutes", "0"]
    assert '--missing "" --missing NA' in bare.refused(*asked)
    bare.done(*asked, "--missing", "", "--missing", "NA")
    shown = tomllib.loads((bare.path / "bare" / "audit.toml").read_text())
    assert shown["data"]["missing"] == ["", "NA"]


def test_a_table_that_is_not_there_is_named(bare: Any) -> None:
    assert "nobody.csv" in bare.refused("init", "bare", "--data", "nobody.csv", "--client", "at")
    assert not (bare.path / "bare" / "audit.toml").exists()


def test_layers_that_are_not_dense_ask_for_their_module(workplace: Any) -> None:
    with Recorder(workplace.path / "conv", "model", {"clients": ["site 0"]}) as recorder:
        model = {"conv1.weight": np.zeros((2, 1, 3, 3), np.float32)}
        recorder.sent(1, "", model)
        recorder.returned(1, "site 0", model, 30.0)
    found = workplace.refused("init", "conv", *GIVEN)
    assert "conv1.weight 2x1x3x3" in found
    assert "--model" in found
    data = {"source": "file", "path": "people.csv", "client": "at", "target": "y"}
    given = {"data": data, "model": {"factory": "app:Net"}}
    ways = possible(Recording.open(workplace.path / "conv"), given)
    assert {way.training.loss for _, way in ways} == {None, "huber", "binary_cross_entropy"}


@pytest.mark.parametrize(("scale", "where"), [("records", "table"), ("recorded", "observed")])
def test_a_client_that_was_never_sampled_has_its_part_in_the_scales(
    federate: Callable[..., Recording], tmp_path: Path, scale: str, where: str
) -> None:
    """Whether columns were scaled over the whole table or over the recorded clients is found."""

    def of(dataset: Dataset) -> Dataset:
        far = np.asarray(dataset.records["at"]) == 3
        columns = dict(dataset.records.columns)
        columns |= {c: np.where(far, 2 * columns[c] + 1, columns[c]) for c in ("x0", "x1")}
        records = Records({**columns, "at": columns["at"].astype(str)})
        (folder := tmp_path / "tables").mkdir(exist_ok=True)
        write_csv(folder / "people.csv", records.columns)
        kept = records if where == "table" else records.take(np.flatnonzero(~far))
        return replace(dataset, records=kept)

    model = {"name": "mlp", "hidden": [6]}
    run = federate(model, change=of, participation=1.0, rounds=4, learning_rate=0.1)
    with Recorder(tmp_path / "bare", "model", {"clients": ["0", "1", "2"]}) as recorder:
        observed = {c: list(run.releases(c)) for c in ("0", "1", "2")}
        for number, (_, sent, _) in enumerate(observed["0"]):
            recorder.sent(number, "", sent)
            for client, rounds in observed.items():
                recorder.returned(number, client, rounds[number][2], 120.0)
    data = {"path": str(tmp_path / "tables" / "people.csv"), "client": "at", "target": "y"}
    given = {"data": {"source": "file", **data}, "audit": {"attributes": ["s"]}}
    found = identify(Recording.open(tmp_path / "bare"), given, Options())
    best = found.ranking[0].program
    assert found.explained
    assert (best.full_batch, best.epochs) == (True, 1)
    assert best.learning_rate == pytest.approx(0.1, rel=1e-5)
    assert found.ranking[0].whole.data.scale == scale
    recording, known = Recording.open(tmp_path / "bare"), tmp_path / "known"
    describe(recording, found.ranking[0].whole, known)
    assert sorted(recording.described_in(known).truth()) == ["0", "1", "2"]
    assert [f.outcome for f in found.fits] == ["fits"] * 3


def test_what_clients_report_may_be_batches() -> None:
    """Flower's tabular example reports ``len(train_loader)``."""
    assert held_out([110, 90], [110, 90], Options()) == [None]
    assert {h.share for h in held_out([110, 90], [88, 72], Options()) if h} == {0.2}
    assert {h and h.share for h in held_out([1100, 900], [28, 23], Options())} == {0.2}
    assert held_out([110, 90], [7, 19], Options()) == [None]


def test_momentum_that_goes_on_from_round_to_round(bare: Any) -> None:
    """FLARE's clients make their optimiser once: only in the first round is its state none."""
    whole = Recording.open(bare.path / "bare")
    with Recorder(bare.path / "going on", "model", {"clients": list(whole.clients)}) as recorder:
        by_round: dict[int, Any] = {}
        for client in whole.clients:
            for entry, sent, returned in whole.releases(client):
                by_round.setdefault(entry.number, []).append((client, sent, returned))
        for number, observed in sorted(by_round.items()):
            recorder.sent(number, "", observed[0][1])
            for client, sent, returned in observed:
                pace = 1 + 0.9 * (number > min(by_round))
                moved = {k: v + pace * (returned[k] - v) for k, v in sent.items()}
                recorder.returned(number, client, moved, 120.0)
    found = bare.done("init", "going on", *GIVEN)
    assert "Only the first round is explained" in found.stdout
    shown = tomllib.loads((bare.path / "going on" / "audit.toml").read_text())
    assert shown["audit"]["rounds"] == 1
    words = ["--with", "going on/audit.toml", "--attack", "majority", "--out", "audit"]
    bare.done("audit", "going on", *words)
    record = json.loads((bare.path / "audit" / "audit.json").read_text())
    assert record["run"]["rounds"] == 1
    assert {r["outcome"] for r in record["replays"]} == {"fits", "cannot be checked"}
    assert any("Only the first rounds are audited (1)" in note for note in record["notes"])
