"""Rows say which code measured them, and only what older code measured is measured anew."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from overheard.attacks.attribute.majority import Majority
from overheard.attacks.local_model import exact_linear
from overheard.cli import app
from overheard.code_digest import sources
from overheard.errors import ChooseAnotherOutput, FixConfig, FixRecording
from papers.common import catalogue, provenance
from papers.common.catalogue import experiment_named, experiments
from papers.common.harness import STRANGER
from papers.common.rows import (
    Choice,
    Experiment,
    Progress,
    Reproduction,
    Row,
    asked,
    read_reproduction,
    write_reproduction,
)

NAME = "made-up"


def quiet(what: str, done: int, total: int) -> None:
    """No progress bar in tests."""


class Lab:
    """An experiment of two methods, which counts how often each was measured."""

    def __init__(self) -> None:
        self.measured: list[str] = []
        self.methods = ["one", "two"]

    def run(self, quick: bool, seeds: int, progress: Progress) -> Reproduction:
        rows = []
        for method in asked(dict.fromkeys(self.methods)):
            self.measured.append(method)
            value = float(len(self.measured))
            rows.append(Row("s", "c", method, "accuracy", value, seeds=seeds))
        rows.append(Row("s", "c", "always", "accuracy", float(len(self.measured))))
        return Reproduction(NAME, "xu2021", tuple(rows), "none", (), quick, seeds)


@pytest.fixture
def codes() -> dict[str, str]:
    return {"one": "1", "two": "2", "three": "3", "always": "a"}


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch, codes: dict[str, str]) -> Lab:
    monkeypatch.setattr(provenance, "code_behind", lambda experiment, method: codes[method])
    return Lab()


def experiment(lab: Lab) -> Experiment:
    def draw(outcome: Reproduction, path: Path) -> None:
        path.write_text(f"{len(outcome.rows)} rows")

    return Experiment(NAME, "xu2021", "words", 2, lab.run, draw, first_seed=7)


def again(lab: Lab, before: Reproduction | None, seeds: int = 2) -> Reproduction:
    lab.measured.clear()
    return provenance.measure(experiment(lab), False, seeds, quiet, Choice(), before)


def test_rows_say_how_they_were_measured(lab: Lab) -> None:
    row = again(lab, None).rows[0]
    assert row.code == "1"
    assert row.command == "overheard reproduce made-up --seeds 2"
    assert (row.first_seed, row.seeds) == (7, 2)
    part = Choice(dataset="fashion", shadows=0)
    how = provenance.command(experiment(lab), True, 3, part)
    assert how == "overheard reproduce made-up --seeds 3 --quick --dataset fashion --shadows 0"


def test_only_what_changed_is_measured_anew(lab: Lab, codes: dict[str, str]) -> None:
    first = again(lab, None)
    assert lab.measured == ["one", "two"]
    assert again(lab, first) is first
    assert lab.measured == []
    codes["two"] = "2, mended"
    second = again(lab, first)
    assert lab.measured == ["two"]
    assert {r.method: (r.measured, r.code) for r in second.rows} == {
        "one": (1.0, "1"),
        "two": (1.0, "2, mended"),
        "always": (2.0, "a"),  # measured again by the way, and not needed
    }
    assert again(lab, second) is second


def test_a_new_method_is_measured_too(lab: Lab, codes: dict[str, str]) -> None:
    """It came with other code of the experiment, so that the others are old as well."""
    first = again(lab, None)
    lab.methods.append("three")
    codes |= {method: f"{code}, three added" for method, code in codes.items()}
    assert {row.method for row in again(lab, first).rows} == {"one", "two", "three", "always"}


def test_the_code_is_read_before_it_runs(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may edit it during the hours of a run."""
    seen: list[str] = []
    monkeypatch.setattr(provenance, "sources", lambda package: seen.append(f"read {package}"))
    monkeypatch.setattr(lab, "measured", seen)
    again_without_clearing = provenance.measure(
        experiment(lab), False, 2, quiet, Choice(), before=None
    )
    assert again_without_clearing.rows
    assert seen[:2] == ["read overheard", "read papers"]


