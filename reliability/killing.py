"""What is killed, and what must be true afterwards: one task for every command that writes."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scene import (
    NEVER,
    Ended,
    Fault,
    audit_words,
    command,
    make_scene,
    record_live,
    run_child,
    same_audit,
)

from overheard.errors import FixRecording
from overheard.evaluation.audit import audit
from overheard.sweep.cell import run_cell
from overheard.sweep.grid import cells, read_sweep
from overheard.transcript.ledger import INDEX
from overheard.transcript.store import Recording
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.verify import verify

Rng = np.random.Generator
MOST_KILLS = 3


@dataclass(frozen=True)
class Task:
    """A command that is killed: how to run it, and what is wrong with what it leaves.

    ``wrong`` may run more children: whoever can be resumed is resumed, and killed again.
    """

    name: str
    words: str
    work: Callable[[Path], Callable[[], None]]
    wrong: Callable[[Scene, Path, Ended, Rng, Counter[str]], list[str]]


@dataclass
class Scene:
    """The folder, the undisturbed results, and how long each command takes undisturbed."""

    folder: Path
    calls: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    def run(self, task: Task, place: Path, fault: Fault = NEVER) -> Ended:
        """The task, writing to ``place/out``."""
        return run_child(task.work(place / "out"), self.folder, place, fault)

    def undisturbed(self, name: str) -> Path:
        """What a task writes if nobody disturbs it."""
        return self.folder / "undisturbed" / name / "out"

    def draw(self, task: Task, rng: Rng) -> Fault:
        """A moment: by the clock, at a file-system call, or there with unsynced bytes cut."""
        kind = ("clock", "call", "torn")[rng.integers(3)]
        if kind == "clock":
            return Fault(kind, seconds=float(rng.uniform(0, self.seconds[task.name])))
        call = int(rng.integers(1, self.calls[task.name] + 1))
        return Fault(kind, call=call, seed=int(rng.integers(1 << 30)))


def prepare(folder: Path) -> Scene:
    """Make the scene and run every task undisturbed, twice: the second tells how long it takes."""
    make_scene(folder)
    scene = Scene(folder)
    made = run_child(command("simulate", "federation.toml", "--out", str(folder / "run")), folder,
                     folder / "making")  # fmt: skip
    assert made.code == 0, made.said
    # what a stranger guesses is learned here, once: the forked children remember it
    audit(Recording.open(folder / "run"), EAVESDROPPER, ["majority"])
    for cell in cells(read_sweep(folder / "sweep.toml")):
        run_cell(cell)
    for task in TASKS:
        for place in (folder / "undisturbed" / task.name, folder / "again" / task.name):
            place.mkdir(parents=True)
            ended = scene.run(task, place)
            assert ended.code == 0, (task.name, ended.said)
            scene.calls[task.name], scene.seconds[task.name] = ended.calls, ended.seconds
    return scene


def trial(scene: Scene, task: Task, place: Path, rng: Rng, tally: Counter[str]) -> list[str]:
    """Kill a task once; returns what is wrong with what it left."""
    place.mkdir(parents=True)
    fault = scene.draw(task, rng)
    ended = scene.run(task, place, fault)
    tally["trials"] += 1
    if ended.code == -9:
        tally["killed"] += 1
        tally[fault.kind] += 1
    elif ended.code != 0:
        return [f"{task.name}: ended with {ended.code} and no kill: {ended.said}"]
    wrong = task.wrong(scene, place, ended, rng, tally)
    wrong += [f"left outside of the output: {p}" for p in (place / "tmp").iterdir()]
    wrong += [f"left beside the output: {p}" for p in place.iterdir()
              if p.name not in ("out", "tmp")]  # fmt: skip
    if not wrong:
        shutil.rmtree(place)
    return [f"{task.name} ({fault}): {line}" for line in wrong]


def _recording_is_wrong(
    whole: Path, left: Path, ended: Ended, rng: Rng, tally: Counter[str]
) -> list[str]:
    """A recording opens with every round that its recorder said was written, and is called what
    it is: sound if whole, unfinished otherwise, and damaged only once a byte is flipped."""
    if not left.exists():
        tally["nothing"] += 1
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
    tally["rounds"] += rounds
    if rounds < ended.acknowledged:
        tally["lost"] += ended.acknowledged - rounds
        wrong.append(f"{rounds} rounds of {ended.acknowledged} that were written")
    for name in ("wire", "side", "truth"):
        wrong += _differs(whole / name, left / name)
    return wrong + _flipped_is_damaged(left, rng, tally)


def _differs(whole: Path, left: Path) -> list[str]:
    """What is listed must be, byte for byte, what an undisturbed recorder lists first."""
    index = left / INDEX
    if not index.exists():
        return []
    lines = index.read_bytes().split(b"\n")[:-1]
    if lines != (whole / INDEX).read_bytes().split(b"\n")[: len(lines)]:
        return [f"{index}: differs from the undisturbed one"]
    return []


def _flipped_is_damaged(left: Path, rng: Rng, tally: Counter[str]) -> list[str]:
    """Flip one bit of what is listed: the recording must then be called damaged."""
    spots = []
    for folder in (left / name for name in ("wire", "side", "truth")):
        index = folder / INDEX
        whole = index.read_bytes().rpartition(b"\n")[0] if index.exists() else b""
        if whole:
            spots.append((index, len(whole)))
            listed = [p for p in folder.iterdir() if f'"{p.name}"'.encode() in whole]
            spots += [(p, p.stat().st_size) for p in listed]
    if not spots:
        return []
    path, size = spots[rng.integers(len(spots))]
    raw = path.read_bytes()
    at = int(rng.integers(size))
    changed = bytearray(raw)
    changed[at] ^= 1 << int(rng.integers(8))
    path.write_bytes(changed)
    found = verify(left)
    path.write_bytes(raw)
    tally["flips"] += 1
    if not found.problems:
        tally["missed"] += 1
        return [f"{path}: a flipped bit of byte {at} is not called damage: {found}"]
    return []


def contents(folder: Path) -> dict[str, bytes]:
    """Every file and its bytes."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def _resumed(
    scene: Scene, task: Task, place: Path, ended: Ended, rng: Rng, tally: Counter[str]
) -> list[str]:
    """Give the same command again until it ends, killing it a few times more."""
    out = place / "out"
    for _ in range(int(rng.integers(MOST_KILLS))):
        if ended.code == 0 or _is_whole_audit(out):
            break
        ended = scene.run(task, place, scene.draw(task, rng))
        tally["again"] += ended.code == -9
        if ended.code not in (0, -9):
            return [f"resumed, it ended with {ended.code}: {ended.said}"]
    if ended.code != 0 and not _is_whole_audit(out):
        ended = scene.run(task, place)
        if ended.code:
            return [f"resumed, it ended with {ended.code}: {ended.said}"]
    return []


