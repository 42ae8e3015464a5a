"""Kill it at any moment and give the same command again: is anything lost, or miscalled?

    python -m reliability.chaos [--trials 200] [--seed 0]

Five tasks on a tiny federation: recording message by message, and `overheard` simulate, audit,
sweep and report. Each trial forks, so that the imports happen once, and kills the child; what can
be resumed is resumed, and killed again. Ends with 1 if anything was wrong. What damage, full disks
and second writers do is tried by the test suite.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import numpy as np  # noqa: E402  (after the threads are settled)

from benchmarks.frame import Row, counted, finish, options  # noqa: E402
from overheard.attacks import all_attacks  # noqa: E402
from overheard.cli import main as overheard  # noqa: E402
from overheard.errors import FixRecording  # noqa: E402
from overheard.evaluation.audit import audit  # noqa: E402
from overheard.programs.records import Records  # noqa: E402
from overheard.recorders.recorder import Recorder  # noqa: E402
from overheard.sweep.cell import run_cell  # noqa: E402
from overheard.sweep.grid import cells, read_sweep  # noqa: E402
from overheard.transcript import store  # noqa: E402
from overheard.transcript.ledger import INDEX  # noqa: E402
from overheard.transcript.store import Recording  # noqa: E402
from overheard.transcript.threat import EAVESDROPPER  # noqa: E402
from overheard.transcript.verify import verify  # noqa: E402

for _module in (
    "overheard.data.file overheard.evaluation.resume overheard.evaluation.complete "
    "overheard.federation.simulate overheard.report.html overheard.report.markdown "
    "overheard.sweep.table pyarrow.compute pyarrow.csv pyarrow.parquet rich.progress "
    "sklearn.ensemble sklearn.linear_model"
).split():
    importlib.import_module(_module)
all_attacks()

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
seeds = [0]
{base}
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


# ---- what is killed


def make_scene(folder: Path) -> None:
    """People, a federation's config and a sweep's."""
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
        recorder.truth({c: Records({"x": rng.normal(size=20)}) for c in CLIENTS})
        recorder.side("AttributeDomain", {"column": "s", "values": ["a", "b"]}, "attribute.s")
        for number in range(6):
            model = {"w": rng.normal(size=(40, 30)).astype(np.float32), "b": np.zeros(3)}
            recorder.sent(number, "", model)
            for k, client in enumerate(CLIENTS):
                recorder.returned(number, client, {n: a + k for n, a in model.items()}, 20.0)
            recorder.clear("loss", CLIENTS[0], float(number))


def command(*words: str) -> None:
    """``overheard WORDS``, in a child."""
    sys.argv = ["overheard", *words]
    try:
        overheard()
    except SystemExit as ended:
        if ended.code:
            raise


def simulated(out: Path) -> None:
    command("simulate", "federation.toml", "--out", str(out))


def audited(out: Path) -> None:
    attacks = [word for name in ATTACKS for word in ("--attack", name)]
    command("audit", "run", "--out", str(out), *attacks)


def swept(out: Path) -> None:
    command("sweep", "sweep.toml", "--out", str(out))


def reported(out: Path) -> None:
    """The page, the Markdown and the JSON of an audit, those that are not there yet."""
    out.mkdir(exist_ok=True)
    for name in ("report.html", "report.md", "report.json"):
        if not (out / name).exists():
            command("report", "undisturbed/audit/out/audit.json", "--out", str(out / name))


# ---- how it is killed


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


NEVER = Fault("never")
_EVENTS = frozenset(
    "open os.mkdir os.rename os.link os.remove os.rmdir os.truncate shutil.rmtree".split()
)


def run_child(work: Callable[[Path], None], scene: Path, place: Path, fault: Fault) -> Ended:
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
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(pid, 0)
    seconds = time.perf_counter() - begin
    said = log.read_text(errors="replace")
    log.unlink()
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, said, told.count(b"r"), told.count(b"c"), seconds)


def _ended(pid: int) -> bool:
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _child(
    work: Callable[[Path], None], scene: Path, place: Path, fault: Fault, log: Path, *pipe: int
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


# ---- what must be true afterwards


@dataclass
class Scene:
    """The folder, the undisturbed results, and how long each task takes undisturbed."""

    folder: Path
    calls: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, name: str, place: Path, fault: Fault = NEVER) -> Ended:
        """The task, writing to ``place/out``."""
        return run_child(TASKS[name], self.folder, place, fault)

    def undisturbed(self, name: str) -> Path:
        """What a task writes if nobody disturbs it."""
        return self.folder / "undisturbed" / name / "out"

    def draw(self, name: str, rng: Rng) -> Fault:
        """A moment: by the clock, at a file-system call, or there with unsynced bytes cut."""
        kind = ("clock", "call", "torn")[rng.integers(3)]
        if kind == "clock":
            return Fault(kind, seconds=float(rng.uniform(0, self.seconds[name])))
        call = int(rng.integers(1, self.calls[name] + 1))
        return Fault(kind, call=call, seed=int(rng.integers(1 << 30)))


def prepare(folder: Path) -> Scene:
    """Make the scene and run every task undisturbed, twice: the second tells how long it takes."""
    make_scene(folder)
    scene = Scene(folder)
    made = scene.run("simulate", folder / "making")
    assert made.code == 0, made.said
    shutil.move(folder / "making" / "out", folder / "run")
    # what the imputation says is learned here, once: the forked children remember it
    audit(Recording.open(folder / "run"), EAVESDROPPER, ["majority"])
    for cell in cells(read_sweep(folder / "sweep.toml")):
        run_cell(cell)
    for name in TASKS:
        for place in (folder / "undisturbed" / name, folder / "again" / name):
            ended = scene.run(name, place)
            assert ended.code == 0, (name, ended.said)
            scene.calls[name], scene.seconds[name] = ended.calls, ended.seconds
    return scene


def trial(scene: Scene, name: str, place: Path, rng: Rng, tally: Counter[str]) -> list[str]:
    """Kill a task once; returns what is wrong with what it left."""
    fault = scene.draw(name, rng)
    ended = scene.run(name, place, fault)
    tally["trials"] += 1
    if ended.code == -9:
        tally["kills"] += 1
        tally[fault.kind] += 1
    elif ended.code != 0:
        return [f"{name}: ended with {ended.code} and no kill: {ended.said}"]
    if name in ("record", "simulate"):
        wrong = left_wrong(scene.undisturbed(name), place / "out", ended, tally)
    else:
        wrong = torn(scene, name, place / "out") or resumed(scene, name, place, ended, rng, tally)
    wrong += [f"left outside of the output: {p}" for p in (place / "tmp").iterdir()]
    wrong += [f"left beside it: {p}" for p in place.iterdir() if p.name not in ("out", "tmp")]
    if not wrong:
        shutil.rmtree(place)
    return [f"{name} ({fault}): {line}" for line in wrong]


def left_wrong(whole: Path, left: Path, ended: Ended, tally: Counter[str]) -> list[str]:
    """A recording opens with every round that its recorder said was written, and is called what
    it is: sound if whole, unfinished otherwise, never damaged."""
    if not left.exists():
        tally["not begun"] += 1
        return [] if not ended.acknowledged else ["the recording is not there"]
    found = verify(left)
    wrong = [f"an unfinished recording is called damaged: {p}" for p in found.problems]
    if found.sound and contents(left) != contents(whole):
        wrong.append("an unfinished recording is called sound")
    if ended.code == 0 and not found.sound:
        wrong.append(f"a finished recording is not called sound: {found}")
    tally["sound" if found.sound else "unfinished"] += 1
    try:
        rounds = len(Recording.open(left).rounds)
    except FixRecording as error:
        rounds = 0
        if not any("before it recorded anything" in line for line in found.unfinished):
            wrong.append(f"does not open: {error}")
    if rounds < ended.acknowledged:
        tally["lost"] += ended.acknowledged - rounds
        wrong.append(f"{rounds} rounds of {ended.acknowledged} that were written")
    for index in (left / name / INDEX for name in ("wire", "side", "truth")):
        lines = index.read_bytes().split(b"\n")[:-1] if index.exists() else []
        first = (whole / index.parent.name / INDEX).read_bytes().split(b"\n")[: len(lines)]
        wrong += [f"{index}: differs from the undisturbed one"] if lines != first else []
    return wrong


def torn(scene: Scene, name: str, out: Path) -> list[str]:
    """Each report is whole or not there."""
    if name != "report" or not out.exists():
        return []
    whole = contents(scene.undisturbed(name))
    found = {n: raw for n, raw in contents(out).items() if not n.endswith(".part")}
    return [f"{n} is torn" for n, raw in found.items() if raw != whole[n]]


def resumed(
    scene: Scene, name: str, place: Path, ended: Ended, rng: Rng, tally: Counter[str]
) -> list[str]:
    """Give the same command again until it ends, killing it a few times more: it ends as if
    nobody had disturbed it."""
    out = place / "out"
    for turn in range(int(rng.integers(MOST_KILLS)) + 1, 0, -1):
        if ended.code == 0 or _is_whole_audit(out):
            break
        ended = scene.run(name, place, scene.draw(name, rng) if turn > 1 else NEVER)
        tally["kills"] += ended.code == -9
        if ended.code not in (0, -9):
            return [f"resumed, it ended with {ended.code}: {ended.said}"]
    whole = scene.undisturbed(name)
    same = contents(out) == contents(whole)
    if name == "audit":
        names = {p.name for p in out.iterdir()} == {p.name for p in whole.iterdir()}
        same = names and same_audit(out / "audit.json") == same_audit(whole / "audit.json")
    if name == "sweep":
        names = {str(p.relative_to(out)) for p in out.rglob("*")} == {
            str(p.relative_to(whole)) for p in whole.rglob("*")
        }
        table = "results.parquet"
        same = names and (out / table).read_bytes() == (whole / table).read_bytes()
    tally["same"] += same
    return [] if same else [f"differs from the undisturbed one: {sorted(contents(out))}"]


def _is_whole_audit(out: Path) -> bool:
    """Whether the kill came after the last step, so that the same command is refused."""
    return (out / "audit.json").exists() and not (out / "unfinished").exists()


def contents(folder: Path) -> dict[str, bytes]:
    """Every file and its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def same_audit(path: Path) -> str:
    """An audit's bytes, the measured seconds aside."""
    record = json.loads(path.read_text())
    for finding in record["findings"]:
        finding["seconds"] = 0
    return json.dumps(record)


