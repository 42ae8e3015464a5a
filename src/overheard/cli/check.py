"""``overheard check``: what is in a table, and the smallest federation file that works with it."""

from __future__ import annotations

import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

import overheard
from overheard import terminal
from overheard.cli.options import Out
from overheard.errors import FixConfig
from overheard.files import refuse_existing, write_durably
from overheard.foreign.shown import command

if TYPE_CHECKING:
    from overheard.data.file import Role

SECRETS = 2
"""Columns that the written file asks about: the first with the fewest values."""


def check(
    table: Annotated[Path, Argument(help="CSV or Parquet table of all clients' records.")],
    out: Out = Path("federation.toml"),
    client: Annotated[
        str, Option(help="Column that says whose record it is.", show_default="by its name")
    ] = "",
    target: Annotated[
        str, Option(help="Column that the model predicts.", show_default="by its name")
    ] = "",
    secret: Annotated[
        list[str], Option(help="Column to ask about (repeat); default: those with fewest values.")
    ] = [],
) -> None:
    """Say what each column of a table is, and write the smallest federation file that works.

    Ids, dates, free text and constants are left out of the model; rows with gaps are left out. The
    file is tried: one client is attacked on one secret, which tells how long an audit will take.
    """
    from overheard.data.dataset import Data
    from overheard.data.file import NO_VALUE, NOT_INPUTS, called, read_table, roles
    from overheard.federation.reading import written

    refuse_existing(out)
    found, rows = roles(table)
    names = [role.name for role in found]
    client = client or called([r.name for r in found if r.what in ("category", "number")], "client")
    target = target or called([n for n in names if n != client], "target")
    for option, name in (("client", client), ("target", target)):
        if name not in names:
            raise FixConfig(
                f"{table}: which column is the {option}? Give --{option}, one of {names}"
            )
    drop = [r.name for r in found if r.what in NOT_INPUTS and r.name not in (client, target)]
    inputs = [r for r in found if r.name not in (client, target, *drop)]
    data: dict[str, Any] = {"source": "file", "path": str(table), "client": client}
    data |= {"target": target, "drop": drop}
    if table.suffix != ".parquet" and any(r.gaps for r in found if r.name not in drop):
        data["missing"] = sorted(NO_VALUE)
    left = len(read_table(Data(**data))[0])
    by_values = sorted((r for r in inputs if r.values > 1), key=lambda r: r.values)
    asked = secret or [r.name for r in by_values[:SECRETS]]
    goal = next(r for r in found if r.name == target)
    kind = "logistic" if goal.what == "category" or goal.values == 2 else "linear"
    data |= {"task": "classification"} if kind == "logistic" else {}
    training = {"rounds": 3, "learning_rate": 0.1}
    federation = {"data": data, "model": {"name": kind}, "training": training}
    federation |= {"audit": {"attributes": asked}}
    _show(found, {client: "whose record it is", target: "what the model predicts"}, asked)
    seconds, size = _tried(federation)
    terminal.say(
        f"{rows:,} rows, {rows - left:,} of them left out because a value is missing",
        f"{sum(r.inputs for r in inputs):,} inputs, {size:,} parameters ({kind})",
        f"an audit of all clients takes about {_minutes(seconds)}",
    )
    path = Path(table).resolve().parent == out.resolve().parent
    data["path"] = table.name if path else str(table.resolve())
    about = ["Written by overheard check. Every key: overheard explain"]
    write_durably(out, [written(federation, about)])
    terminal.wrote("wrote", out)
    terminal.say("next       " + command("simulate", out, "--out", f"{out.with_suffix('')}-run"))
    columns = [asdict(role) for role in found]
    terminal.emit({"federation": str(out), "columns": columns, "rows": rows, "left": left})


def _show(found: list[Role], roles: dict[str, str], asked: list[str]) -> None:
    from overheard.data.file import NOT_INPUTS
    from overheard.report.words import joined

    rows = []
    for r in found:
        what = f"{r.what}: left out" if r.what in NOT_INPUTS else r.what
        remark = f"{len(r.rare)} values that fewer than 5 rows have: {joined(r.rare, 5)}"
        used = "secret" if r.name in asked else roles.get(r.name, "")
        rows.append((r.name, what, f"{r.values}", f"{r.gaps}", used, remark if r.rare else ""))
    terminal.table(["column", "what it is", "values", "gaps", "used as", "rare values"], rows)


def _tried(federation: dict[str, Any]) -> tuple[float, int]:
    """Seconds that an audit takes, by one client and one secret; and parameters of the model."""
    with terminal.waiting("trying it"), tempfile.TemporaryDirectory() as folder:
        ready = overheard.plan(overheard.parse_config(federation))
        run = overheard.Recording.open(overheard.simulate(ready, Path(folder) / "run"))
        begin = time.perf_counter()
        largest = max(ready.clients, key=lambda c: len(ready.clients[c]))
        who = overheard.threat_named("eavesdropper")
        secret = next(t for t in run.targets if t.startswith("attribute"))
        overheard.audit(run, who, clients=[largest], targets=[secret])
        many = len(ready.clients) * len(federation["audit"]["attributes"])
        return (time.perf_counter() - begin) * many, ready.recipe.model.size


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} seconds" if seconds < 90 else f"{seconds / 60:.0f} minutes"
