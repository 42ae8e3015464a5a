"""How does a command take its options? As one frozen dataclass, and those that several share."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

Options = TypeVar("Options")
Command = Callable[..., None]


def taking(options: type[Options]) -> Callable[[Callable[[Options], None]], Command]:
    """The command whose options are the fields of a dataclass, which it is handed whole.

    typer reads the fields as it reads a function's parameters: their annotations and defaults.
    """
    hints = get_type_hints(options, include_extras=True)
    shown = list(inspect.signature(options).parameters.values())
    for place, field in enumerate(fields(options)):  # type: ignore[arg-type]
        shown[place] = shown[place].replace(annotation=hints[field.name])
        if field.default_factory is not MISSING:
            shown[place] = shown[place].replace(default=None)

    def decorate(run: Callable[[Options], None]) -> Command:
        def command(**given: Any) -> None:
            run(options(**{name: value for name, value in given.items() if value is not None}))

        command.__doc__, command.__annotations__ = run.__doc__, hints
        command.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        return command

    return decorate


def _look_there(folder: Path | None) -> Path | None:
    """Every source looks there from now on, in this process and those that it starts."""
    if folder is not None:
        os.environ["OVERHEARD_DATA"] = str(folder)
    return folder


Run = Annotated[Path, typer.Argument(help="A recording.")]
Out = Annotated[Path, typer.Option(help="Where to write; must not exist yet.")]
Seed = Annotated[int | None, typer.Option(help="Seed of every random choice.", show_default="0")]
# For commands that draw nothing at random: scripts may pass the same --seed to all of them.
NoSeed = Annotated[int | None, typer.Option("--seed", hidden=True)]
Grant = Annotated[
    list[str],
    typer.Option(help='Knowledge beyond the threat model (repeat), e.g. "group counts".'),
]
# For commands that load data; to name it among the options is enough.
DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder with the sources' files, as `overheard data list` names them.",
        exists=True,
        file_okay=False,
        callback=_look_there,
    ),
]
Describing = Annotated[
    Path | None,
    typer.Option(
        "--with",
        help="TOML file with what the recording lacks (`overheard init` writes one to fill in); "
        "default: audit.toml in the recording, if it is there.",
    ),
]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        help="Import the model factory that the TOML file of --with names; never one found in the "
        "recording.",
    ),
]
