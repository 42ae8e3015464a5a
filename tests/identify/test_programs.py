"""Sites like those of Flower's and FLARE's examples that train no network: `init` finds which
program they run, whose records are whose, and what was held out, from what they sent."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import overheard
from overheard.data.dataset import HeldOut
from overheard.errors import FixConfig
from overheard.federation.federation import Federation
from overheard.federation.plan import load_data
from overheard.identify.search import Options, Outcome, identify
from overheard.recorders.describe import settled
from overheard.transcript.store import Recording

pytestmark = pytest.mark.slow

Site = tuple[np.ndarray, np.ndarray]


def sites(path: Path, names: str = "one two", people: int = 60) -> list[Site]:
    rng, found = np.random.default_rng(5), []
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["age", "stay", "sex", "ill", "site"])
        for name in names.split():
            age, stay = rng.integers(20, 90, people), np.round(rng.gamma(2, 3, people), 1)
            sex = rng.integers(0, 2, people)
            ill = (age / 30 + stay / 5 + sex + rng.normal(size=people) > 4).astype(int)
            rows = np.column_stack([age, stay, sex])
            table.writerows([*row, y, name] for row, y in zip(rows.tolist(), ill, strict=True))
            found.append((rows, ill))
    return found


def found(tmp_path: Path, secret: str = "sex") -> Outcome:
    data = {"source": "file", "path": str(tmp_path / "table.csv"), "client": "site"}
    given = {"data": {**data, "target": "ill"}, "audit": {"attributes": [secret]}}
    return identify(Recording.open(tmp_path / "run"), given, Options())


def program(description: Federation) -> dict[str, Any]:
    return description.model.model_dump()


def newton(inputs: np.ndarray, labels: np.ndarray, model: np.ndarray) -> dict[str, np.ndarray]:
    """As FLARE's hello-lr has it: an intercept first, whole matrices."""
    x = np.column_stack([np.ones(len(inputs)), inputs])
    chance = 1 / (1 + np.exp(-x @ model))
    hessian = x.T @ np.diag((chance * (1 - chance))[:, 0]) @ x
    return {"gradient": x.T @ (labels[:, None] - chance), "hessian": hessian}


@pytest.mark.parametrize(("nodes", "scale"), [("one two", "none"), ("a b", "recorded")])
def test_newton(tmp_path: Path, nodes: str, scale: str) -> None:
    """Also where the first of a table took part and scaled by the records of those alone."""
    everybody, model = sites(tmp_path / "table.csv", "one two unheard")[:2], np.zeros((4, 1))
    if scale == "recorded":
        rows = np.concatenate([inputs[:, :2] for inputs, _ in everybody])
        for inputs, _ in everybody:
            inputs[:, :2] = (inputs[:, :2] - rows.mean(axis=0)) / rows.std(axis=0)
    with overheard.Recorder(tmp_path / "run", "release") as recorder:
        for number in range(2):
            sent = model.astype(np.float32)
            recorder.sent(number, "", {"numpy_key": sent})
            for name, site in zip(nodes.split(), everybody, strict=True):
                back = newton(*site, sent)
                recorder.returned(number, name, back, len(site[1]))
                model = model + 0.4 * np.linalg.solve(back["hessian"], back["gradient"])
    best = found(tmp_path)
    assert best.explained
    known = {"intercept": "first", "likelihood": "logistic"}
    assert known.items() <= program(best.ranking[0].whole).items()
    assert best.ranking[0].whole.data.scale == scale
    assert best.ranking[0].whole.clients == ({"a": "one", "b": "two"} if nodes == "a b" else {})


def test_trees_of_nodes_without_names(tmp_path: Path) -> None:
    """Flower's quickstart-xgboost: rate 0.1, depth 8, a fifth held out as `datasets` does."""
    xgboost = pytest.importorskip("xgboost")
    everybody = sites(tmp_path / "table.csv", people=200)
    nodes = {"18446744073709551615": everybody[1], "7": everybody[0]}
    how = {"objective": "binary:logistic", "eta": 0.1, "max_depth": 8, "nthread": 1}
    with overheard.Recorder(tmp_path / "run", "release") as recorder:
        recorder.sent(1, "", {"0": np.zeros(0, np.uint8)})
        for node, (inputs, labels) in nodes.items():
            kept = np.random.default_rng(42).permutation(200)[40:]
            data = xgboost.DMatrix(inputs[kept].astype(np.float32), label=labels[kept])
            raw = xgboost.train(how, data, num_boost_round=1).save_raw("json")
            recorder.returned(1, node, {"0": np.frombuffer(raw, np.uint8)}, 160)
    best = found(tmp_path)
    assert best.explained
    assert best.ranking[0].whole.data.held_out == HeldOut(share=0.2, by="datasets", seed=42)
    assert best.ranking[0].whole.clients == {"18446744073709551615": "two", "7": "one"}
    assert program(best.ranking[0].whole)["eta"] == 0.1


