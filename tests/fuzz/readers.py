"""What is fuzzed: each reader of foreign files, with the files in ``corpus/`` to begin from.

A target takes bytes. It may return, or raise an `OverheardError`; anything else is a fault.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"


@dataclass(frozen=True)
class Reader:
    """``like`` says how inputs are changed: as ``json``, as ``toml`` or as ``bytes``; ``batch``:
    how many are tried before the clock is looked at."""

    name: str
    like: str
    read: Callable[[bytes, Path], None]
    batch: int = 10

    def seeds(self) -> list[bytes]:
        return [file.read_bytes() for file in sorted((CORPUS / self.name).iterdir())]


@cache
def attempting() -> ModuleType:
    """The builder of small recordings, and the readers, of ``tests/transcript``."""
    sys.path.insert(0, str(HERE.parent / "transcript"))
    import attempting

    return attempting


# ---- recordings, as one JSON document: the lines of their indexes, and what side/ says


def document(run: Path) -> dict[str, Any]:
    """A recording's indexes and descriptions."""
    found: dict[str, Any] = {}
    for folder in ("wire", "side", "truth"):
        found[folder] = attempting().lines_of(run / folder / "index.jsonl")
    found["content"] = {
        file.name: json.loads(file.read_text()) for file in sorted((run / "side").glob("*.json"))
    }
    return found


def rebuilt(raw: bytes, place: Path) -> Path:
    """The recording that a document describes; digests are right wherever they were left alone."""
    run = place / "run"
    shutil.copytree(_sound(), run)
    said = json.loads(raw)
    contents = said.get("content") if isinstance(said, dict) else {}
    contents = contents if isinstance(contents, dict) else {}
    for folder in ("wire", "side", "truth"):
        lines = said.get(folder) if isinstance(said, dict) else None
        if not isinstance(lines, list):
            continue
        for line in lines:
            name = line.get("file") if isinstance(line, dict) else None
            if folder == "side" and isinstance(name, str) and name in contents:
                new = json.dumps(contents[name]).encode()
                with suppress(OSError, ValueError):
                    (run / folder / name).write_bytes(new)
                line |= {"size": len(new), "sha256": hashlib.sha256(new).hexdigest()}
        attempting().forge(run / folder / "index.jsonl", lines)
    return run


@cache
def _sound() -> Path:
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="overheard-fuzz-"))
    attempting().sound(folder / "run")
    return folder / "run"


def _recording(raw: bytes, place: Path) -> None:
    rebuilt(raw, place)
    attempting().READERS["verify"](place)
    attempting().READERS["recording"](place)


def _audited(raw: bytes, place: Path) -> None:
    """A whole audit, with attacks that take milliseconds, and its report."""
    from overheard.evaluation.audit import audit
    from overheard.report import render
    from overheard.transcript.store import Recording
    from overheard.transcript.threat import threat_named

    recording = Recording.open(rebuilt(raw, place))
    attacks = ("majority", "last_returned", "model_based_linear", "exact_linear")
    render(audit(recording, threat_named("server"), attacks, recording.clients[:1]))


# ---- single files


def _tables(raw: bytes, place: Path) -> None:
    from overheard.transcript.tables import read_tables

    read_tables(raw, "table")


def _file(suffix: str) -> Callable[[bytes, Path], None]:
    def read(raw: bytes, place: Path) -> None:
        (place / f"table.{suffix}").write_bytes(raw)
        attempting().READERS["table"](place)

    return read


def _json(raw: bytes, place: Path) -> None:
    from overheard.foreign.notation import parse_json

    json.dumps(parse_json(raw, "text"))


def _checkpoint(raw: bytes, place: Path) -> None:
    from overheard.federation.recorders.folder import _read

    (place / "a.safetensors").write_bytes(raw)
    _read(place / "a.safetensors")


def _config(raw: bytes, place: Path) -> None:
    (place / "config.toml").write_bytes(raw)
    attempting().READERS["config"](place)


def _sweep(raw: bytes, place: Path) -> None:
    (place / "sweep.toml").write_bytes(raw)
    attempting().READERS["sweep"](place)


def _description(raw: bytes, place: Path) -> None:
    from overheard.federation.recorders.description import describe, read_description
    from overheard.transcript.store import Recording

    shutil.copytree(_sound(), place / "run")
    shutil.rmtree(place / "run/side")
    (place / "run/audit.toml").write_bytes(raw)
    rows = [f"{c},{i / 7},{'ab'[i % 2]},{i % 5}" for c in ("north", "south") for i in range(9)]
    (place / "run/people.csv").write_text("\n".join(["c,x,s,y", *rows]) + "\n")
    read = read_description(place / "run/audit.toml", confined=True)
    describe(Recording.open(place / "run"), read, place / "out")


