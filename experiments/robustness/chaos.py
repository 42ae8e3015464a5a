"""Kill it at any moment and give the same command again: is anything lost, or miscalled?

Three tasks on a tiny federation: recording message by message, and `overheard` audit and sweep.
Each trial forks, so that the imports happen once, and kills the child by the clock, right before a
file-system call, or there after the bytes that are not yet durable are cut, as a power cut would;
what can be resumed is resumed, and killed again. What damage, full disks and second writers do is
tried by the test suite.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.recordings import simulated
from experiments.robustness.promises import total, tried
from experiments.runner import Cell, Experiment, Result, cell
from overheard.cli import main as overheard
from overheard.errors import FixRecording
from overheard.recorders.recorder import Recorder
from overheard.transcript import store
from overheard.transcript.ledger import INDEX
from overheard.transcript.store import Recording
from overheard.transcript.verify import verify

Rng = np.random.Generator
MOST_KILLS = 3
CONFIG = """
[data]
source = "file"
path = "{folder}/people.csv"
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
{base}
[[setting]]
defence = "none"
[[setting]]
defence = "longer"
strength = 3
change = {{ "training.rounds" = 3 }}
"""
ATTACKS = "--attack exact_linear --attack majority --attack max_entropy".split()
CLIENTS = ("north", "south", "east")


# ---- what is killed


def make_scene(folder: Path) -> None:
    """People, a federation's config, its recording, and a sweep's config."""
    rng = np.random.default_rng(1)
    lines = ["a,b,s,y,at"]
    for row in range(60):
        s = float(rng.random() < 0.4)
        a, b = rng.normal() + 0.8 * s, rng.normal()
        y = a - b + 1.5 * s + 0.5 * rng.normal()
        lines.append(f"{a:.6f},{b:.6f},{s:g},{y:.6f},site {row % 3}")
    (folder / "people.csv").write_text("\n".join(lines) + "\n")
    config = CONFIG.format(folder=folder)
    base = re.sub(r"^\[", "[base.", config, flags=re.MULTILINE).replace("rounds = 6", "rounds = 2")
    (folder / "federation.toml").write_text(config)
    (folder / "sweep.toml").write_text(SWEEP.format(base=base))


def recorded(out: Path) -> None:
    """A federation of another framework, recorded message by message."""
    rng = np.random.default_rng(5)
    with Recorder(out, "model", {"clients": list(CLIENTS)}) as recorder:
        for number in range(6):
            model: dict[str, Any] = {
                "w": rng.normal(size=(40, 30)).astype(np.float32),
                "b": np.zeros(3),
            }
            recorder.sent(number, "", model)
            for k, client in enumerate(CLIENTS):
                recorder.returned(number, client, {n: a + k for n, a in model.items()}, 20.0)


def command(*words: str) -> Callable[[Path], None]:
    """``overheard WORDS --out OUT``, in a child."""

    def run(out: Path) -> None:
        sys.argv = ["overheard", *words, "--out", str(out)]
        try:
            overheard()
        except SystemExit as ended:
            if ended.code:
                raise

    return run


TASKS = {
    "record": recorded,
    "audit": command("audit", "run", *ATTACKS),
    "sweep": command("sweep", "sweep.toml"),
}


# ---- how it is killed


@dataclass(frozen=True)
class Fault:
    """When a child dies: after so many ``seconds`` (``clock``), right before the file-system call
    of this number (``call``), or there with unsynced bytes cut (``torn``)."""

    kind: str = "never"
    seconds: float = 0.0
    call: int = 0
    seed: int = 0


@dataclass(frozen=True)
class Ended:
    """How a child ended: its exit code (-9: killed), what it said, how many rounds a recorder said
    were on the disk, and how many file-system calls and seconds it took."""

    code: int
    said: str
    rounds: int
    calls: int
    seconds: float


NEVER = Fault()
_EVENTS = frozenset("open os.mkdir os.rename os.link os.remove os.rmdir os.truncate".split())


def run_child(name: str, scene: Path, place: Path, fault: Fault = NEVER) -> Ended:
    """Run a task in a process of its own, in the scene, with ``place`` for what it writes."""
    (place / "tmp").mkdir(parents=True, exist_ok=True)
    log = place.with_suffix(".log")
    log.touch()
    reader, writer = os.pipe()
    begin = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        _child(TASKS[name], scene, place, fault, log, writer)
    os.close(writer)
    if fault.kind == "clock":
        time.sleep(fault.seconds)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(pid, 0)
    said = log.read_text(errors="replace")
    log.unlink()
    spent = time.perf_counter() - begin
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, said, told.count(b"r"), told.count(b"c"), spent)


def _child(
    work: Callable[[Path], None], scene: Path, place: Path, fault: Fault, log: Path, told: int
) -> None:
    """Everything here happens in the forked process, which never returns."""
    code = 1
    try:
        handle = os.open(log, os.O_WRONLY)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        os.environ["TMPDIR"] = tempfile.tempdir = str(place / "tmp")
        os.chdir(scene)
        _watch(place, fault, told)
        work(place / "out")
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
    real_sync, real_write = os.fsync, store.Recorder.messages

    def reached() -> bool:
        nonlocal count
        count += 1
        os.write(told, b"c")
        return fault.kind in ("call", "torn") and count == fault.call

    def observed(event: str, arguments: tuple[Any, ...]) -> None:
        path = arguments[0] if event in _EVENTS else None
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
                rng = np.random.default_rng(fault.seed)
                os.ftruncate(number, int(rng.integers(least, state.st_size + 1)))
            os.kill(os.getpid(), signal.SIGKILL)
        real_sync(handle)
        durable[os.fstat(number).st_ino] = os.fstat(number).st_size

    def write(self: Any, *arguments: Any) -> None:
        real_write(self, *arguments)
        os.write(told, b"r")

    setattr(os, "fsync", sync)  # noqa: B010
    setattr(store.Recorder, "messages", write)  # noqa: B010
    sys.addaudithook(observed)


# ---- what must be true afterwards


def draw(whole: Ended, rng: Rng) -> Fault:
    """A moment of a task that takes as long, and as many calls, undisturbed."""
    kind = ("clock", "call", "torn")[rng.integers(3)]
    call, seed = (int(rng.integers(1, most)) for most in (whole.calls + 1, 1 << 30))
    return Fault(kind, float(rng.uniform(0, whole.seconds)), call, seed)


def trial(name: str, scene: Path, place: Path, whole: Ended, rng: Rng) -> tuple[int, list[str]]:
    """Kill a task, and resume it until it ends; how many kills, and what is wrong."""
    fault = draw(whole, rng)
    ended = run_child(name, scene, place, fault)
    kills, wrong = int(ended.code == -9), []
    first, out = scene / "undisturbed" / "out", place / "out"
    if name == "record":
        wrong = recording_wrong(first, out, ended)
    else:
        for turn in range(int(rng.integers(MOST_KILLS)), -1, -1):
            if ended.code == 0 or _is_whole_audit(out):
                break
            ended = run_child(name, scene, place, draw(whole, rng) if turn else NEVER)
            kills += ended.code == -9
        if contents(out) != contents(first):
            wrong.append(f"differs from the undisturbed one: {sorted(contents(out))}")
    if ended.code not in (0, -9):
        wrong.append(f"ended with {ended.code} and no kill: {ended.said}")
    wrong += [f"left outside of the output: {p}" for p in (place / "tmp").iterdir()]
    return kills, [f"{fault}: {line}" for line in wrong]


def recording_wrong(whole: Path, left: Path, ended: Ended) -> list[str]:
    """A recording opens with every round that its recorder said was written, and is called what
    it is: sound if whole, unfinished otherwise, never damaged."""
    if not left.exists():
        return [] if not ended.rounds else ["the recording is not there"]
    found = verify(left)
    wrong = [f"an unfinished recording is called damaged: {p}" for p in found.problems]
    if found.sound != (contents(left) == contents(whole)) or (ended.code == 0 and not found.sound):
        wrong.append(f"is called sound, or not, wrongly: {found}")
    try:
        rounds = len(Recording.open(left).rounds)
    except FixRecording as error:
        rounds = 0
        if not any("before it recorded anything" in line for line in found.unfinished):
            wrong.append(f"does not open: {error}")
    if rounds < ended.rounds:
        wrong.append(f"{rounds} rounds of {ended.rounds} that were written")
    for index in left.rglob(INDEX):
        lines = index.read_bytes().split(b"\n")[:-1]
        first = (whole / index.parent.name / INDEX).read_bytes().split(b"\n")[: len(lines)]
        wrong += [f"{index}: differs from the undisturbed one"] if lines != first else []
    return wrong


def _is_whole_audit(out: Path) -> bool:
    """Whether the kill came after the last step, so that the same command is refused."""
    return (out / "audit.json").exists() and not (out / "unfinished").exists()


def contents(folder: Path) -> dict[str, bytes]:
    """Every file and its bytes, the seconds that were measured aside."""
    found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    for name in [n for n in found if n == "audit.json" or n.startswith(("cells/", "report."))]:
        found[name] = re.sub(rb'"seconds": ?[^,}\n]+', b"", found[name])
        if name.startswith("report."):
            found[name] = b""  # made of the audit, seconds and all
    return found


def killed(each: Cell) -> dict[str, Any]:
    """Some trials of one task."""
    kills, wrong = 0, list[str]()
    with tempfile.TemporaryDirectory(prefix="overheard-chaos-") as name:
        scene = Path(name).resolve()
        make_scene(scene)
        simulated(tomllib.loads((scene / "federation.toml").read_text()), None, scene / "run")
        for place in ("undisturbed", "again"):  # the second tells how long it takes
            whole = run_child(each["task"], scene, scene / place)
            assert whole.code == 0, whole.said
        for number in range(each["trials"]):
            rng = np.random.default_rng([each.seed, number])
            place_of = scene / f"trial-{number}"
            more, found = trial(each["task"], scene, place_of, whole, rng)
            kills += more
            wrong += found
            shutil.rmtree(place_of)
    return tried(each["trials"], len(wrong), "; ".join(wrong)[:2000]) | {"kills": kills}


def _came(found: Sequence[Result]) -> str:
    return f"{total(found, 'kills')} kills, {total(found, 'faults')} losses or wrong reports"


EXPERIMENTS = (
    Experiment(
        "robustness-chaos",
        "processes killed at any moment, and the same command again",
        killed,
        lambda: [
            cell(task=task, trials=trials, seed=seed, cost=60, quick=trials == 4)
            for task in TASKS
            for trials, seed in ((4, 0), *((20, number) for number in range(4)))
        ],
        must="Killed at any instant and resumed: nothing finished is lost, and the end is the same",
        came=_came,
    ),
)
