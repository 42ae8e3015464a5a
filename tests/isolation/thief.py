"""An attack that does not decode anything: it looks for the answer wherever it might lie."""

from __future__ import annotations

import gc
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from overheard.programs.records import Records
from overheard.transcript.guess import AttributeValues, certain
from overheard.transcript.knowledge import AttributeDomain, Labels
from overheard.transcript.view import View


@dataclass(frozen=True)
class Thief:
    """Steals the truth. Settings: ``told``, a file that somebody told it of; ``door``, a port."""

    name: ClassVar[str] = "thief"
    paper: ClassVar[str] = ""
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Labels, AttributeDomain})
    told: str = ""
    door: int = 0

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        domain, people = view.know(AttributeDomain), len(view.know(Labels).values)
        ways: dict[str, Callable[[], Any]] = {
            "frames": lambda: _tables(_frames(), view.client, domain.column, people),
            "objects": lambda: _tables(gc.get_objects(), view.client, domain.column, people),
            "told": lambda: Path(self.told).read_bytes(),
            "disk": lambda: [p.read_bytes() for p in _disk()],
            "proc": lambda: [Path(f"/proc/{p}/maps").read_bytes() for p in ("self", os.getppid())],
            "memory": lambda: _memory(os.getppid()),
            "environment": lambda: [v for k, v in os.environ.items() if k == "A_SECRET"],
            "open files": lambda: os.listdir("/proc/self/fd"),
            "network": lambda: (
                socket.create_connection(("127.0.0.1", self.door), 5).close() is None
            ),
            "program": lambda: subprocess.run(["/bin/cat", self.told], capture_output=True).stdout,
            "child": _child,
            "signal": lambda: os.kill(os.getppid(), 0) is None,
            "permissions": lambda: os.chmod(self.told, 0o644) is None,
            "written": lambda: Path("mine").write_bytes(b"x"),
        }
        found: dict[str, Any] = {}
        for way, steal in ways.items():
            try:
                found[way] = steal()
            except (OSError, Warning):
                found[way] = None
        answer = next(iter(found["frames"] or found["objects"] or ()), None)
        if answer is None:
            guess = np.tile(np.eye(len(domain.values))[:1], (people, 1))
        else:
            guess = certain(np.searchsorted(domain.values, answer), domain.values)
        said = {way: int(bool(what)) for way, what in found.items()}
        return AttributeValues(guess, domain.values, said)


def _frames() -> Iterator[Any]:
    frame = sys._getframe()
    while frame is not None:
        yield from frame.f_locals.values()
        frame = frame.f_back


def _tables(things: Any, client: str, column: str, people: int) -> list[Any]:
    """The secret column of this client in every mapping of tables by client."""
    found = []
    for thing in list(things):
        table = thing.get(client) if type(thing) is dict else None
        if isinstance(table, Records) and column in table.columns and len(table) == people:
            found.append(table.columns[column])
    return found


def _disk() -> list[Path]:
    """Every table of a truth/ below the places where one would look."""
    found = []
    for place in {os.getcwd(), os.environ.get("A_PLACE", "/tmp")}:
        for folder, _, files in os.walk(place):
            if os.path.basename(folder) == "truth":
                found += [Path(folder) / file for file in files if file.endswith(".safetensors")]
    return found


def _memory(pid: int) -> bytes:
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        memory.seek(int(Path(f"/proc/{pid}/maps").read_text().partition("-")[0], 16))
        return memory.read(16)


def _child() -> bool:
    pid = os.fork()
    if not pid:
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    return True
