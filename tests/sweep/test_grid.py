from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from overheard.errors import FixConfig
from overheard.sweep.grid import cells, parse_sweep, read_sweep

BASE: dict[str, Any] = {
    "data": {"source": "digits", "options": {"victim": 40, "participants": 2}},
    "model": {"name": "mlp", "hidden": [6]},
    "training": {"rounds": 2, "learning_rate": 0.1},
}


def sweep_of(**changes: Any) -> Any:
    return parse_sweep({"base": BASE, **changes})


def test_every_combination_is_a_cell_once() -> None:
    grid = {"training.epochs": [1, 5, 1], "training.batch_size": [0, 8]}
    found = cells(sweep_of(grid=grid, setting=[{"defence": "none"}] * 2, seeds=[0, 1]))
    assert len(found) == 2 * 2 * 2
    assert {c.config["training"]["epochs"] for c in found} == {1, 5}
    assert {c.config["seed"] for c in found} == {0, 1}
    assert len({c.key for c in found}) == len(found)


def test_a_setting_may_have_a_listener_of_its_own() -> None:
    other = {"threat": "secure-server", "attacks": ["sum_decode"]}
    plain, summed = cells(sweep_of(attacks=["max_entropy"], setting=[{}, other]))
    assert (plain.asked["threat"], plain.asked["attacks"]) == ("eavesdropper", ("max_entropy",))
    assert (summed.asked["threat"], summed.asked["attacks"]) == ("secure-server", ("sum_decode",))
    assert plain.key != summed.key


def test_what_varies_has_the_same_address_however_it_is_written() -> None:
    """A default that is spelled out is the same federation."""
    (one,) = cells(sweep_of())
    (two,) = cells(sweep_of(grid={"training.epochs": [1]}))
    assert one.key == two.key


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"grid": {"training.epochs": []}}, "at least 1"),
        ({"grid": {"training.epoch": [1]}}, "did you mean 'epochs'"),
        ({"grid": {"training.rounds.deep": [1]}}, "is a value, not a table"),
        ({"seeds": []}, "at least 1"),
        ({"holdout": 1.0}, "less than 1"),
        ({"colour": "red"}, "unknown key 'colour'"),
    ],
)
def test_a_wrong_sweep_says_what_is_wrong(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(FixConfig, match=complaint):
        cells(sweep_of(**changes))


def test_a_path_starts_at_the_file_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text('[base.data]\nsource = "file"\npath = "people.csv"\n')
    assert read_sweep(tmp_path / "sweep.toml").base["data"]["path"] == str(tmp_path / "people.csv")
