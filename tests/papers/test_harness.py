"""Rows, claims and the experiments that need no data."""

from __future__ import annotations

import json

import numpy as np
import pytest

from overheard.errors import ChooseAnotherOutput
from papers.common.catalogue import experiment_named
from papers.common.harness import Score, mean_row, summarise
from papers.common.rows import (
    write_reproduction,
)
from papers.xu2021 import run as xu2021

pytestmark = pytest.mark.slow


def quiet(what: str, done: int, total: int) -> None:
    """No progress bar in tests."""


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