def flare(rows: np.ndarray, rest: np.ndarray) -> dict[str, Any]:
    """What FLARE's statistics say of data sets called train and test, to four places; a histogram
    of few records is filtered."""
    ends = np.linspace(0, 100, 11)
    named: dict[str, Any] = {"mean/train/age": np.round(rows[:, 0].mean(), 4)}
    for place, name in enumerate(["age", "stay", "sex"]):
        named[f"sum/train/{name}"] = np.round(rows[:, place].sum(), 4)
        named[f"sum/test/{name}"] = np.round(rest[:, place].sum(), 4)
        named[f"histogram/train/{name}"] = np.histogram(rows[:, place], ends)[0]
        named[f"histogram/train/{name}/edges"] = ends
    named["histogram/train/stay"] = np.histogram(rows[:, 1], ends[:2])[0]  # leaves values out
    return {name: np.asarray(value) for name, value in named.items()}


def altered(rows: np.ndarray) -> np.ndarray:
    return rows + (np.arange(len(rows)) == 3)[:, None]


@pytest.mark.parametrize(("change", "fits"), [(np.array, True), (altered, False)])
def test_statistics_of_a_sample(
    tmp_path: Path, change: Callable[[np.ndarray], np.ndarray], fits: bool
) -> None:
    """hello-tabular-stats: of each table 80%, as a frame of pandas draws them; nobody says how
    many. Sites with a record that is other than the table's are not called explained."""
    with overheard.Recorder(tmp_path / "run", "release") as recorder:
        recorder.sent(0, "", {"nothing": np.zeros(0, np.uint8)})
        for name, (rows, _) in zip(("one", "two"), sites(tmp_path / "table.csv"), strict=True):
            drawn = np.random.RandomState(200).choice(60, size=48, replace=False)
            recorder.returned(0, name, flare(change(rows[drawn]), np.delete(rows, drawn, axis=0)))
    best = found(tmp_path)
    assert best.explained is fits
    if fits:
        held = HeldOut(share=0.2, by="pandas", seed=200)
        assert best.ranking[0].whole.data.held_out == held
        tables = program(best.ranking[0].whole)["tables"]
        assert {t["of"] for t in tables if t["kind"] == "sum"} == {"age", "stay", "sex"}


def test_a_number_that_is_secret_stays_one_input(tmp_path: Path) -> None:
    """The app did not know that anybody would ask about it."""
    rows = "".join(f"one,{k % 4},{30 + k},{k % 2}\n" for k in range(12))
    (tmp_path / "table.csv").write_text(f"site,stage,age,ill\n{rows}")
    with overheard.Recorder(tmp_path / "run") as recorder:
        model = {"weight": np.zeros((1, 2), np.float32), "bias": np.zeros(1, np.float32)}
        recorder.sent(0, "", model)
        recorder.returned(0, "one", model)
    data = {"source": "file", "path": str(tmp_path / "table.csv"), "client": "site"}
    data |= {"target": "ill", "task": "classification"}
    content = {"data": data, "model": {"name": "logistic"}, "training": {"learning_rate": 0.1}}
    description = Federation.model_validate({**content, "audit": {"attributes": ["stage"]}})
    how = Recording.open(tmp_path / "run"), description, load_data(description)
    assert settled(*how)[1].recipe.encoding.width == 2


def test_sums_alone_are_refused_with_the_reason(tmp_path: Path) -> None:
    sites(tmp_path / "table.csv")
    with overheard.Recorder(tmp_path / "run") as recorder:
        recorder.sent(0, "", {"w": np.zeros((2, 3)), "b": np.zeros(2)})
        recorder.aggregated(0, {"w": np.ones((2, 3)), "b": np.ones(2)}, ["one", "two"])
    with pytest.raises(FixConfig, match=r"holds sums of clients.*--threat secure-server"):
        found(tmp_path)


def test_tables_of_an_unknown_program_are_refused(tmp_path: Path) -> None:
    sites(tmp_path / "table.csv")
    with overheard.Recorder(tmp_path / "run", "release") as recorder:
        recorder.sent(0, "", {"ages": np.arange(4.0)})
        recorder.returned(0, "one", {"survival": np.ones((2, 4))})
    with pytest.raises(FixConfig, match="ages 4, which nothing tried sends"):
        found(tmp_path)