def _is_whole_audit(out: Path) -> bool:
    """Whether the kill came after the last step, so that the same command is refused."""
    return (out / "audit.json").exists() and not (out / "unfinished").exists()


def _record(name: str) -> Callable[[Scene, Path, Ended, Rng, Counter[str]], list[str]]:
    def wrong(scene: Scene, place: Path, ended: Ended, rng: Rng, tally: Counter[str]) -> list[str]:
        left = place / "out"
        found = _recording_is_wrong(scene.undisturbed(name), left, ended, rng, tally)
        if found or name != "simulate" or rng.random() > 0.5 or not left.exists():
            return found
        words = ["audit", str(left), "--out", str(place / "out" / "audited")]
        words += ["--attack", "majority", "--attack", "global_model", "--no-rounds"]
        audited = run_child(command(*words), scene.folder, place)
        tally["audited"] += audited.code == 0
        nothing = any(
            reason in audited.said
            for reason in ("no round was recorded", "recorded anything", "no such recording",
                           "no training recipe", "nothing can be scored", "lists no records")
        )  # fmt: skip
        if audited.code and not (nothing and "Traceback" not in audited.said):
            return [f"an audit of what is left ends with {audited.code}: {audited.said}"]
        return []

    return wrong


def _audit_is_wrong(
    scene: Scene, place: Path, ended: Ended, rng: Rng, tally: Counter[str]
) -> list[str]:
    wrong = _resumed(scene, AUDIT, place, ended, rng, tally)
    out = place / "out"
    if wrong:
        return wrong
    if {p.name for p in out.iterdir()} != {"audit.json", "report.html"}:
        wrong.append(f"beside the audit: {sorted(p.name for p in out.iterdir())}")
    if same_audit(out / "audit.json") != same_audit(scene.undisturbed("audit") / "audit.json"):
        wrong.append("the resumed audit differs from the undisturbed one")
    tally["same"] += not wrong
    return wrong


