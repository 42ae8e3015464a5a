"""How does a command take its options? As one frozen dataclass, and those that several share."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

Options = TypeVar("Options")
Command = Callable[..., None]
NEEDED = dataclasses.MISSING


def option(help: str, default: Any = NEEDED, *names: str, **more: Any) -> Any:
    """A field that is given by its name or by these; ``list``: it may be repeated."""
    how = {"typer": typer.Option(*names, help=help, **more)}
    if default is list:
        return dataclasses.field(default_factory=list, metadata=how)
    return dataclasses.field(default=default, metadata=how)


def argument(help: str, **more: Any) -> Any:
    """A field that is given by its place."""
    return dataclasses.field(metadata={"typer": typer.Argument(help=help, **more)})


def taking(options: type[Options]) -> Callable[[Callable[[Options], None]], Command]:
    """The command whose options are the fields of a dataclass, which it is handed whole.

    typer reads the fields as it reads a function's parameters: their types and defaults.
    """
    hints, shown = get_type_hints(options, include_extras=True), []
    for field in dataclasses.fields(options):  # type: ignore[arg-type]
        hint, how = hints[field.name], field.metadata.get("typer")
        default = None if field.default_factory is not NEEDED else field.default
        shown.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if default is NEEDED else default,
                annotation=hint if how is None else Annotated[hint, how],
            )
        )

    def decorate(run: Callable[[Options], None]) -> Command:
        def command(**given: Any) -> None:
            run(options(**{name: value for name, value in given.items() if value is not None}))

        command.__doc__, command.__annotations__ = run.__doc__, {}
        command.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        return command

    return decorate


Run = Annotated[Path, typer.Argument(help="A recording.")]
Out = Annotated[Path, typer.Option(help="Where to write; must not exist yet.")]
Seed = Annotated[int | None, typer.Option(help="Seed of every random choice.", show_default="0")]
# For commands that draw nothing at random: scripts may pass the same --seed to all of them.
NoSeed = Annotated[int | None, typer.Option("--seed", hidden=True)]
Grant = Annotated[
    list[str], typer.Option(help='Knowledge beyond the threat model (repeat), e.g. "group counts".')
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
