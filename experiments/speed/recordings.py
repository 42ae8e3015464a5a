"""Recordings on disk, beside plain files of the same bytes.

Both sides write so that a power cut loses nothing that was said to be written (fsync a round), and
read from a disk that has to be asked: the pages are dropped from memory first.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.speed.measure import Comparison, Facts, Job, Party, Sizes
from overheard.randomness import stream

Array = NDArray[Any]


def _messages(sizes: Sizes) -> Array:
    """A broadcast and one message a client (1 + C, P), the same for every round."""
    rng = stream(0, "bench", "messages")
    return rng.normal(size=(1 + sizes["clients"], sizes["parameters"])).astype(np.float32)


def _write(sizes: Sizes, folder: Path) -> Job:
    from overheard.transcript.store import Recorder

    messages, path = _messages(sizes), folder / "written"
    names = [f"client {c}" for c in range(sizes["clients"])]

    def run() -> Facts:
        with Recorder(path) as recorder:
            for number in range(sizes["rounds"]):
                returned = {c: {"w": m} for c, m in zip(names, messages[1:], strict=True)}
                recorder.round(number, {"w": messages[0]}, returned)
        return {}

    return Job(run, before=lambda: shutil.rmtree(path, ignore_errors=True))


def _raw_write(sizes: Sizes, folder: Path) -> Job:
    messages, path = _messages(sizes), folder / "raw-written"

    def run() -> Facts:
        path.mkdir()
        for number in range(sizes["rounds"]):
            with (path / f"{number}.bin").open("xb", buffering=0) as file:
                for message in messages:
                    file.write(message.data)
                os.fsync(file.fileno())
        return {}

    return Job(run, before=lambda: shutil.rmtree(path, ignore_errors=True))


def _digest(sizes: Sizes, folder: Path) -> Job:
    """SHA-256 of the same bytes, once."""
    messages = _messages(sizes)

    def run() -> Facts:
        for _ in range(sizes["rounds"]):
            hashlib.sha256(messages.data)
        return {}

    return Job(run)


def recording(sizes: Sizes, folder: Path) -> Path:
    """A recording of the messages, made once."""
    path = folder / "written"
    if not path.exists():
        _write(sizes, folder).run()
    return path


def forget(folder: Path) -> None:
    """Drop a folder's files from the page cache."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read_all(sizes: Sizes, folder: Path) -> Job:
    """Every message of every round, each checked against its digest."""
    from overheard.transcript.store import Recording

    path = recording(sizes, folder)

    def run() -> Facts:
        opened, count = Recording.open(path), 0
        for entry in opened.rounds:
            observed = opened.messages(entry, entry.spans)
            count += sum(array.nbytes for arrays in observed for array in arrays.values())
        return {"bytes": count}

    return Job(run, before=lambda: forget(path))


def _raw_read(sizes: Sizes, folder: Path) -> Job:
    path = folder / "raw-written"
    if not path.exists():
        _raw_write(sizes, folder).run()

    def run() -> Facts:
        count = 0
        for file in sorted(path.iterdir()):
            count += len(file.read_bytes())
        return {"bytes": count}

    return Job(run, before=lambda: forget(path))


def _read_one(sizes: Sizes, folder: Path) -> Job:
    """What one client was sent and returned, all rounds."""
    from overheard.transcript.store import Recording

    path = recording(sizes, folder)

    def run() -> Facts:
        return {"rounds": sum(1 for _ in Recording.open(path).releases("client 7"))}

    return Job(run, before=lambda: forget(path))


def _bytes_of_one(sizes: Sizes, folder: Path) -> Job:
    """As many bytes of each file as one client's messages have, the next file's asked for before
    this one's are read, and their digests."""
    path, size = recording(sizes, folder), 4 * sizes["parameters"]
    places = (0, size * (sizes["clients"] // 2))

    def run() -> Facts:
        files = [os.open(p, os.O_RDONLY) for p in (path / "messages").glob("*.safetensors")]
        for file, later in pairwise([*files, files[-1]]):
            for place in places:
                os.posix_fadvise(later, place, size, os.POSIX_FADV_WILLNEED)
            for place in places:
                hashlib.sha256(os.pread(file, size, place))
            os.close(file)
        return {}

    return Job(run, before=lambda: forget(path))


SIZES = {"clients": 50, "parameters": 62_006, "rounds": 30}
QUICK = {"clients": 8, "parameters": 500, "rounds": 3}
WHAT = "a recording of 50 clients x 62,006 parameters x 30 rounds"
RAW = Party("raw files, fsync a round", _raw_write)
LINES = (
    # The format promises a SHA-256 of every message, which no writer and no reader may leave out;
    # what is possible is the hashing alone, on one thread.
    Comparison(
        "writing", f"writing {WHAT}", _write, RAW, SIZES, QUICK, goal=0.6, limit=_digest,
        clock="wall",
    ),
    Comparison(
        "reading", f"reading {WHAT}", _read_all, Party("raw files", _raw_read), SIZES, QUICK,
        goal=0.9, limit=_digest, clock="wall",
        check=lambda ours, theirs: bool(ours["bytes"] == theirs["bytes"]),
    ),
    # Of the 51 messages of a round two are the client's, what it was sent and what it returned: 25
    # times less is read and hashed, and the index and the headers of the files are read besides.
    # What is possible is these bytes alone, from the same files, and their digests: systems fetch
    # whole files in larger pages than single messages.
    Comparison(
        "reading-one-client", "reading one client's messages of the same recording", _read_one,
        Party("reading all of it", _read_all), SIZES, QUICK, goal=20, limit=_bytes_of_one,
        clock="wall",
    ),
)  # fmt: skip