def test_rows_of_unknown_age_are_measured_anew(lab: Lab) -> None:
    first = again(lab, None)
    unknown = replace(first, rows=tuple(replace(r, code=None, command=None) for r in first.rows))
    assert {provenance.age(experiment(lab), row) for row in unknown.rows} == {"unknown"}
    again(lab, unknown)
    assert lab.measured == ["one", "two"]


def test_one_method_alone_is_measured_anew(lab: Lab, codes: dict[str, str]) -> None:
    """What takes hours may stay old for a while; its rows say that they are."""
    first = again(lab, None)
    codes |= {method: f"{code}, mended" for method, code in codes.items()}
    lab.measured.clear()
    made, only = experiment(lab), frozenset({"two"})
    second = provenance.measure(made, False, 2, quiet, Choice(), first, only)
    assert lab.measured == ["two"]
    ages = {row.method: provenance.age(made, row) for row in second.rows}
    assert ages == {"one": "older", "two": "current", "always": "older"}
    assert provenance.measure(made, False, 2, quiet, Choice(), second, only) is second
    for before in (first, None):
        with pytest.raises(FixConfig, match="no rows of 'three'"):
            provenance.measure(made, False, 2, quiet, Choice(), before, frozenset({"three"}))


def test_rows_of_another_command_are_not_mixed(lab: Lab) -> None:
    first = again(lab, None)
    with pytest.raises(FixConfig, match=r"another command .*--seeds 2"):
        again(lab, first, seeds=3)
    bare = replace(first, rows=tuple(replace(r, command=None) for r in first.rows))
    with pytest.raises(FixConfig, match=r"another command \(without --quick\)"):
        provenance.measure(experiment(lab), True, 2, quiet, Choice(), bare)


def test_files_are_read_as_they_were_written(lab: Lab, tmp_path: Path) -> None:
    outcome = again(lab, None)
    table, picture = write_reproduction(experiment(lab), outcome, tmp_path)
    assert read_reproduction(table) == outcome
    with pytest.raises(ChooseAnotherOutput, match="--again"):
        write_reproduction(experiment(lab), outcome, tmp_path)
    write_reproduction(experiment(lab), replace(outcome, rows=outcome.rows[:1]), tmp_path, True)
    assert len(read_reproduction(table).rows) == 1
    assert picture.read_text() == "1 rows"
    table.write_text('{"rows": [{"setting": "s"}]}')
    with pytest.raises(FixRecording, match="is not an experiment's result"):
        read_reproduction(table)


def test_a_row_that_was_edited_breaks_its_seal(lab: Lab, tmp_path: Path) -> None:
    table, _ = write_reproduction(experiment(lab), again(lab, None), tmp_path)
    row = json.loads(table.read_text())["rows"][0]
    assert provenance.seal(row) == row["seal"]  # type: ignore[attr-defined]
    assert provenance.seal({**row, "measured": 0.99}) != row["seal"]  # type: ignore[attr-defined]
    assert provenance.seal({**row, "claimed": 0.5}) != row["seal"]  # type: ignore[attr-defined]


