"""What a command says and how: tables and bars for people, plain lines and JSON for programs.

On a terminal: rich tables, and bars with the time left on stderr. Into a pipe: the same rows as
plain lines, tab-separated and never cut, and no bar. ``--quiet`` leaves only the paths of what was
written, ``--json`` one JSON object. ``NO_COLOR`` is honoured throughout.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.progress import Progress


@dataclass
class _Mode:
    quiet: bool = False
    json: bool = False


_MODE = _Mode()
FLAGS = {"--quiet": "quiet", "-q": "quiet", "--json": "json"}


def take_flags(words: Sequence[str]) -> list[str]:
    """Note ``--quiet`` and ``--json``, wherever they stand, and return the other words."""
    _MODE.quiet = _MODE.json = False
    end = words.index("--") if "--" in words else len(words)
    for word in words[:end]:
        if word in FLAGS:
            setattr(_MODE, FLAGS[word], True)
    return [word for word in words[:end] if word not in FLAGS] + list(words[end:])


def wants_json() -> bool:
    """Whether the command is to print one JSON object and nothing else."""
    return _MODE.json


def emit(content: Any) -> None:
    """The command's result as JSON, if that was asked for."""
    if _MODE.json:
        typer.echo(json.dumps(content, indent=1, ensure_ascii=False, default=str))


def say(text: str) -> None:
    """A line for people; not with ``--quiet`` or ``--json``. Lines wrap on a terminal only."""
    if _MODE.quiet or _MODE.json:
        return
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(text, markup=False, highlight=False)
    else:
        typer.echo(text)


def wrote(kind: str, path: Path | str) -> None:
    """Where something was written: the one thing that ``--quiet`` leaves."""
    if _MODE.quiet:
        typer.echo(str(path))
    elif not _MODE.json:
        typer.echo(f"{kind:<10} {path}")


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    title: str = "",
    right: Sequence[str] = (),
    wide: bool = False,
) -> None:
    """A table; ``right``: columns aligned to the right, ``wide``: lines between rows."""
    if _MODE.quiet or _MODE.json:
        return
    if not sys.stdout.isatty():
        lines = ([title] if title else []) + ["\t".join(columns)]
        lines += ["\t".join(" ".join(cell.split()) for cell in row) for row in rows]
        typer.echo("\n".join(lines))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=title or None, show_lines=wide)
    for column in columns:
        drawn.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console().print(drawn)


@contextmanager
def progress() -> Iterator[Progress]:
    """A bar with the time left, on stderr and on a terminal only; an error wipes it."""
    from rich import progress
    from rich.console import Console

    with progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        disable=_MODE.quiet or _MODE.json or not sys.stderr.isatty(),
    ) as bar:
        try:
            yield bar
        except BaseException:
            bar.live.transient = True
            bar.live.stop()
            bar.disable = True  # or leaving prints an empty line
            raise


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """A spinner for a step that cannot be counted, with the time it has taken."""
    from rich import progress
    from rich.console import Console

    with progress.Progress(
        progress.SpinnerColumn(),
        progress.TextColumn("{task.description}"),
        progress.TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=_MODE.quiet or _MODE.json or not sys.stderr.isatty(),
    ) as bar:
        bar.add_task(what, total=None)
        yield
