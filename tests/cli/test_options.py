"""A command's options are one dataclass, which typer reads like a signature."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from overheard.cli.options import argument, option, taking


@dataclass(frozen=True)
class Asked:
    """Of every kind of option one."""

    place: Path = argument("Where.")
    out: Annotated[Path, typer.Option(help="Needed.")]
    name: list[str] = option("Repeat.", list)
    times: int = option("How often.", 3, "--many", min=1)
    rest: float | None = option("May be left out.", None)


@pytest.fixture
def given() -> list[Asked]:
    return []


@pytest.fixture
def app(given: list[Asked]) -> typer.Typer:
    made = typer.Typer()

    @taking(Asked)
    def command(asked: Asked) -> None:
        """Keep what was asked."""
        given.append(asked)

    made.command()(command)
    return made


def test_options_arrive_as_one_value(app: typer.Typer, given: list[Asked]) -> None:
    run = CliRunner().invoke
    assert run(app, ["here", "--out", "there"]).exit_code == 0
    words = "here --out there --name a --name b --many 2 --rest 0.5".split()
    assert run(app, words).exit_code == 0
    assert given == [
        Asked(Path("here"), Path("there")),
        Asked(Path("here"), Path("there"), ["a", "b"], 2, 0.5),
    ]


@pytest.mark.parametrize("words", ["here", "--out x", "a --out b --many 0", "a --out b -z"])
def test_what_does_not_fit_is_refused(app: typer.Typer, given: list[Asked], words: str) -> None:
    assert CliRunner().invoke(app, words.split()).exit_code == 2
    assert given == []


def test_the_help_is_of_the_function_and_the_fields(app: typer.Typer) -> None:
    told = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).output
    for words in ("Keep what was asked.", "Where.", "Repeat.", "--many", "[default: 3]"):
        assert words in told