def _pattern(raw: bytes, place: Path) -> None:
    folder = place / "folder/round_1"
    folder.mkdir(parents=True)
    for name in ("global", "a", "b"):
        shutil.copy(CORPUS / "checkpoint" / "two.safetensors", folder / f"{name}.safetensors")
    (place / "pattern.toml").write_bytes(raw)
    attempting().READERS["import"](place)


def _audit(raw: bytes, place: Path) -> None:
    from overheard.evaluation.compare import compare
    from overheard.evaluation.record import read_audit
    from overheard.report.digest import digest

    (place / "audit.json").write_bytes(raw)
    attempting().READERS["audit"](place)
    audit = read_audit(place / "audit.json")
    digest(audit, True)
    compare(audit, audit, True)


def _cells(raw: bytes, place: Path) -> None:
    (place / "sweep").mkdir()
    shutil.copy(HERE / "sweep.json", place / "sweep" / "sweep.json")
    (place / "sweep/cell.json").write_bytes(raw)
    attempting().READERS["cells"](place)


def _archive(suffix: str) -> Callable[[bytes, Path], None]:
    def read(raw: bytes, place: Path) -> None:
        (place / f"package.{suffix}").write_bytes(raw)
        attempting().READERS["archive"](place)

    return read


def _source(name: str, *files: str) -> Callable[[bytes, Path], None]:
    def read(raw: bytes, place: Path) -> None:
        from overheard.data import catalogue

        for file in files:
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_bytes(raw)
        catalogue.load(name, folder=place)

    return read


def _idx(raw: bytes, place: Path) -> None:
    from overheard.data.images import read_idx

    (place / "a.gz").write_bytes(raw)
    read_idx(place / "a.gz", (2, 2))


def _trees(raw: bytes, place: Path) -> None:
    """A model of trees, read, and records sent through it."""
    import numpy as np

    from overheard.programs.trees.model import read_growing, read_model

    model = read_model(raw, "model")
    inputs = np.full((4, max(model.features, 1)), np.nan, dtype=np.float32)
    inputs[1:] = np.array([[-1.0], [0.0], [1e9]])
    for tree in model.trees:
        assert tree.leaf[tree.leaves(inputs)].all()
    read_growing([b"", raw, raw], "model")


def _command(raw: bytes, place: Path) -> None:
    """The whole command on a recording: it ends with a number, and prints nothing that steers."""
    from unittest import mock

    from overheard.cli import main
    from overheard.foreign.shown import visible

    rebuilt(raw, place)
    out, code = io.StringIO(), None
    words = ["overheard", "audit", str(place / "run"), "--out", str(place / "a")]
    words += ["--attack", "majority", "--no-rounds"]
    with mock.patch.object(sys, "argv", words), redirect_stdout(out), redirect_stderr(out):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    if code not in (0, 1):
        raise AssertionError(f"exit {code}")
    bad = [c for c in set(out.getvalue()) if visible(c, keep="\n\t") != c]
    if bad:
        raise AssertionError(f"printed {bad[:5]!r}")


READERS = {
    reader.name: reader
    for reader in (
        Reader("recording", "json", _recording),
        Reader("audited", "json", _audited),
        Reader("command", "json", _command),
        Reader("tables", "bytes", _tables),
        Reader("parquet", "bytes", _file("parquet"), 3),  # each in a process of its own
        Reader("csv", "bytes", _file("csv")),
        Reader("json", "bytes", _json),
        Reader("checkpoint", "bytes", _checkpoint),
        Reader("config", "toml", _config),
        Reader("sweep", "toml", _sweep),
        Reader("description", "toml", _description),
        Reader("pattern", "toml", _pattern),
        Reader("audit", "json", _audit),
        Reader("cells", "json", _cells),
        Reader("wheel", "bytes", _archive("whl")),
        Reader("tarball", "bytes", _archive("tgz")),
        Reader("debian", "bytes", _archive("deb")),
        Reader("adult", "bytes", _source("adult", "adult/adult.data", "adult/adult.test")),
        Reader("location", "bytes", _source("location30", "location30/dataset_location.tgz")),
        Reader("wages", "bytes", _source("wages", "wages_cps/CPSSW8.csv.gz")),
        Reader("idx", "bytes", _idx),
        Reader("trees", "json", _trees),
        Reader("trees_binary", "bytes", _trees),
    )
}
