"""Disks that are full, folders that may not be written, two processes on one output."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from killing import AUDIT, REPORT, SIMULATE, SWEEP, Scene, Task, contents
from scene import Ended, command, run_child, same_audit

from overheard.errors import FixRecording
from overheard.transcript.store import Recording
from overheard.transcript.verify import verify

Row = dict[str, Any]
NAMESPACE = ("unshare", "-rm", "--propagation", "private")


INSIDE = "OVERHEARD_CHAOS_INSIDE"


def enter() -> bool:
    """Go on in a mount namespace of one's own, where small disks can be mounted and nobody else
    sees them; False where that is not possible."""
    if INSIDE in os.environ:
        return True
    if not shutil.which("unshare"):
        return False
    tried = [*NAMESPACE, "sh", "-c", "mount -t tmpfs -o size=64k none /mnt"]
    if subprocess.run(tried, capture_output=True, check=False).returncode:
        return False
    os.environ[INSIDE] = "1"
    os.execvp(NAMESPACE[0], [*NAMESPACE, sys.executable, *sys.argv])


def _mount(disk: Path, options: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(disk)], check=True)


def filled(scene: Scene, sizes: int) -> tuple[list[Row], list[str]]:
    """Each command on tmpfs disks of growing size, then again with room: to be called inside of a
    mount namespace of one's own."""
    rows, wrong = [], []
    disk = scene.folder / "disk"
    disk.mkdir()
    for task in (SIMULATE, AUDIT, SWEEP, REPORT):
        tally: Counter[str] = Counter()
        need = 4096 * sum(
            1 + p.stat().st_size // 4096 for p in scene.undisturbed(task.name).rglob("*")
        )
        for step in range(sizes):
            size = 8192 + int(need * step / sizes) // 4096 * 4096
            _mount(disk, f"size={size}")
            wrong += [f"{task.name} on {size} bytes: {w}" for w in _full(scene, task, disk, tally)]
            subprocess.run(["umount", str(disk)], check=True)
        rows.append(
            {
                "what": f"{task.words} on a full disk",
                "trials": sizes,
                "faults": tally["full"],
                "outcome": f"{tally['line']} of {tally['full']} ended with one line that names the "
                f"file and the cause. {_went_on(task, tally)}",
            }
        )
    return rows, wrong


def _went_on(task: Task, tally: Counter[str]) -> str:
    if task is SIMULATE:
        return (
            f"{tally['opens']} left a recording that opens, or none; {tally['honest']} were called "
            "unfinished."
        )
    return f"With room again, {tally['same']} went on and ended as if undisturbed."


def _full(scene: Scene, task: Task, disk: Path, tally: Counter[str]) -> list[str]:
    ended = scene.run(task, disk)
    if ended.code == 0:
        return []
    tally["full"] += 1
    lines = [line for line in ended.said.splitlines() if line.startswith("error: ")]
    if len(lines) != 1 or "No space left on device" not in lines[0] or "Traceback" in ended.said:
        return [f"no clear line: {ended.code} {ended.said}"]
    tally["line"] += 1
    out = disk / "out"
    if task is SIMULATE:
        return _half_recorded(out, tally)
    subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True)
    again = scene.run(task, disk)
    if again.code:
        return [f"with room again it ended with {again.code}: {again.said}"]
    same = _same(scene, task, out)
    tally["same"] += not same
    return same


def _half_recorded(out: Path, tally: Counter[str]) -> list[str]:
    if not out.exists():
        tally["opens"] += 1
        tally["honest"] += 1
        return []
    found = verify(out)
    if found.problems or found.sound:
        return [f"called {'damaged' if found.problems else 'sound'}: {found.problems}"]
    tally["honest"] += 1
    try:
        Recording.open(out)
    except FixRecording as error:
        if found.rounds or "stopped before it recorded anything" not in found.unfinished[0]:
            return [str(error)]
    tally["opens"] += 1
    return []


def _same(scene: Scene, task: Task, out: Path) -> list[str]:
    whole = scene.undisturbed(task.name)
    if task is AUDIT:
        same = same_audit(out / "audit.json") == same_audit(whole / "audit.json")
    elif task is SWEEP:
        same = (out / "results.parquet").read_bytes() == (whole / "results.parquet").read_bytes()
    else:
        same = contents(out) == contents(whole)
    return [] if same else ["with room again it ended differently"]


