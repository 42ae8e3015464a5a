"""What a command says and how: tables and bars for people, plain lines and JSON for programs.

On a terminal: rich tables, and bars with the time left on stderr. Into a pipe: the same rows as
plain lines, tab-separated and never cut, and in place of a bar a line on stderr when a step begins.
``--quiet`` leaves only the paths of what was written, ``--json`` one JSON object. ``NO_COLOR`` is
honoured throughout.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import typer

from overheard.foreign.shown import visible

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn


_MODE = SimpleNamespace(quiet=False, json=False)
FLAGS = {"--quiet": "quiet", "-q": "quiet", "--json": "json"}


def show_error(kind: type[BaseException], error: BaseException, trace: Any) -> None:
    """What Python prints of an error that nobody caught, with names in it made visible."""
    lines = "".join(traceback.format_exception(kind, error, trace))
    typer.echo(visible(lines, keep="\n\t"), err=True, nl=False)


def show_warning(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
    """What a library warns of, on one line: it may quote foreign names."""
    complain(f"warning: {category.__name__}: {message}")


def take_flags(words: Sequence[str]) -> list[str]:
    """Note ``--quiet`` and ``--json``, wherever they stand, and return the other words."""
    _MODE.quiet = _MODE.json = False
    end = words.index("--") if "--" in words else len(words)
    for word in words[:end]:
        if word in FLAGS:
            setattr(_MODE, FLAGS[word], True)
    return [word for word in words[:end] if word not in FLAGS] + list(words[end:])


def emit(content: Any) -> None:
    """The command's result as JSON, if that was asked for."""
    if _MODE.json:
        typer.echo(json.dumps(content, indent=1, default=str))  # ASCII steers no terminal


def say(*lines: str) -> None:
    """Lines for people; not with ``--quiet`` or ``--json``. They wrap on a terminal only.

    A name with a line break in it cannot pass for a line of its own.
    """
    if _MODE.quiet or _MODE.json:
        return
    text = "\n".join(map(visible, lines))
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.text import Text

        Console().print(Text(text))
    else:
        typer.echo(text)


def complain(text: str) -> None:
    """A line on stderr, whatever the mode."""
    typer.echo(visible(" ".join(text.split())), err=True)


def wrote(kind: str, path: Path | str) -> None:
    """Where something was written: the one thing that ``--quiet`` leaves."""
    if _MODE.quiet:
        typer.echo(visible(str(path)))
    elif not _MODE.json:
        typer.echo(visible(f"{kind:<10} {path}"))


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
    title = visible(title)
    if not sys.stdout.isatty():
        lines = ([title] if title else []) + ["\t".join(columns)]
        lines += ["\t".join(visible(" ".join(cell.split())) for cell in row) for row in rows]
        typer.echo("\n".join(lines))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=Text(title) if title else None, show_lines=wide)
    for column in columns:
        drawn.add_column(
            Text(column), justify="right" if column in right else "left", overflow="fold"
        )
    for row in rows:
        drawn.add_row(*(Text(visible(cell)) for cell in row))
    Console().print(drawn)


def _bar(*columns: ProgressColumn, transient: bool = False) -> Progress:
    """What a bar is about, as it is (names in it are not rich's markup), and these columns."""
    from rich.console import Console
    from rich.progress import Progress, TextColumn

    about = TextColumn("{task.description}", markup=False)
    silent = _MODE.quiet or _MODE.json or not sys.stderr.isatty()
    screen = Console(stderr=True)
    return Progress(about, *columns, console=screen, transient=transient, disable=silent)


@contextmanager
def steps(title: str) -> Iterator[Callable[[str, int, int], None]]:
    """What to call as ``show(what, done, total)`` when a step begins, and when all are done.

    A bar with the time left on a terminal. Elsewhere a line on stderr for
    every step that is called something else than the one before; hours without a word look like a
    program that hangs.
    """
    from rich import progress as rich

    lines = not (_MODE.quiet or _MODE.json or sys.stderr.isatty())
    text, columns = "", (rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn())
    with _bar(*columns) as bar:
        task = bar.add_task(title, total=None)

        def show(what: str, done: int, total: int) -> None:
            nonlocal text
            about = visible(f"{title} {what}".strip())
            bar.update(task, completed=done, total=total, description=about)
            if lines and what not in ("", text) and done < total:
                text = what
                complain(f"{title} {what} ({done} of {total} done)")

        yield show


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """A spinner for a step that cannot be counted, with the time it has taken."""
    from rich import progress as rich

    with _bar(rich.SpinnerColumn(), rich.TimeElapsedColumn(), transient=True) as bar:
        bar.add_task(visible(what), total=None)
        yield