TASKS = {"record": recorded, "simulate": simulated, "audit": audited, "sweep": swept,
         "report": reported}  # fmt: skip


def row(name: str, tally: Counter[str], wrong: list[str]) -> Row:
    """What came of a task's trials."""
    said = (
        f"{tally['kills']} kills: by the clock {tally['clock']}, at a file-system call "
        f"{tally['call']}, with unsynced bytes cut {tally['torn']}, the others while it was "
        "resumed. "
    )
    if name in ("record", "simulate"):
        said += (
            f"{tally['lost']} finished rounds lost. Called unfinished: {tally['unfinished']}, "
            f"sound (and whole): {tally['sound']}, not begun: {tally['not begun']}."
        )
    else:
        said += f"{tally['same']} of {tally['trials']} ended as if undisturbed, bit for bit"
        said += " (measured seconds aside)." if name == "audit" else "."
    return counted(f"killed: {name}", tally["trials"], len(wrong), " ".join([said, *wrong]))


def main() -> int:
    """Run the trials; 1 if anything was wrong."""
    given = options(__doc__, __file__, trials=200, seed=0)
    tallies: dict[str, Counter[str]] = {name: Counter() for name in TASKS}
    wrong: dict[str, list[str]] = {name: [] for name in TASKS}
    with tempfile.TemporaryDirectory(prefix="overheard-chaos-") as folder:
        scene = prepare(Path(folder).resolve())
        (scene.folder / "trials").mkdir()
        for number in range(given.trials):
            name = list(TASKS)[number % len(TASKS)]
            rng = np.random.default_rng([given.seed, number])
            place = scene.folder / "trials" / f"{number:04d}"
            wrong[name] += trial(scene, name, place, rng, tallies[name])
    rows = [row(name, tallies[name], wrong[name]) for name in TASKS]
    return finish(given, "Processes killed at any moment", rows)


if __name__ == "__main__":
    raise SystemExit(main())
