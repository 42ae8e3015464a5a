"""``python -m benchmarks``: how fast is it, beside what others would run, on this machine?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from overheard import terminal

if TYPE_CHECKING:
    from benchmarks.runner.run import Row

app = typer.Typer(add_completion=False, rich_markup_mode="markdown")


@app.command(epilog="Example: `python -m benchmarks start-up`")
def bench(
    names: Annotated[
        list[str] | None, typer.Argument(help="Comparisons or growth curves; default: all.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the results here (JSON).")] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Measurements of every party.")] = 3,
    quick: Annotated[bool, typer.Option(help="Small sizes, no growth: a minute, says little.")] = (
        False
    ),
    check: Annotated[
        Path | None,
        typer.Option(help="Exit 1 if a ratio is 30% below that in this file of results."),
    ] = None,
    growth: Annotated[bool, typer.Option(help="Measure the growth curves too.")] = True,
    notes: Annotated[
        list[str] | None, typer.Option("--note", help="A sentence for the results (repeat).")
    ] = None,
) -> None:
    """Time this program against its opponents: ratios, their spread and the peak memory."""
    from benchmarks.runner.catalogue import chosen
    from benchmarks.runner.results import lost, read_results
    from benchmarks.runner.run import compare, grow
    from benchmarks.runner.write import write_results
    from overheard.errors import FixConfig
    from overheard.origin import origin

    committed = read_results(check) if check is not None else None
    if committed is not None and committed["quick"] != quick:
        raise FixConfig(
            f"{check} was measured {'with' if committed['quick'] else 'without'} --quick, and "
            "ratios of different sizes do not compare; say the same here"
        )
    entries, curves = chosen(names or [])
    wanted = curves if growth and committed is None and (names or not quick) else []

    def stamped(row: Row) -> Row:
        """The row and how it was measured."""
        name = row.get("growth") or row["entry"]
        how = f"python -m benchmarks {name} --repeats {repeats}{' --quick' if quick else ''}"
        return row | origin(how)

    rows: list[Row] = []
    grown: list[Row] = []
    with terminal.progress() as bar:
        task = bar.add_task("bench", total=None)

        def show(what: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total, description=what)

        for entry in entries:
            found = compare(entry, repeats, quick, show)
            if committed is not None and lost(committed, found):
                found = compare(entry, repeats, quick, show)  # once more: somebody else was busy
            rows += found
            terminal.say(*map(_line, found))
        for curve in wanted:
            grown.append(grow(curve, quick, show))
            terminal.say(_curve(grown[-1]))
    content: dict[str, Any] = {
        "quick": quick,
        "comparisons": [stamped(row) for row in rows],
        "growth": [stamped(row) for row in grown],
    }
    if out is not None:
        content = write_results(out, content, repeats, notes or [])
        terminal.wrote("results", out)
    fallen = [] if committed is None else lost(committed, rows)
    for row in fallen:
        typer.echo(
            f"lost: {row['entry']} against {row['opponent']}: {row['ratio']:.3g}x, was "
            f"{row['before']:.3g}x",
            err=True,
        )
    terminal.emit(content | ({"lost": [row["entry"] for row in fallen]} if check else {}))
    if fallen:
        raise typer.Exit(1)


def _line(row: Row) -> str:
    """A comparison in one line."""
    head = f"{row['entry']} / {row['opponent']}: "
    if row["skipped"]:
        return f"{head}skipped, {row['skipped']}"
    text = f"{row['ratio']:.3g}x ({row['lowest']:.3g} - {row['highest']:.3g}), {row['clock']} time"
    if row["seconds_more_allowed"] is not None:
        text += f", {row['seconds_more']:+.3f} s of at most +{row['seconds_more_allowed']:g}"
    elif row["goal"]:
        text += f", goal {row['goal']:g}x"
    if "limit" in row:
        text += f", {row['ratio_at_the_limit']:.3g}x possible"
    text += f", peak {row['ours']['peak_mb']:.0f} MB beside {row['theirs']['peak_mb']:.0f} MB"
    failed = [says for says, held in row["checks"].items() if not held]
    text += "".join(f", NOT: {says}" for says in failed)
    return head + text + {True: ", met", False: ", MISSED", None: ""}[row["met"]]


def _curve(row: Row) -> str:
    """A growth curve in one line."""
    return (
        f"{row['growth']}: time ~ {row['axis']}^{row['time_exponent']:.2f}, memory ~ "
        f"{row['axis']}^{row['memory_exponent']:.2f}, peak {row['peak_gigabytes']:.2f} GB, "
        f"{'as expected' if row['met'] else 'NOT AS EXPECTED'}"
    )