def _sweep_is_wrong(
    scene: Scene, place: Path, ended: Ended, rng: Rng, tally: Counter[str]
) -> list[str]:
    wrong = _resumed(scene, SWEEP, place, ended, rng, tally)
    if wrong:
        return wrong
    out, whole = place / "out", scene.undisturbed("sweep")
    names = {str(p.relative_to(out)) for p in out.rglob("*")}
    if names != {str(p.relative_to(whole)) for p in whole.rglob("*")}:
        wrong.append(f"not the same files: {sorted(names)}")
    elif (out / "results.parquet").read_bytes() != (whole / "results.parquet").read_bytes():
        wrong.append("the resumed table differs from the undisturbed one")
    tally["same"] += not wrong
    return wrong


def _report_is_wrong(
    scene: Scene, place: Path, ended: Ended, rng: Rng, tally: Counter[str]
) -> list[str]:
    """Each file is whole or not there; the same commands then write what is missing."""
    out, whole = place / "out", scene.undisturbed("report")
    wrong = []
    for path in out.iterdir() if out.exists() else ():
        if path.suffix != ".part" and path.read_bytes() != (whole / path.name).read_bytes():
            wrong.append(f"{path.name} is torn")
    wrong = wrong or _resumed(scene, REPORT, place, ended, rng, tally)
    if not wrong and contents(out) != contents(whole):
        wrong.append(f"not the undisturbed files: {sorted(p.name for p in out.iterdir())}")
    tally["same"] += not wrong
    return wrong


def _reports(out: Path) -> Callable[[], None]:
    """The page, the Markdown and the JSON of an audit, those that are not there yet."""

    def run() -> None:
        scene = Path.cwd()
        out.mkdir(exist_ok=True)
        for name in ("report.html", "report.md", "report.json"):
            if (out / name).exists():
                continue
            audit = scene / "undisturbed" / "audit" / "out" / "audit.json"
            try:
                command("report", str(audit), "--out", str(out / name))()
            except SystemExit as ended:
                if ended.code:
                    raise

    return run


LIVE = Task(
    "record",
    "recording a federation, message by message",
    lambda out: lambda: record_live(out),
    _record("record"),
)
SIMULATE = Task(
    "simulate",
    "`overheard simulate`",
    lambda out: command("simulate", "federation.toml", "--out", str(out)),
    _record("simulate"),
)
AUDIT = Task("audit", "`overheard audit`", lambda out: command(*audit_words("run", out)),
             _audit_is_wrong)  # fmt: skip
SWEEP = Task(
    "sweep",
    "`overheard sweep`",
    lambda out: command("sweep", "sweep.toml", "--out", str(out)),
    _sweep_is_wrong,
)
REPORT = Task("report", "`overheard report` (HTML, Markdown, JSON)", _reports, _report_is_wrong)
TASKS = (LIVE, SIMULATE, AUDIT, SWEEP, REPORT)
