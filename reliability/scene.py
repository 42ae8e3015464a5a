"""A tiny federation on disk, and the commands that are killed on it, each in a forked process.

The imports happen once: a trial forks, runs one command and is killed, which takes a fraction of a
second where a new process would take several.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402  (after the threads are settled)

from overheard.attacks import all_attacks  # noqa: E402
from overheard.cli import main  # noqa: E402
from overheard.federation.recorders.live import Recorder  # noqa: E402
from overheard.programs.records import Records  # noqa: E402
from overheard.transcript import store  # noqa: E402

for _module in (
    "overheard.data.file overheard.evaluation.resume overheard.evaluation.complete "
    "overheard.evaluation.complete overheard.federation.simulate overheard.report.html "
    "overheard.report.markdown overheard.sweep.cell overheard.sweep.table "
    "overheard.transcript.salvage pyarrow.compute pyarrow.csv pyarrow.parquet "
    "rich.progress sklearn.ensemble sklearn.linear_model"
).split():
    importlib.import_module(_module)
all_attacks()

CONFIG = """
[data]
source = "file"
path = "people.csv"
client = "at"
target = "y"
[model]
name = "linear"
[training]
rounds = 6
learning_rate = 0.1
[audit]
attributes = ["s"]
"""
SWEEP = """
attacks = ["majority", "max_entropy"]
seeds = [0]
[base.data]
source = "file"
path = "{folder}/people.csv"
client = "at"
target = "y"
[base.model]
name = "linear"
[base.training]
rounds = 2
learning_rate = 0.1
[base.audit]
attributes = ["s"]
[[setting]]
defence = "none"
[[setting]]
defence = "larger step"
strength = 0.2
change = {{ "training.learning_rate" = 0.2 }}
[[setting]]
defence = "longer"
strength = 3
change = {{ "training.rounds" = 3 }}
"""
ATTACKS = ("exact_linear", "global_model", "majority", "model_based_linear", "max_entropy")
CLIENTS = ("north", "south", "east")
ROUNDS = 6


def make_scene(folder: Path) -> None:
    """Configs, data, a recording, its audit and a sweep, none of them disturbed."""
    rng = np.random.default_rng(1)
    lines = ["a,b,s,y,at"]
    for row in range(60):
        s = float(rng.random() < 0.4)
        a, b = rng.normal() + 0.8 * s, rng.normal()
        y = a - b + 1.5 * s + 0.5 * rng.normal()
        lines.append(f"{a:.6f},{b:.6f},{s:g},{y:.6f},site {row % 3}")
    (folder / "people.csv").write_text("\n".join(lines) + "\n")
    (folder / "federation.toml").write_text(CONFIG)
    (folder / "sweep.toml").write_text(SWEEP.format(folder=folder))


def audit_words(run: str, out: Path) -> list[str]:
    """The audit that is killed."""
    attacks = [word for name in ATTACKS for word in ("--attack", name)]
    return ["audit", run, "--out", str(out), *attacks]


def record_live(out: Path) -> None:
    """A federation of another framework, recorded message by message."""
    rng = np.random.default_rng(5)
    with Recorder(out, "model", {"clients": list(CLIENTS)}) as recorder:
        recorder.truth({c: Records({"x": rng.normal(size=20)}) for c in CLIENTS})
        recorder.side("AttributeDomain", {"column": "s", "values": ["a", "b"]}, "attribute.s")
        for number in range(ROUNDS):
            model = {"w": rng.normal(size=(40, 30)).astype(np.float32), "b": np.zeros(3)}
            recorder.sent(number, "", model)
            for k, client in enumerate(CLIENTS):
                recorder.returned(number, client, {n: a + k for n, a in model.items()}, 20.0)
            recorder.clear("loss", CLIENTS[0], float(number))


def command(*words: str) -> Callable[[], None]:
    """``overheard WORDS``, to be run in a child."""

    def run() -> None:
        sys.argv = ["overheard", *words]
        main()

    return run


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code (-9: killed), what it said, and what it reported.

    ``acknowledged``: rounds that a recorder said were on the disk; ``calls``: file-system calls
    under the trial's folder; ``seconds``: how long it took.
    """

    code: int
    said: str
    acknowledged: int
    calls: int
    seconds: float