def read_only(scene: Scene) -> tuple[list[Row], list[str]]:
    """Each command told to write where nobody may; and an audit of a recording that nobody may
    change."""
    wrong: list[str] = []
    disk = scene.folder / "read-only"
    disk.mkdir()
    shutil.copytree(scene.folder / "run", disk / "run")
    before = contents(disk)
    subprocess.run(["mount", "--bind", str(disk), str(disk)], check=True)
    subprocess.run(["mount", "-o", "remount,ro,bind", str(disk)], check=True)
    clear = 0
    tried = (SIMULATE, AUDIT, SWEEP)
    for task in tried:
        ended = run_child(task.work(disk / "out"), scene.folder, scene.folder / "ro" / task.name)
        clear += _is_clear(ended, "Read-only file system", wrong, task.name)
    words = ["report", str(scene.undisturbed("audit") / "audit.json"), "--out"]
    ended = run_child(
        command(*words, str(disk / "r.html")), scene.folder, scene.folder / "ro" / "r"
    )
    clear += _is_clear(ended, "Read-only file system", wrong, "report")
    place = scene.folder / "ro" / "read"
    words = ["audit", str(disk / "run"), "--out", str(place / "out"), "--attack", "majority"]
    ended = run_child(command(*words), scene.folder, place)
    if ended.code:
        wrong.append(f"a recording that may not be changed cannot be audited: {ended.said}")
    subprocess.run(["umount", str(disk)], check=True)
    if contents(disk) != before:
        wrong.append("a read-only folder was changed")
    return [
        {
            "what": "told to write into a read-only folder",
            "trials": len(tried) + 1,
            "faults": len(tried) + 1,
            "outcome": f"{clear} of {len(tried) + 1} ended with one line that names the folder and "
            "the cause; nothing was written.",
        },
        {
            "what": "a recording in a read-only folder",
            "trials": 1,
            "faults": 0,
            "outcome": "audited" if not ended.code else "not audited",
        },
    ], wrong


def _is_clear(ended: Ended, cause: str, wrong: list[str], what: str) -> bool:
    lines = ended.said.splitlines()
    good = ended.code == 1 and len(lines) == 1 and cause in lines[0]
    if not good:
        wrong.append(f"{what}: no clear line: {ended.code} {ended.said}")
    return good


def two_at_once(scene: Scene) -> tuple[list[Row], list[str]]:
    """While a command is held in the middle of its work, the same command is given again."""
    wrong: list[str] = []
    held = clear = same = 0
    tasks = (SIMULATE, AUDIT, SWEEP, REPORT)
    for task in tasks:
        place = scene.folder / "two" / task.name
        place.mkdir(parents=True)
        with _held(scene, task, place) as is_held:
            held += is_held
            ended = run_child(
                task.work(place / "out"), scene.folder, place.with_name(task.name + "2")
            )
            clear += _refused(ended, wrong, task.name)
        same_as = contents(place / "out") == contents(scene.undisturbed(task.name))
        if task in (AUDIT, SWEEP):
            same_as = not _same(scene, task, place / "out")
        same += same_as
        if not same_as:
            wrong.append(f"{task.name}: the first of the two did not end as if undisturbed")
    return [
        {
            "what": "the same command while it runs already",
            "trials": len(tasks),
            "faults": held,
            "outcome": f"{clear} of {held} were refused with one line that says why; the first "
            f"ended as if undisturbed {same} times.",
        }
    ], wrong


def _refused(ended: Ended, wrong: list[str], what: str) -> bool:
    lines = [line for line in ended.said.splitlines() if line.startswith("error: ")]
    good = ended.code == 1 and len(lines) == 1 and "Traceback" not in ended.said
    good = good and any(w in lines[0] for w in ("exists already", "is writing"))
    if not good:
        wrong.append(f"{what}: the second was not refused: {ended.code} {ended.said}")
    return good


@contextlib.contextmanager
def _held(scene: Scene, task: Task, place: Path) -> Any:
    """The task, stopped (SIGSTOP) while a file of its is half there, and let go at the end."""
    work: Callable[[], None] = task.work(place / "out")
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            handle = os.open(os.devnull, os.O_WRONLY)
            os.dup2(handle, 1)
            os.dup2(handle, 2)
            os.chdir(scene.folder)
            real, calls = os.fsync, 0

            def sync(number: int) -> None:
                nonlocal calls
                calls += 1
                if calls == (1 if task is REPORT else 4):
                    os.kill(os.getpid(), signal.SIGSTOP)
                real(number)

            os.fsync = sync
            work()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, os.WUNTRACED)
    yield os.WIFSTOPPED(status)
    if os.WIFSTOPPED(status):
        os.kill(pid, signal.SIGCONT)
        os.waitpid(pid, 0)
