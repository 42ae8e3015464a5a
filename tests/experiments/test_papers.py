"""The papers' experiments in small: what their cells hold, and what the pages say of results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from federations import view_of

from experiments.data import SOURCES
from experiments.papers import page, scoring
from experiments.papers.driouich2022 import bound
from experiments.papers.driouich2022 import run as driouich2022
from experiments.papers.xu2021 import observations
from experiments.papers.xu2021 import run as xu2021
from experiments.runner import Cell, Experiment, Result, cell, chosen
from overheard.attacks.papers.driouich2022 import infer
from overheard.evaluation.metrics import attribute_hits
from overheard.transcript.kind import recipe_of

pytestmark = pytest.mark.slow
NAMES = [one.name for one in chosen(["papers"])]


def measured(name: str, quick: bool = True) -> list[tuple[Cell, Any]]:
    """What the cells of the quick form give."""
    (one,) = chosen([name])
    return [(each, one.run(each)) for each in one.cells() if each.quick or not quick]


@pytest.mark.parametrize("name", NAMES)
def test_cells_differ_and_claims_are_of_what_is_measured(name: str) -> None:
    (one,) = chosen([name])
    cells = one.cells()
    assert len({each.key for each in cells}) == len(cells)
    dear = ("driouich2022-table2", *(f"kerkouche2023-fig{n}" for n in (2, 6, 7)))
    assert any(each.quick for each in cells) or name in dear or "fig8" in name
    for each in cells:
        for measure, _, number in page.points(one.claims(each)):
            assert np.isfinite(number)
            assert "accuracy" not in measure or 0 < number <= 1


# ------------------------------------------------------------------------------------- xu2021


@pytest.mark.parametrize(("size", "steps"), [(4, 1), (7, 1), (8, 2), (8, 3)])
def test_the_twin_gives_the_same_messages_until_its_coordinate_moves(size, steps):
    """Bit by bit: who stops listening before cannot know which of the two data sets it is."""
    client = observations.Hard.of(size)
    assert client.optimum == pytest.approx(1 - np.arange(1, size + 1) / (size + 1))
    _, returned = observations.transcript(client, size, steps)
    _, twins = observations.transcript(client.twin, size, steps)
    same = -(-size // steps) - 1
    assert np.array_equal(returned[:same], twins[:same])
    assert not np.array_equal(returned[same], twins[same])


def test_observation_2_end_to_end():
    (_, one), (_, five) = measured("xu2021-obs2")
    assert one[observations.APART] == one[observations.MOVED] == 5
    assert one[observations.KNOWN] == 6
    assert five[observations.APART] == 1  # the bound is on gradient steps


def test_observation_7_no_method_beats_the_local_model_on_data_and_mirror():
    for labels in ("any number", "0 or 1"):
        for method in observations.LABEL_METHODS:
            values = observations.obs7(cell(method, 1, labels=labels))
            data, mirror = values[observations.RATIO].values()
            assert (data + mirror) / 2 >= 1 - 1e-6
    assert data < 0.8  # who knows that labels are 0 or 1 beats the local model on the data


def test_local_accuracies_stand_beside_the_majority(federate):
    recording = federate({"name": "logistic"}, rounds=30, learning_rate=0.5)
    truth, recipe = scoring.truth_and_recipe(recording)
    guesses = xu2021.models(recording, "structured", 0)
    ones = np.zeros(recipe.model.size)
    ones[-1] = 1.0  # predicts class 1 for everybody
    found = xu2021.local_scores(recording, {"0": replace(guesses["0"], parameters=ones)})
    share = recipe.target.encode(truth["0"]).mean()
    assert found["local accuracy"]["0"] == pytest.approx(share)
    assert found["majority"]["0"] == pytest.approx(max(share, 1 - share))
    best = xu2021.local_scores(recording, guesses)["excess loss"]["0"]
    assert best < found["excess loss"]["0"]


# ------------------------------------------------------------------------------- driouich2022


def test_the_four_models_of_figure_3(federate):
    """Whichever model is attacked, Proposition 3 bounds its accuracy from below."""
    recording = federate(rounds=60, precision="float64")
    recipe, truth = recipe_of(recording), recording.truth()
    for client in recording.clients:
        view = view_of(recording, client=client)
        records = truth[client]
        thetas = {name: bound.model(view, recipe, records, name) for name in bound.MODELS}
        assert thetas["local"] == pytest.approx(thetas["analytical"], abs=1e-3)
        for theta in thetas.values():
            _, least = bound.promised(recipe, theta, records, "s")
            assert attribute_hits(infer(view, theta), records["s"]).mean() >= least


def test_proposition_3_end_to_end():
    found = [(each["noise"], v) for each, v in measured("driouich2022-prop3") if each.seed == 0]
    assert min(values[bound.MARGIN] for _, values in found) >= 0
    bounds = [values[bound.BOUND] for _, values in found[:3]]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[0] > 0.9


def test_proposition_1_nobody_does_better_than_a_coin_over_the_pairs():
    """The last bits of the arithmetic break Algorithm 3's ties, like a coin: half on average."""
    for method in ("local", scoring.OURS):
        pairs = [driouich2022.prop1(cell(method, pair)) for pair in range(6)]
        assert np.mean([v for values in pairs for v in values.values()]) < 0.55


