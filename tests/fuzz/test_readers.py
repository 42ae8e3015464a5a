"""Every reader of foreign files, fed the files of ``corpus/`` and changed ones: each is read or
refused in a line, soon. ``pytest --hypothesis-profile=search tests/fuzz`` tries 1,000 of each."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripts import load

from overheard.errors import OverheardError
from overheard.foreign.files import parse_json
from overheard.programs.trees import read_growing, read_model
from overheard.recorders.folder import read_arrays as read_checkpoint
from overheard.transcript.store import read_tables

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
attempting = load(HERE.parent / "transcript" / "attempting.py")
VALUES = (
    st.sampled_from([None, True, -1, 1e308, 1 << 63, "", "../x", "\x1b]0;a\x07<script>", [], {}])
    | st.integers(-(1 << 70), 1 << 70)
    | st.text(max_size=12)
)


@st.composite
def changed_json(draw: Any, seeds: list[bytes]) -> bytes:
    """Some nodes of the tree removed, or replaced by another value or by what another one holds."""
    tree = json.loads(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 4))):
        places = st.sampled_from([*_places(tree)] or [({"": tree}, "")])
        (parent, key), (other, where) = draw(places), draw(places)
        parent[key] = draw(VALUES | st.just(json.loads(json.dumps(other[where]))))
        if draw(st.booleans()):
            del parent[key]
    return json.dumps(tree).encode()


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from _places(tree[key])


@st.composite
def changed_toml(draw: Any, seeds: list[bytes]) -> bytes:
    """Some lines removed, doubled, or given another value."""
    lines = draw(st.sampled_from(seeds)).decode().splitlines()
    for at in draw(st.lists(st.integers(0, len(lines) - 1), min_size=1, max_size=4)):
        other = f"{lines[at].partition(' = ')[0]} = {json.dumps(draw(VALUES))}"
        lines[at] = draw(st.sampled_from(["", f"{lines[at]}\n{lines[at]}", other]))
    return "\n".join(lines).encode()


@st.composite
def changed_bytes(draw: Any, seeds: list[bytes]) -> bytes:
    """Some stretches of bytes replaced by others."""
    raw = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, len(raw)))
        raw[at : at + draw(st.integers(0, 16))] = draw(st.binary(max_size=8))
    return bytes(raw)


def recording(path: Path) -> None:
    """What a document says of a recording's indexes and side knowledge, written with digests that
    are right, then verified, opened and audited."""
    said, run = json.loads(path.read_bytes()), path.parent / "run"
    for folder in ("messages", "side", "truth"):
        with suppress(AttributeError, KeyError, TypeError):  # of this folder nothing is left
            for line in said[folder]:
                with suppress(KeyError, OSError, TypeError, ValueError):
                    new = json.dumps(said["content"][line["file"]]).encode()
                    (run / folder / line["file"]).write_bytes(new)
                    line |= {"size": len(new), "sha256": hashlib.sha256(new).hexdigest()}
            attempting.forge(run / folder / "index.jsonl", said[folder])
    for reader in ("verify", "recording", "audited"):
        attempting.READERS[reader](path.parent)


def trees(path: Path) -> None:
    """A model of trees, read, and records sent through it."""
    raw = path.read_bytes()
    model = read_model(raw, "model")
    inputs = np.full((4, max(model.features, 1)), np.nan, dtype=np.float32)
    inputs[1:] = np.array([[-1.0], [0.0], [1e9]])
    for tree in model.trees:
        assert tree.leaf[tree.leaves(inputs)].all()
    read_growing([b"", raw, raw], "model")


def known(reader: str, above: int = 0) -> Callable[[Path], None]:
    """That of tests/transcript/attempting.py, which is told the folder, so far above the file."""
    return lambda path: attempting.READERS[reader](path.parents[above])


READERS: dict[str, tuple[Any, str, Callable[[Path], Any]]] = {
    "recording": (changed_json, "document.json", recording),
    "tables": (changed_bytes, "raw", lambda path: read_tables(path.read_bytes(), "table")),
    "json": (changed_bytes, "raw", lambda path: json.dumps(parse_json(path.read_bytes(), "text"))),
    "checkpoint": (changed_bytes, "a.safetensors", read_checkpoint),
    "trees": (changed_json, "raw", trees),
    "trees_binary": (changed_bytes, "raw", trees),
    "audit": (changed_json, "audit.json", known("audit")),
    "csv": (changed_bytes, "table.csv", known("table")),
    "parquet": (changed_bytes, "table.parquet", known("table")),
    "config": (changed_toml, "config.toml", known("config")),
    "sweep": (changed_toml, "sweep.toml", known("sweep")),
    "description": (changed_toml, "run/audit.toml", known("description", 1)),
    "pattern": (changed_toml, "pattern.toml", known("import")),
    "cells": (changed_json, "sweep/cell.json", known("cells", 1)),
}
BESIDE = {"recording": "run", "description": "run", "pattern": "folder", "cells": "sweep"}
"""The folder that a reader finds beside the file."""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("scene")
    attempting.sound(place / "run")
    shutil.copytree(HERE / "beside", place, dirs_exist_ok=True)
    return place


@pytest.mark.parametrize("name", READERS)
def test_what_is_read_is_read_or_refused_in_a_line(name: str, scene: Path) -> None:
    changed, file, reader = READERS[name]
    seeds = [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]

    def read(raw: bytes) -> str:
        with tempfile.TemporaryDirectory() as folder:
            place, said, began = Path(folder), "", time.process_time()
            if name in BESIDE:
                shutil.copytree(scene / BESIDE[name], place / BESIDE[name])
            (place / file).parent.mkdir(parents=True, exist_ok=True)
            (place / file).write_bytes(raw)
            try:
                reader(place / file)
            except OverheardError as error:
                said = str(error)
            assert len(said) < 5000
            assert time.process_time() - began < 10
            return said

    def changed_one(raw: bytes) -> None:
        read(raw)

    assert "" in [read(raw) for raw in seeds]  # else nothing but refusals would be changed
    fewer = settings(max_examples=settings().max_examples // 2)
    fewer(given(changed(seeds))(changed_one))()


def test_no_reader_is_left_out() -> None:
    assert sorted(READERS) == sorted(folder.name for folder in CORPUS.iterdir())