def test_the_command_line_measures_only_what_changed(
    lab: Lab, codes: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = experiment(lab)
    monkeypatch.setattr(catalogue, "experiments", lambda: {NAME: made})
    words = ["reproduce", NAME, "--out", str(tmp_path)]
    run = CliRunner()
    assert run.invoke(app, words).exit_code == 0
    assert isinstance(run.invoke(app, words).exception, ChooseAnotherOutput)
    lab.measured.clear()
    nothing = run.invoke(app, [*words, "--again"])
    assert "every row asked for was measured by the code of today" in nothing.output
    codes["one"] = "1, mended"
    assert run.invoke(app, [*words, "--again"]).exit_code == 0
    assert lab.measured == ["one"]
    assert len(read_reproduction(tmp_path / f"{NAME}.json").rows) == 3


# ------------------------------------------------------------------- the real experiments' code


def behind(known: Experiment, method: str) -> set[str]:
    attacks = provenance.attacks_behind(known, method)
    found = provenance.modules_behind(known.run.__module__, attacks)
    return {module.removeprefix("overheard.") for module in found}


def test_a_row_depends_on_its_own_method_and_on_no_other() -> None:
    """Half of the modules of the package at most, and not the attacks that it is compared with."""
    adult = experiment_named("driouich2022-table1-adult")
    ours, gumbel = behind(adult, "max_entropy"), behind(adult, "gumbel")
    assert {"attacks.attribute.max_entropy", "decoding.expectation_propagation"} <= ours
    assert "attacks.attribute.gradient_matching" not in ours
    assert "attacks.attribute.gradient_matching" in gumbel
    # programs say what they measure: the type, and no decoder
    others = gumbel - {"decoding.measurement"}
    assert not {m for m in others if m.startswith(("decoding.", "report", "guard", "sweep"))}
    assert {"attacks.attribute.model_based_linear", "attacks.local_model.learned_map"} <= behind(
        adult, "local"
    )
    shared = behind(adult, STRANGER)
    assert shared <= ours & gumbel
    assert {"papers.driouich2022.run", "papers.common.harness", "federation.simulate"} <= shared
    assert {"data.adult", "programs.dense", "transcript.observe", "evaluation.metrics"} <= shared
    # what is known without listening is every decoder's prior too
    assert {m for m in shared if m.startswith("attacks.")} == {"attacks.stranger"}


@pytest.mark.parametrize("name", sorted(experiments()))
def test_no_row_depends_on_half_of_the_package(name: str) -> None:
    known = experiment_named(name)
    whole = behind(known, "a method that nobody declared")
    assert sum(f"overheard.{m}" in sources() for m in whole) < len(sources()) / 2
    assert not {m for m in whole if m.startswith("cli") or m.endswith(("pictures", "charts"))}
    for method in known.methods:
        assert behind(known, method) <= whole


def test_who_takes_more_than_the_attack_depends_on_its_module() -> None:
    """lyu2021 takes `phase` from the module of cos_matching, for all of its rows."""
    ours = behind(experiment_named("lyu2021-table7"), "max_entropy")
    assert "attacks.attribute.gradient_matching" in ours


def test_a_method_is_known_by_its_attack_or_by_what_is_declared() -> None:
    made = Experiment(NAME, "p", "w", 1, experiment_named("xu2021-table1").run, print)
    plain = behind(made, "cos_matching, 10 steps on pre1")
    assert "attacks.attribute.gradient_matching" in plain
    declared = replace(made, methods={"mine": (Majority, exact_linear)})
    mine = {"attacks.attribute.majority", "attacks.local_model.exact_linear"}
    assert mine <= behind(declared, "mine")


def test_committed_rows_were_not_edited_after_they_were_measured() -> None:
    root = Path(__file__).parents[2]
    for path in root.glob("papers/**/*.json"):
        for row in json.loads(path.read_text(encoding="utf-8")).get("rows", []):
            if row.get("seal"):
                assert provenance.seal(row) == row["seal"], f"{path}: {row}"  # type: ignore[attr-defined]
                assert row["code"], f"{path}: {row}"
                assert row["command"], f"{path}: {row}"


def test_the_rows_of_an_experiment_carry_it(tmp_path: Path) -> None:
    known = experiment_named("driouich2022-prop1")
    row = Row("s", "c", "local", "accuracy", 0.5)
    outcome = Reproduction(known.name, known.paper, (row,), "made", (), True, 1)
    (made,) = provenance.stamped(known, outcome, "how").rows
    assert made.code == provenance.code_behind(known, "local")
    assert provenance.age(known, made) == "current"
    assert provenance.age(known, replace(made, code="of last year")) == "older"
    assert provenance.age(None, made) == "older"
    assert made.seal == provenance.seal(asdict(made))  # type: ignore[attr-defined]
