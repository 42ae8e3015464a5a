"""Run a sweep's cells, several at once, and keep each result the moment it is there.

A cell is a federation, recorded; an adversary listens, and the model is tried on records that
nobody trained on. Only the process that was started writes results: ``DIR/sweep.json`` says what is
swept, ``DIR/cells/`` keeps the finished cells (`evaluation.checkpoint`), ``DIR/scratch/`` has the
recordings of the cells that are being measured. Killed at any moment, the next call runs what is
missing. A cell that fails is kept with its error, and the others go on.

``DIR/results.csv`` is all of them as one table: a row for every cell, attack and question. The same
sweep gives the same table, bit for bit.
"""

from __future__ import annotations

import csv
import io
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.data.dataset import Dataset
from overheard.data.source import add_sources, added
from overheard.errors import ChooseAnotherOutput, FixConfig, FixData, FixRecording, OverheardError
from overheard.evaluation.audit import audit
from overheard.evaluation.checkpoint import Checkpoint, Progress, silent
from overheard.evaluation.ladder import RUNGS
from overheard.evaluation.parts import AuditOptions
from overheard.evaluation.record import Audit, Finding, Part
from overheard.files import replace_durably, sole_writer, write_durably
from overheard.foreign.files import read_bounded, read_json
from overheard.programs.program import Program
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, encode
from overheard.randomness import stream
from overheard.sweep.grid import Cell, SweepConfig, cells, parse_sweep
from overheard.workers import shared_out

Array = NDArray[np.float64]
Row = dict[str, Any]
SCRATCH, TABLE = "scratch", "results.csv"
POOLED = tuple(
    "attack question attribute metric value low high majority imputation lift clients".split()
)
OF_CELL = set("utility utility_is utility_majority epsilon threat error".split())


def sweep(
    config: SweepConfig,
    out: str | Path,
    workers: str = "1",
    again: bool = False,
    progress: Progress = silent,
) -> Path:
    """Run every cell that ``out`` does not hold yet; returns ``out``.

    ``workers``: as in `overheard.workers`. ``again``: run cells once more that failed before. A
    disk that is full ends the sweep; what is finished is kept, and the next call goes on from
    there.
    """
    folder = Path(out)
    wanted = cells(config)
    with _begun(folder, config) as kept:
        left = [cell for cell in wanted if not _is_finished(kept.read(cell.key), again)]
        done = len(wanted) - len(left)
        progress("", done, len(wanted))
        # what a killed process leaves in the scratch folder, the next sweep removes
        task = partial(run_cell, scratch=folder / SCRATCH, known=added())

        def say(words: str) -> None:
            progress(words, done, len(wanted))

        for result in shared_out(task, [(cell,) for cell in left], workers, "cell", say):
            kept.keep([result], result.key)
            done += 1
            say(result.name)
    return folder


@contextmanager
def _begun(folder: Path, config: SweepConfig) -> Iterator[Checkpoint]:
    """The folder, begun or continued, with this process its only writer: what it holds."""
    asked = {"version of overheard": version("overheard"), "sweep": config.model_dump(mode="json")}
    about = json.dumps(asked, indent=1).encode()
    described, scratch = folder / "sweep.json", folder / SCRATCH
    (folder / "cells").mkdir(parents=True, exist_ok=True)
    with sole_writer(folder, "another sweep"):
        shutil.rmtree(scratch, ignore_errors=True)
        if not described.exists():
            write_durably(described, [about])
        elif read_bounded(described, "json_bytes") != about:
            raise ChooseAnotherOutput(
                f"{folder} holds another sweep, or one of another version of overheard; choose "
                "another folder, or give the same file"
            )
        try:
            scratch.mkdir(mode=0o700)
            yield _kept(folder)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _kept(folder: Path) -> Checkpoint:
    return Checkpoint(folder / "cells", CellResult)


def _is_finished(found: list[CellResult] | None, again: bool) -> bool:
    return found is not None and not (again and any(result.error for result in found))


# ----------------------------------------------------------------------------------- one cell


