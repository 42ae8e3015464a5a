"""Federations that experiments listen to: recorded for one cell, or once for all that share it."""

from __future__ import annotations

import csv
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import overheard
from experiments.runner import CACHE
from overheard.data.dataset import Dataset
from overheard.federation.federation import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.programs.records import Records
from overheard.transcript.store import Recording

CACHE_BYTES = 10 * 2**30
"""Of recordings that are kept; the oldest go first."""


def federation(
    seed: int,
    source: str,
    model: str | Mapping[str, Any],
    training: Mapping[str, Any],
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A federation's config: the data's source with its options, the model and its training."""
    return {
        "seed": seed,
        "data": {"source": source, "options": dict(options or {})},
        "model": {"name": model} if isinstance(model, str) else dict(model),
        "training": dict(training),
    }


@contextmanager
def recorded(
    config: Mapping[str, Any], dataset: Dataset | None = None, shared: bool = False
) -> Iterator[Recording]:
    """The recording of a federation; gone when the block ends, unless it is ``shared``.

    A shared one is kept by its config, its data and the package's code, and used again by whoever
    asks for the same.
    """
    if not shared:
        with tempfile.TemporaryDirectory() as scratch:
            yield simulated(config, dataset, Path(scratch) / "run")
        return
    folder = CACHE / "recordings" / _digest(config, dataset)

    def make(part: Path) -> None:
        simulated(config, dataset, part)
        _make_room(folder)

    with _once(folder / "run", make) as run:
        yield Recording.open(run)


def kept(what: object, make: Callable[[], Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Arrays that take long to make, kept by what they are of (in words) and the package's code."""
    name = hashlib.sha256(repr(what).encode() + _code()).hexdigest()[:24]
    path = CACHE / "arrays" / f"{name}.npz"
    with _once(path, lambda part: np.savez(part, **make())), np.load(path) as arrays:  # type: ignore[arg-type]
        return dict(arrays)


@contextmanager
def _once(place: Path, make: Callable[[Path], object]) -> Iterator[Path]:
    """A file or folder that one process makes while the others wait, and that stays for now."""
    place.parent.mkdir(parents=True, exist_ok=True)
    part = place.with_name(f"part-{place.name}")
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            shutil.rmtree(part, ignore_errors=True)  # of a killed process
            make(part)
            part.rename(place)
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield place


def simulated(config: Mapping[str, Any], dataset: Dataset | None, folder: Path) -> Recording:
    """The recording of a federation, simulated into the folder."""
    return Recording.open(simulate(plan(parse_config(dict(config)), dataset), folder))


def people(columns: Mapping[str, Any], classes: bool, **more: Any) -> Dataset:
    """A table of people of clients ``at`` with a label ``y`` and a secret ``s``."""
    settings = {"name": "people", "origin": "generated", **more}
    task: Any = "classification" if classes else "regression"
    records = Records(dict(columns))
    return Dataset(
        records=records, client="at", target="y", task=task, sensitive=("s",), **settings
    )


def coin_flips(
    clients: int, records: int, model: Mapping[str, Any], rounds: int, noise: float, seed: int
) -> tuple[dict[str, Any], Dataset]:
    """The config and the people of a federation whose secret is a coin flip that shows in ``y``,
    and of which no other column says anything."""
    rng = np.random.default_rng(seed)
    rows = clients * records
    s, x = (rng.random(rows) < 0.5).astype(np.float64), rng.normal(size=(rows, 3))
    y = x @ rng.normal(size=3) + s + rng.normal(size=rows)
    classes = model["name"] == "logistic"
    columns = {f"x{j}": x[:, j] for j in range(3)} | {"s": s, "at": np.arange(rows) % clients}
    columns["y"] = (y > 0.5).astype(np.float64) if classes else y
    config = federation(seed, "file", model, {"rounds": rounds, "learning_rate": 0.1}) | {
        "audit": {"attributes": ["s"]},
        "defence": [{"name": "gaussian", "sd": noise}] if noise else [],
    }
    return config, people(columns, classes)


def write_csv(path: Path, rows: Iterable[Iterable[object]]) -> None:
    """A table as a file, its heads first."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)


def _digest(config: Mapping[str, Any], dataset: Dataset | None) -> str:
    content = hashlib.sha256(json.dumps(config, sort_keys=True).encode() + _code())
    if dataset is not None:
        content.update(repr((dataset.client, dataset.target, dataset.sensitive)).encode())
        for part in (dataset.records, dataset.outside):
            for name, values in part.columns.items() if part is not None else ():
                content.update(name.encode() + str(values.dtype).encode() + values.tobytes())
    return content.hexdigest()[:24]


@cache
def _code() -> bytes:
    """A digest of the package: another code may send other messages."""
    content = hashlib.sha256()
    for path in sorted(Path(overheard.__file__).parent.rglob("*.py")):
        content.update(path.read_bytes())
    return content.digest()


def _make_room(newest: Path) -> None:
    """Remove the oldest recordings that nobody uses, until the rest fits."""
    kept = sorted(newest.parent.iterdir(), key=lambda path: path.stat().st_mtime)
    sizes = {path: sum(f.stat().st_size for f in path.rglob("*") if f.is_file()) for path in kept}
    total = sum(sizes.values())
    for path in kept:
        if total <= CACHE_BYTES or path == newest:
            return
        with suppress(OSError), (path / "run.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rename(path / "run", path / "part-run")
            shutil.rmtree(path / "part-run")
            total -= sizes[path]
