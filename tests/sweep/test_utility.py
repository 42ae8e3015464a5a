"""What the model is worth: of networks, Newton steps, tables and trees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federations import generated_people
from generated import write_csv

from overheard.federation.federation import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import run_rounds
from overheard.sweep.grid import cells, parse_sweep
from overheard.sweep.run import run_cell
from overheard.transcript.store import Recording

pytestmark = pytest.mark.slow

TABLES = {"name": "statistics", "tables": [{"by": ["s", "x0"]}], "bins": {"x0": [-1.0, 0.0, 1.0]}}


@pytest.mark.parametrize("defence", [[], [{"name": "secure_sum"}]], ids=["open", "sum"])
def test_the_model_is_the_one_that_would_have_been_sent_next(
    defence: list[Any], tmp_path: Path
) -> None:
    """Whatever the server remembers of earlier rounds."""
    data = {"source": "digits", "options": {"victim": 40, "participants": 3}}
    shared = {"data": data, "model": {"name": "mlp", "hidden": [6]}, "server": {"rule": "adam"}}
    for rounds in (3, 4):
        training = {"rounds": rounds, "learning_rate": 0.1}
        config = parse_config({**shared, "training": training, "defence": defence})
        ended = run_rounds(plan(config), tmp_path / str(rounds))
        if rounds == 3:
            expected = ended.model
    run = Recording.open(tmp_path / "4")
    (sent,) = run.messages(run.rounds[-1], [("sent", "")])
    flat = [sent[name].reshape(-1) for name, _ in ended.recipe.model.layout()]
    np.testing.assert_array_equal(np.concatenate(flat), expected)


def found(
    folder: Path, model: dict[str, Any], rounds: int, *defences: list[dict[str, Any]]
) -> list[Any]:
    """The cells of a sweep over these defences, of 3 clients of 60 people."""
    path = write_csv(folder / "people.csv", generated_people(3, 60, 3, 0).records.columns)
    data = {"source": "file", "path": path, "client": "at", "target": "y"}
    base = {"data": data, "model": model, "training": {"rounds": rounds}}
    base["audit"] = {"attributes": ["s"]}
    settings = [{"defence": str(d), "change": {"defence": d}} for d in defences]
    asked = {"base": base, "setting": settings, "attacks": ["max_entropy"], "clients": ["0"]}
    results = [run_cell(cell) for cell in cells(parse_sweep(asked))]
    assert not [r.error for r in results if r.error]
    return results


def test_what_a_newton_model_is_worth(tmp_path: Path) -> None:
    pytest.importorskip("dp_accounting", reason="dp-accounting is not installed")
    noise = {"name": "dp_sums", "clip": 1.0, "noise": 20.0}
    plain, noisy = found(tmp_path, {"name": "newton", "likelihood": "linear"}, 2, [], [noise])
    assert plain.utility_is == "r2"
    assert plain.utility > 0.7 > noisy.utility
    assert plain.findings[0].value > noisy.findings[0].value


def test_what_tables_are_worth(tmp_path: Path) -> None:
    defences = ([{"name": "round_counts", "to": 5}], [{"name": "suppress_cells", "below": 5}])
    plain, rounded, hidden = found(tmp_path, TABLES, 1, [], *defences)
    assert plain.utility_is == "closeness of tables"
    assert plain.utility == 1
    assert 0.6 < rounded.utility < 1
    assert 0.6 < hidden.utility < 1


def test_what_trees_are_worth(tmp_path: Path) -> None:
    pytest.importorskip("xgboost", reason="needs overheard[xgboost]")
    model = {"name": "xgboost", "objective": "reg:squarederror", "max_depth": 3}
    few, many = (found(tmp_path, model, rounds, [])[0] for rounds in (1, 4))
    assert few.utility_is == "r2"
    assert 0 < few.utility < many.utility < 1