@dataclass(frozen=True)
class Fault:
    """When a child dies: after so many ``seconds``, or at a file-system call.

    ``kind``: ``clock`` (from outside, at any instant), ``call`` (right before the call of this
    number) or ``torn`` (at this call, after what was written and not yet made durable is cut at a
    random byte, as a power cut would).
    """

    kind: str
    seconds: float = 0.0
    call: int = 0
    seed: int = 0


NEVER = Fault("never")
_EVENTS = frozenset(
    "open os.mkdir os.rename os.link os.remove os.rmdir os.truncate shutil.rmtree".split()
)


def run_child(work: Callable[[], None], scene: Path, place: Path, fault: Fault = NEVER) -> Ended:
    """Run ``work`` in a process of its own, in the scene, with ``place`` for what it writes."""
    (place / "tmp").mkdir(parents=True, exist_ok=True)
    log = place.parent / f"{place.name}.log"
    log.touch()
    reader, writer = os.pipe()
    begin = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        _child(work, scene, place, fault, log, reader, writer)
    os.close(writer)
    if fault.kind == "clock":
        while time.perf_counter() - begin < fault.seconds and not _ended(pid):
            time.sleep(0.0002)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    told = b""
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(pid, 0)
    seconds = time.perf_counter() - begin
    said = log.read_text(errors="replace")
    log.unlink()
    calls = told.count(b"c")
    return Ended(os.waitstatus_to_exitcode(status), said, told.count(b"r"), calls, seconds)


def _ended(pid: int) -> bool:
    done = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return done is not None


def _child(
    work: Callable[[], None], scene: Path, place: Path, fault: Fault, log: Path, *pipe: int
) -> None:
    """Everything here happens in the forked process, which never returns."""
    code = 1
    try:
        os.setsid()
        os.close(pipe[0])
        handle = os.open(log, os.O_WRONLY)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        os.environ["TMPDIR"] = tempfile.tempdir = str(place / "tmp")
        os.chdir(scene)
        _watch(place, fault, pipe[1])
        work()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except BaseException as error:  # a child must not run on as a second parent
        os.write(2, f"Traceback: {type(error).__name__}: {error}\n".encode())
        raise
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _watch(place: Path, fault: Fault, told: int) -> None:
    """Count the file-system calls under ``place`` and die at the chosen one."""
    prefix, count = str(place) + os.sep, 0
    durable: dict[int, int] = {}
    rng = np.random.default_rng(fault.seed)
    real_sync, real_write = os.fsync, store.Recorder._write

    def reached() -> bool:
        nonlocal count
        count += 1
        os.write(told, b"c")
        return fault.kind in ("call", "torn") and count == fault.call

    def heard(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _EVENTS:
            path = arguments[0]
            if isinstance(path, os.PathLike | str) and os.path.abspath(path).startswith(prefix):
                if event == "open" and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
                    return
                if reached():
                    os.kill(os.getpid(), signal.SIGKILL)

    def sync(handle: Any) -> None:
        number = handle if isinstance(handle, int) else handle.fileno()
        if reached():
            if fault.kind == "torn" and not os.path.isdir(f"/proc/self/fd/{number}"):
                state = os.fstat(number)
                least = min(durable.get(state.st_ino, 0), state.st_size)
                os.ftruncate(number, int(rng.integers(least, state.st_size + 1)))
            os.kill(os.getpid(), signal.SIGKILL)
        real_sync(handle)
        durable[os.fstat(number).st_ino] = os.fstat(number).st_size

    def write(self: Any, *arguments: Any) -> None:
        real_write(self, *arguments)
        os.write(told, b"r")

    os.fsync = sync
    store.Recorder._write = write  # type: ignore[method-assign]
    sys.addaudithook(heard)


def same_audit(path: Path) -> str:
    """An audit's bytes, the measured seconds aside."""
    record = json.loads(path.read_text())
    for finding in record["findings"]:
        finding["seconds"] = 0
    return json.dumps(record)
