"""Kill it, flip its bytes, fill its disk: is anything lost, and is anything called what it is not?

``make chaos`` runs 200 kills and more, and writes what came of them to ``reliability/*.json``, from
which ``docs/reliability.md`` is made. Ends with 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import disks
import numpy as np
from damage import flipped
from killing import TASKS, Scene, Task, prepare, trial

HERE = Path(__file__).resolve().parent
Row = dict[str, Any]


def main() -> int:
    """Run the trials; 1 if anything was wrong."""
    ask = argparse.ArgumentParser(description=__doc__)
    ask.add_argument("--trials", type=int, default=200, help="kills, over all commands")
    ask.add_argument("--seed", type=int, default=0)
    ask.add_argument("--quick", action="store_true", help="10 kills and a sample of the rest")
    ask.add_argument("--out", type=Path, default=HERE, help="folder of the results")
    ask.add_argument("--only", default="", help="kill only this, and nothing else is tried")
    asked = ask.parse_args()
    mounts = disks.enter()  # before anything is begun
    trials = 10 if asked.quick else asked.trials
    flips, audits, sizes = (20, 2, 1) if asked.quick else (250, 24, 8)
    words = f"python reliability/chaos.py --trials {trials} --seed {asked.seed}"
    words += " --quick" if asked.quick else ""
    with tempfile.TemporaryDirectory(prefix="overheard-chaos-") as name:
        scene = prepare(Path(name).resolve())
        rows, wrong = killed(scene, trials, asked.seed, asked.only)
        write(asked.out / "chaos.json", "Processes killed at any moment", words, rows)
        if not asked.only:
            rows, worse = flipped(scene, flips, audits, asked.seed)
            write(asked.out / "damage.json", "Flipped bits", words, rows)
            wrong += worse
            wrong += on_disks(scene, mounts, sizes, asked.out / "disks.json", words)
    for line in wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    return min(1, len(wrong))


def on_disks(scene: Scene, mounts: bool, sizes: int, out: Path, words: str) -> list[str]:
    """Two processes at once and, where disks can be mounted, full and read-only ones."""
    rows, wrong = disks.two_at_once(scene)
    for more, worse in (disks.filled(scene, sizes), disks.read_only(scene)) if mounts else ():
        rows, wrong = [*rows, *more], [*wrong, *worse]
    if not mounts:
        print("not tried: full and read-only disks, because none can be mounted here")
    write(out, "Full disks, read-only folders, two processes on one output", words, rows)
    return wrong


def killed(scene: Scene, trials: int, seed: int, only: str) -> tuple[list[Row], list[str]]:
    """Kill each command in turn."""
    tasks = [task for task in TASKS if only in ("", task.name)]
    tallies: dict[str, Counter[str]] = {task.name: Counter() for task in tasks}
    wrong: list[str] = []
    begin = time.perf_counter()
    for number in range(trials):
        task = tasks[number % len(tasks)]
        rng = np.random.default_rng([seed, number])
        place = scene.folder / "trials" / f"{number:04d}"
        found = trial(scene, task, place, rng, tallies[task.name])
        tallies[task.name]["wrong"] += bool(found)
        wrong += [f"trial {number}, {line}" for line in found]
    print(f"{trials} trials in {time.perf_counter() - begin:.0f} s, {len(wrong)} wrong")
    return [row(task, tallies[task.name]) for task in tasks], wrong


def row(task: Task, tally: Counter[str]) -> Row:
    """What came of a task's trials, in figures."""
    how = (
        f"Killed by the clock {tally['clock']}, at a file-system call {tally['call']}, with "
        f"unsynced bytes cut {tally['torn']} times."
    )
    if task.name in ("record", "simulate"):
        what = (
            f"{tally['lost']} finished rounds lost. Called unfinished: {tally['unfinished']}, "
            f"sound (and whole): {tally['sound']}, not begun: {tally['nothing']}. Of "
            f"{tally['flips']} bits then flipped {tally['missed']} went unnoticed."
        )
        if tally["audited"]:
            what += f" {tally['audited']} of those left were audited."
    else:
        what = (
            f"Killed again while resuming: {tally['again']}. {tally['same']} of {tally['trials']} "
            "ended as if undisturbed, bit for bit"
        )
        what += " (measured seconds aside)." if task.name == "audit" else "."
    return {
        "what": f"killed while {task.words} ran" if "`" in task.words else f"killed: {task.words}",
        "trials": tally["trials"],
        "faults": tally["killed"] + tally["again"],
        "outcome": f"{how} {what} {tally['wrong']} trials went wrong.",
    }


def write(path: Path, title: str, command: str, rows: list[Row]) -> None:
    """The results in the form that the documentation is made from."""
    content = {"title": title, "command": command, "rows": rows}
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