class CellResult(Part):
    """What a cell found. ``error``: why it is not all there is; ``findings``: over all clients."""

    key: str
    name: str
    error: str | None = None
    utility: float | None = None
    utility_is: str = ""
    utility_majority: float | None = None
    epsilon: float | None = None
    threat: str = ""
    audited: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    skipped: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def run_cell(cell: Cell, scratch: Path | None = None, known: Sequence[str] = ()) -> CellResult:
    """What a cell found; an error of the cell is part of its result.

    ``scratch``: the folder in which its recording lies while it is measured; where there is none
    (on another machine), the system's. Its name is in no result. ``known``: the packages whose data
    sources whoever hands out the cell knows.
    """
    for package in known:
        add_sources(package)
    about: dict[str, Any] = {"key": cell.key, "name": cell.name}
    there = scratch if scratch and scratch.is_dir() else None
    with tempfile.TemporaryDirectory(
        prefix="overheard-cell-", dir=there, ignore_cleanup_errors=True
    ) as folder:
        try:
            found = CellResult(**about, **_measured(cell, Path(folder)))
        except (OverheardError, ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            found = CellResult(**about, error=f"{type(error).__name__}: {error}")
    text = found.model_dump_json().replace(json.dumps(f"{folder}/")[1:-1], "")
    return CellResult.model_validate_json(text)


def _measured(cell: Cell, folder: Path) -> dict[str, Any]:
    from overheard.federation.federation import parse_config
    from overheard.federation.plan import load_data, plan
    from overheard.federation.simulate import NetworkRounds, run_rounds
    from overheard.transcript.store import Recording
    from overheard.transcript.threat import threat_named

    config, asked = parse_config(cell.config), cell.asked
    kept, held = hold_out(load_data(config), asked["holdout"], cell.seed)
    ready = plan(config, kept)
    ended = run_rounds(ready, folder / "run")
    recording = Recording.open(folder / "run")
    if isinstance(ended, NetworkRounds):
        value, name = network_worth(ended.recipe, ended.model.astype(np.float64), held)
    else:
        bare = plan(config.model_copy(update={"defence": ()}), kept).program
        assert not isinstance(bare, Recipe)
        value, name = program_worth(recording, ended.program, ended.sent, bare, held)
    who = (threat_named(asked["threat"]), asked["attacks"], asked["clients"], asked["targets"])
    options = AuditOptions(seed=cell.seed, rounds=False, ladder=asked["ladder"])
    record = audit(recording, *who, options)
    broken = [f"{f.attack} on {f.client}: {f.reason}" for f in record.failed]
    return {
        "error": "; ".join(broken) or None,
        "utility": value,
        "utility_is": name,
        "utility_majority": _majority(kept.records[kept.target], held[kept.target], name),
        "epsilon": record.promise.changed if record.promise is not None else None,
        "threat": asked["threat"],
        "audited": tuple(sorted({str(f.client) for f in record.findings})),
        "findings": tuple(pooled_rows(record)),
        "skipped": tuple(sorted({f"{s.attack}: {s.reason}" for s in record.skipped})),
        "notes": record.notes,
    }


def hold_out(dataset: Dataset, share: float, seed: int) -> tuple[Dataset, Records]:
    """The dataset without, and the records with, a share of each client's records."""
    names = dataset.records[dataset.client]
    keys = stream(seed, "holdout").random(len(names))
    _, which, sizes = np.unique(names, return_inverse=True, return_counts=True)
    order = np.lexsort((keys, which))  # client by client, each in its random order
    place = np.arange(len(names)) - np.repeat(sizes.cumsum() - sizes, sizes)
    held = np.zeros(len(names), dtype=bool)
    held[order] = place < np.repeat(np.round(share * sizes), sizes)
    for values in dataset.records.columns.values():
        if values.dtype.kind not in "biuf":  # whose value nobody trained on has, is trained on
            held &= np.isin(values, values[~held])
    if not held.any() or held.all():
        raise FixData(f"a holdout of {share:g} of {len(names)} records leaves one side empty")
    return (
        replace(dataset, records=dataset.records.take(~held)),
        dataset.records.take(held).without(dataset.client),
    )


def network_worth(recipe: Recipe, model: Array, held: Records) -> tuple[float, str]:
    """Accuracy of a classifier, share of explained variance of a regression; and which it is."""
    from overheard.programs.losses import loss_named
    from overheard.programs.networks import network

    outputs = np.asarray(network(recipe).predict(model, encode(recipe.encoding, held)), np.float64)
    return _score(outputs, recipe.target.encode(held), loss_named(recipe.loss).classes)


def program_worth(
    recording: Any, program: Program, sent: Any, bare: Program, held: Records
) -> tuple[float, str]:
    """The same of the model that a program would send next; where it makes none, how close its
    last release is, over all clients, to what ``bare``, without defences, releases."""
    outputs = program.predict(sent, held)
    if outputs is not None:
        return _score(outputs, program.target.encode(held), bool(program.target.classes))
    entry, rng, truth = recording.rounds[-1], stream(0, "worth"), recording.truth()
    ways = [key for key in entry.spans if key[0] != "sent"]
    received, *released = recording.messages(entry, [("sent", ""), *ways])
    true = _added([bare.respond(received, truth[c], rng) for c in entry.participants or ()])
    found = _added(released)
    off = sum(np.abs(a - b).sum() for a, b in zip(found, true, strict=True))
    return 1 - float(off / max(sum(np.abs(b).sum() for b in true), 1e-300)), "closeness of tables"


def _added(messages: list[Mapping[str, NDArray[Any]]]) -> list[Array]:
    """The numbers of several messages, added up; what is not shown (below 0 in counts) is 0."""
    kept = [[a for n, a in m.items() if not n.endswith("shown")] for m in messages]
    hidden = [[np.where(a < 0, 0, a) if a.dtype.kind == "i" else a for a in one] for one in kept]
    return [np.sum(parts, axis=0, dtype=np.float64) for parts in zip(*hidden, strict=True)]


def _score(outputs: Array, labels: Array, classes: bool) -> tuple[float, str]:
    if not classes:
        left = float(np.mean((outputs[:, 0] - labels) ** 2))
        return 1 - left / float(labels.var()), "r2"
    chosen = (outputs[:, 0] > 0) if outputs.shape[1] == 1 else outputs.argmax(axis=1)
    return float(np.mean(chosen == labels)), "accuracy"


def _majority(trained: NDArray[Any], held: NDArray[Any], name: str) -> float | None:
    """What the best constant is worth: the commonest class, or for r2 the mean, which is worth 0 by
    definition; None of tables."""
    if name != "accuracy":
        return 0.0 if name == "r2" else None
    values, counts = np.unique(trained, return_counts=True)
    return float(np.mean(held == values[counts.argmax()]))


def pooled_rows(record: Audit) -> Iterator[Finding]:
    """Every attack over all clients; and of a ladder every rung below the first, which is the audit
    itself. Without seconds, which no two runs share."""
    lower = (r for r in record.ladder if not r.client and r.rung != RUNGS[0].name)
    for one in (*record.pooled, *lower):
        yield one.model_copy(update={"seconds": 0.0})


def row_of(found: Finding, ladder: bool) -> Row:
    """A finding as a row of the table; of a ladder with the rung."""
    row: Row = {"rung": found.rung or RUNGS[0].name} if ladder else {}
    row |= {key: getattr(found, key) for key in POOLED} | {"records": found.n}
    of = found.calibration
    row |= {"people_known": of.known, "bits": of.bits} if of else {"people_known": None}
    return row | {"level": found.level, "flagged": found.flagged}


# ---------------------------------------------------------------------------------- the table


def read_rows(folder: str | Path) -> list[Row]:
    """The table's rows, in the order of the sweep; cells that failed have an ``error``."""
    root = Path(folder)
    found: list[Row] = []
    sweep = read_described(root)
    for cell in cells(sweep):
        for result in _kept(root).read(cell.key) or ():
            shared = {"cell": cell.key, "defence": cell.defence, "strength": cell.strength}
            shared |= {"seed": cell.seed} | {key: _plain(v) for key, v in cell.varied.items()}
            shared |= result.model_dump(include=OF_CELL) | {"audited": len(result.audited)}
            found += [shared | row_of(one, sweep.ladder) for one in result.findings] or [shared]
    if not found:
        raise FixConfig(f"{root}: no cell is finished yet; run `overheard sweep` first")
    return found


def write_table(folder: str | Path) -> Path:
    """The table from the finished cells; an older one is replaced as a whole."""
    rows, path, text = read_rows(folder), Path(folder) / TABLE, io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = csv.DictWriter(text, names, lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    replace_durably(path, text.getvalue().encode())
    return path


def read_described(root: Path) -> SweepConfig:
    """What the sweep of this folder is."""
    path = root / "sweep.json"
    try:
        content = read_json(path)
    except FixRecording as error:
        raise FixConfig(f"{error}; is {root} the folder of a sweep?") from error
    if not isinstance(content, Mapping) or not isinstance(content.get("sweep"), dict):
        raise FixConfig(f"{path}: does not describe a sweep")
    return parse_sweep(content["sweep"], str(path))


def _plain(value: Any) -> Any:
    """Values that a cell of a table can hold; lists and tables as JSON."""
    return value if isinstance(value, str | int | float | bool) else json.dumps(value)
