"""Rows, claims and the experiments that need no data."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from overheard.errors import ChooseAnotherOutput, FixConfig, FixRecording
from overheard.origin import origin
from papers.command import app
from papers.common import catalogue
from papers.common.catalogue import experiment_named
from papers.common.harness import Score, mean_row, summarise
from papers.common.rows import (
    Choice,
    Experiment,
    Reproduction,
    read_reproduction,
    write_reproduction,
)
from papers.xu2021 import run as xu2021

pytestmark = pytest.mark.slow


def quiet(what: str, done: int, total: int) -> None:
    """No progress bar in tests."""


def small(name="xu2021-small"):
    """An experiment of one row, which takes a `Choice`."""

    def run(quick, seeds, progress, choice):
        row = mean_row("s", choice.dataset or "c", "m", "accuracy", [0.5] * seeds)
        return Reproduction((row,), "made", ("a note",), seeds)

    def draw(outcome, path):
        path.write_text(f"{len(outcome.rows)} rows")

    return Experiment(name, "words", run, draw, 2, first_seed=7, parts=True)


def test_a_file_of_results_says_how_it_was_measured(tmp_path, monkeypatch):
    made = small()
    monkeypatch.setattr(catalogue, "experiments", lambda: {made.name: made})
    words = [made.name, "--out", str(tmp_path), "--quick", "--seeds", "3", "--dataset", "fashion"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert isinstance(CliRunner().invoke(app, words).exception, ChooseAnotherOutput)
    found = read_reproduction(tmp_path / f"{made.name}.json")
    how = origin(f"python -m papers {made.name} --seeds 3 --quick --dataset fashion")
    assert {name: getattr(found, name) for name in how} == how
    assert (found.name, found.paper, found.quick) == (made.name, "xu2021", True)
    assert (found.first_seed, found.seeds, found.rows[0].client) == (7, 3, "fashion")
    assert found.rows[0].repetitions == (0.5, 0.5, 0.5)
    assert (tmp_path / f"{made.name}.svg").read_text() == "1 rows"


def test_what_is_no_file_of_results_is_refused(tmp_path):
    (tmp_path / "x.json").write_text('{"rows": [{"setting": "s"}]}')
    with pytest.raises(FixRecording, match="is not an experiment's result"):
        read_reproduction(tmp_path / "x.json")


def test_only_some_experiments_take_a_part():
    with pytest.raises(FixConfig, match="has no --dataset"):
        experiment_named("xu2021-table1").measure(True, 1, quiet, Choice(size=3))


def test_an_unknown_experiment_is_answered_with_the_nearest():
    with pytest.raises(FixConfig, match="did you mean 'xu2021-table1'"):
        experiment_named("xu2021-tabel1")


def test_an_interval_ends_where_its_measure_does():
    """Student's, of three repetitions or more; it is wide."""
    assert mean_row("s", "c", "m", "accuracy", [0.5, 0.7]).low is None
    wide = mean_row("s", "c", "m", "F1, the others' targets", [0.1, 0.9, 0.9])
    assert (wide.low, wide.high) == (0.0, 1.0)
    alarms = mean_row("s", "c", "m", "false alarms", [0.0, 0.0, 3.0])
    assert alarms.low == 0.0
    assert alarms.high == pytest.approx(1 + 4.302653 * 1.0)
    inside = mean_row("s", "c", "m", "accuracy", [0.50, 0.51, 0.52])
    assert (inside.low, inside.high) == pytest.approx((0.51 - 0.024841, 0.51 + 0.024841), abs=1e-6)


def test_the_mean_row_weighs_clients_equally():
    scores = [Score("m", c, v, 0.5, 1.0) for c, v in (("a", 0.6), ("a", 0.8), ("b", 0.9))]
    rows = summarise("s", scores, {("m", "b"): 0.77})
    by_client = {r.client: r for r in rows}
    assert by_client["mean"].measured == pytest.approx((0.7 + 0.9) / 2)
    assert by_client["b"].claimed == 0.77


def test_proposition_1_end_to_end(tmp_path):
    """Nobody does better than a coin over the pairs; the files are written once only.

    The last bits of the arithmetic break Algorithm 3's ties, like a coin: half on average.
    """
    experiment = experiment_named("driouich2022-prop1")
    outcome = experiment.measure(True, 1, quiet)
    for row in outcome.rows:
        assert row.low <= 0.5
        assert row.measured < 0.54
    table, picture = write_reproduction(experiment, outcome, tmp_path)
    assert json.loads(table.read_text())["rows"][0]["claimed"] == 0.5
    assert picture.read_text().lstrip().startswith("<?xml")
    with pytest.raises(ChooseAnotherOutput, match="exists already"):
        write_reproduction(experiment, outcome, tmp_path)


def test_local_accuracy_and_ratios(federate):
    recording = federate({"name": "logistic"}, rounds=30, learning_rate=0.5)
    truth, recipe = recording.truth(), xu2021.truth_and_recipe(recording)[1]  # type: ignore[attr-defined]
    theta = np.zeros(recipe.model.size)
    theta[-1] = 1.0  # predicts class 1 for everybody
    share = xu2021.local_accuracy(recipe, theta, truth["0"])
    assert share == pytest.approx(recipe.target.encode(truth["0"]).mean())
    found = list(xu2021.models(recording, 0, None))
    assert {m.method for m in found} == {"global_model", "last_returned", "structured"}
