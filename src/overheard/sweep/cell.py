"""One cell: record the federation, let the adversary listen, measure what the model is worth."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.data.dataset import Dataset
from overheard.errors import FixData, OverheardError
from overheard.evaluation.audit import AuditOptions, audit
from overheard.evaluation.ladder import RUNGS
from overheard.evaluation.record import Audit
from overheard.federation.federation import parse_config
from overheard.federation.plan import load_data, plan
from overheard.federation.simulate import simulate
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records
from overheard.randomness import stream
from overheard.sweep.grid import Cell
from overheard.sweep.utility import global_model, utility, worth
from overheard.transcript.store import Recording
from overheard.transcript.threat import threat_named

Result = dict[str, Any]
POOLED = tuple(
    "attack question attribute metric value low high majority imputation lift clients".split()
)
DETAILS = ("bits_gained", "calibration_error", "balanced_accuracy")


def run_cell(cell: Cell, scratch: Path | None = None) -> Result:
    """What a cell found, as plain JSON; an error of the cell is part of its result.

    ``scratch``: the folder in which its recording lies while it is measured; by default the
    system's. Its name is in no result.
    """
    begin = time.perf_counter()
    about: Result = {"key": cell.key, "name": cell.name, "config": cell.config}
    about |= {"version": version("overheard"), "seed": cell.seed}
    with tempfile.TemporaryDirectory(
        prefix="overheard-cell-", dir=scratch, ignore_cleanup_errors=True
    ) as folder:
        try:
            found = _measure(cell, Path(folder))
        except (OverheardError, ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            found = {"error": f"{type(error).__name__}: {error}"}
    text = json.dumps(found).replace(json.dumps(f"{folder}/")[1:-1], "")
    return about | dict(json.loads(text)) | {"seconds": time.perf_counter() - begin}


def _measure(cell: Cell, folder: Path) -> Result:
    config = parse_config(cell.config)
    kept, held = hold_out(load_data(config), cell.holdout, cell.seed)
    ready = plan(config, kept)
    recording = Recording.open(simulate(ready, folder / "run"))
    if isinstance(ready.told, Recipe):
        model = global_model(recording, ready.told, config.server_rule())
        value, name = utility(ready.told, model, held)
    else:
        bare = plan(config.model_copy(update={"defence": ()}), kept).told
        assert not isinstance(bare, Recipe)
        value, name = worth(recording, ready.told, bare, held)
    threat = threat_named(cell.threat)
    options = AuditOptions(seed=cell.seed, rounds=False, ladder=cell.ladder)
    record = audit(recording, threat, cell.attacks, cell.clients, cell.targets, options)
    broken = [f"{f.attack} on {f.client}: {f.reason}" for f in record.failed]
    return {
        **({"error": "; ".join(broken)} if broken else {}),
        "utility": value,
        "utility_is": name,
        "findings": rows(record),
        "skipped": sorted({f"{s.attack}: {s.reason}" for s in record.skipped}),
        "notes": list(record.notes),
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
    if not held.any() or held.all():
        raise FixData(f"a holdout of {share:g} of {len(names)} records leaves one side empty")
    return (
        replace(dataset, records=dataset.records.take(~held)),
        dataset.records.take(held).without(dataset.client),
    )


def rows(record: Audit) -> list[Result]:
    """One row per attack and question, over all clients, with what its findings say on average;
    and of a ladder one per rung below the first, which is the audit itself."""
    found, top = [], {"rung": RUNGS[0].name} if record.ladder else {}
    for pooled in record.pooled:
        mine = [
            f
            for f in record.findings
            if (f.attack, f.attribute) == (pooled.attack, pooled.attribute)
        ]
        weights = np.array([f.n for f in mine], dtype=np.float64)
        details = {key: _mean([f.details.get(key) for f in mine], weights) for key in DETAILS}
        flagged = sum(1 for f in mine if "flag" in f.details)
        shared = top | {key: getattr(pooled, key) for key in POOLED}
        found.append(shared | {"records": pooled.n, "flagged": flagged} | details)
    known = {pooled.attribute: pooled for pooled in record.pooled}
    for rung in (r for r in record.ladder if not r.client and r.rung != RUNGS[0].name):
        better = max(known[rung.attribute].majority or 0.0, rung.imputation or 0.0)
        shared = {key: getattr(known[rung.attribute], key) for key in POOLED}
        shared |= {key: getattr(rung, key) for key in ("rung", "attack", "value", "low", "high")}
        shared |= {"imputation": rung.imputation, "lift": rung.value - better, "records": rung.n}
        found.append(shared | {"flagged": int(bool(rung.flag))} | dict.fromkeys(DETAILS))
    return found


def _mean(values: list[Any], weights: NDArray[np.float64]) -> float | None:
    numbers = [v for v in values if isinstance(v, int | float)]
    if len(numbers) < len(values) or not numbers:
        return None
    return float(np.average(numbers, weights=weights))
