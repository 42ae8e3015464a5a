"""xu2021 Observations 2 and 7 in small."""

from __future__ import annotations

import numpy as np
import pytest

from papers.common.catalogue import experiment_named
from papers.common.rows import write_reproduction
from papers.xu2021 import observations

pytestmark = pytest.mark.slow


def quiet(what: str, done: int, total: int) -> None:
    """No progress bar in tests."""


@pytest.mark.parametrize(("size", "steps"), [(4, 1), (7, 1), (8, 2), (8, 3)])
def test_the_twin_gives_the_same_messages_until_its_coordinate_moves(size, steps):
    """Bit by bit: who stops listening before cannot know which of the two data sets it is."""
    client = observations.Hard.of(size)
    assert client.optimum == pytest.approx(1 - np.arange(1, size + 1) / (size + 1))
    _, returned = observations.heard(client, size, steps)
    _, twins = observations.heard(client.twin, size, steps)
    same = -(-size // steps) - 1
    assert np.array_equal(returned[:same], twins[:same])
    assert not np.array_equal(returned[same], twins[same])


def test_observation_2_end_to_end(tmp_path):
    experiment = experiment_named("xu2021-obs2")
    outcome = experiment.measure(True, 1, quiet)
    found = {(r.setting, r.measure): r.measured for r in outcome.rows if r.client == "hard"}
    one, five = "d = 5, 1 local step", "d = 5, 5 local steps"
    assert found[one, observations.APART] == found[one, observations.MOVED] == 5
    assert found[one, observations.KNOWN] == 6
    assert found[five, observations.APART] == 1  # the bound is on gradient steps
    table, picture = write_reproduction(experiment, outcome, tmp_path)
    assert table.exists()
    assert picture.exists()


def test_mirrored_labels_have_the_same_messages():
    clients = observations.two_clients(3, binary=False)
    inputs = np.column_stack([clients["0"][f"x{j}"] for j in range(3)])
    turned = observations.mirrored(clients["0"], inputs)
    design = np.column_stack([inputs, np.ones(60)])
    assert design.T @ turned["y"] == pytest.approx(design.T @ clients["0"]["y"])
    assert (turned["y"] ** 2).sum() == pytest.approx((clients["0"]["y"] ** 2).sum())
    worlds = [clients, {**clients, "0": turned}]
    data, mirror = (dict(observations.label_guesses(observations.joined(w), 0)) for w in worlds)
    for method in ("local model", "last returned"):
        assert mirror[method] == pytest.approx(data[method], abs=1e-9), method


def test_observation_7_end_to_end():
    outcome = experiment_named("xu2021-obs7").run(True, 1, quiet)
    both = [r for r in outcome.rows if r.client == "mean of both"]
    assert len(both) == 8
    assert all(row.measured >= 1 - 1e-6 for row in both)
    (nearer,) = outcome.measured(
        "local model, the nearer of 0 and 1", setting="labels are 0 or 1", client="data"
    )
    assert nearer < 0.8  # who knows that labels are 0 or 1 beats the local model on the data