# ----------------------------------------------------------------------------------- the pages


def result(method: str, seed: int, client: str, **values: Any) -> Result:
    setting = {"client": client, "steps": 1}
    return Result("toy", setting, method, seed, values, 1.0, "run", "abc", "2026-01-01")


@pytest.fixture
def toy(monkeypatch) -> Experiment:
    made = [
        result("a", seed, client, accuracy={client: value}, curve={"10": 0.1, "20": value})
        for seed, client, value in ((0, "x", 0.6), (0, "y", 1.0), (1, "x", 0.7), (2, "x", 0.9))
    ]
    monkeypatch.setattr(page, "results", lambda name: made)
    claims = {"accuracy": {"x": 0.5, "mean": 0.45}, "curve": {"20": 0.3}}
    return Experiment("toy", "words", lambda one: {}, lambda: [], claims=lambda one: claims)


def test_a_number_is_the_mean_over_clients_then_seeds_beside_the_papers_own_mean(toy):
    found = {(x.measure, x.at): x for x in page.lines(toy)}
    accuracy = found["accuracy", ""]
    assert (accuracy.measured, accuracy.claimed) == (pytest.approx(0.8), 0.45)
    assert (accuracy.seeds, accuracy.setting) == (3, "steps 1")
    assert (accuracy.low, accuracy.high) == (pytest.approx(0.8 - 0.2484, abs=1e-3), 1.0)
    assert (found["curve", "20"].claimed, found["curve", "10"].claimed) == (0.3, None)


def test_a_table_has_the_ends_of_curves_and_a_picture_all_of_them(toy):
    table = page.numbers_table(page.lines(toy))
    assert "| steps 1 | a | accuracy | 0.450 | 0.800 (0.552–1.000) | 3 |" in table
    assert "curve at 20" in table
    assert "curve at 10" not in table
    for one in (toy, replace(toy, name="other")):
        assert page.drawn(one).startswith("<?xml")


def test_a_cell_of_a_papers_table_is_paper_theirs_and_ours(monkeypatch):
    """Of two clients in two seeds: ours is compared in the seeds that both have, and a mean over
    clients is not made of some of them; what is not measured is said with what it takes."""
    made = [
        result(method, seed, client, accuracy={client: value})
        for method, seed, client, value in (
            ("a", 0, "x", 0.6), ("a", 0, "y", 0.8), ("b", 0, "x", 0.7), ("b", 1, "x", 0.1),
        )
    ]  # fmt: skip
    cells = [cell(m, s, 30, client=c, steps=1) for m in "ab" for s in (0, 1) for c in "xy"]
    claims = {"a": {"accuracy": {"x": 0.5, "y": 0.7, "mean": 0.6}}, "b": {}}
    toy = Experiment("toy", "", dict, lambda: cells, claims=lambda one: claims[one.method])
    item = {"experiment": "toy", "measure": "accuracy", "rows": ["method"], "columns": ["at"]}
    monkeypatch.setattr(page, "experiments", lambda: {"toy": toy})
    monkeypatch.setattr(page, "results", lambda name: made)
    left = [(toy, each) for each in cells[4:]]
    monkeypatch.setattr(page, "todo", lambda wanted: left)
    table = page.layout({**item, "ours": "b"}).splitlines()
    assert table[2:] == ["| method | x | y | mean |", "| --- | --- | --- | --- |",
        "| a | 0.500 / 0.600 / 0.400 | 0.700 / 0.800 / – | 0.600 / 0.700 / – |"]  # fmt: skip
    assert page.verdict({**item, "ours": "b"}) == (
        "paper 0.600, here 0.700 (steps 1), 0 of 1 rows within .05; ours at or ahead of theirs in "
        "1 of 1 cells; 4 of 8 cells not measured yet (2 CPU minutes)"
    )
    assert page.verdict({}) == "in code"
    made.clear()
    assert page.verdict(item) == "not measured yet (2 CPU minutes)"


def test_every_item_of_a_paper_has_its_place():
    """Every experiment of the papers stands on a page; no headline of README is blank."""
    known = {one.name for one in chosen(["papers"])}
    items = [item for paper in page.PAPERS for item in page.described(paper)["items"]]
    assert known == {item["experiment"] for item in items if "experiment" in item}
    for row in page.headlines().splitlines()[2:]:
        assert all(text.strip(" –") for text in row.strip("|").split("|"))
    data = {name: source for name, source in SOURCES.items() if source.files}
    assert all(f"| {name} |" in page.artifact() for name in data if name != "purchase100")
