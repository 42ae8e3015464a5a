"""A measurement: prepare, warm up, run, and print what it took as one line of JSON.

``python -m benchmarks.runner.child '{"entry": ..., "side": ..., "sizes": ..., "folder": ...}'``
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.runner.catalogue import side_named
from benchmarks.runner.entry import Facts, Job

MEGABYTE = 1 << 20
SHORT, LONG_ENOUGH, MOST = 1.0, 0.5, 50
"""A run below SHORT seconds is repeated until LONG_ENOUGH seconds, at most MOST times."""


def measure(job: Job, tree: bool) -> dict[str, Any]:
    """Seconds by both clocks (of the whole work), memory at the peak and beyond the start's."""
    before = resident()
    reset_peak()
    watch = Watch() if tree else None
    if job.warm is not None:
        job.warm()
    wall, cpu, facts = once(job)
    runs = [(wall, cpu)]
    if wall < SHORT and not tree:
        runs, spent = [], 0.0
        while not runs or (spent < LONG_ENOUGH and len(runs) < MOST):
            wall, cpu, facts = once(job)
            runs.append((wall, cpu))
            spent += wall
    top = max(peak(), watch.stop() if watch else 0)
    if job.spawns:
        top, before = _peak_below(job), 0
    return {
        "wall": statistics.median(w for w, _ in runs) / job.share,
        "cpu": statistics.median(c for _, c in runs) / job.share,
        "runs": len(runs),
        "share": job.share,
        "peak_mb": top / MEGABYTE,
        "extra_mb": max(top - before, 0) / MEGABYTE,
        "facts": facts,
    }


def once(job: Job) -> tuple[float, float, Facts]:
    """Wall time, processor time (of children that ended too) and what the run found.

    A run that has a start which does not count tells its ``seconds`` of wall time among its facts.
    """
    if job.before is not None:
        job.before()
    wall, cpu = time.perf_counter(), _cpu()
    facts = job.run()
    spent = time.perf_counter() - wall
    return facts.pop("seconds", spent), _cpu() - cpu, facts


def _cpu() -> float:
    return sum(
        used.ru_utime + used.ru_stime
        for used in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )


def reset_peak() -> None:
    """Let the peak begin where memory is now, where the system can do that."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def peak() -> int:
    """Bytes resident at the peak."""
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def resident() -> int:
    """Bytes resident now."""
    return _status("VmRSS")


def _status(field: str, pid: str = "self") -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0
    found = [line.split() for line in lines.splitlines() if line.startswith(f"{field}:")]
    return int(found[0][1]) * 1024 if found else 0


def _peak_below(job: Job) -> int:
    """Bytes at the peak of what a run starts, in a run of its own: watching takes time.

    What the system reports of children that ended counts the moment before they became another
    program, when they were copies of this process.
    """
    watch = Watch(0.005, itself=False)
    job.run()
    return watch.stop()


class Watch:
    """Samples, ten times a second, what this process and all below it hold together."""

    def __init__(self, every: float = 0.1, itself: bool = True) -> None:
        self.most, self.every, self.skipped = 0, every, 0 if itself else 1
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Bytes at the peak."""
        self._end.set()
        self._thread.join()
        return self.most

    def _sample(self) -> None:
        while not self._end.wait(self.every):
            pids = below(os.getpid())[self.skipped :]
            self.most = max(self.most, sum(_status("VmRSS", pid) for pid in pids))


def below(root: int) -> list[str]:
    """The process and everything that descends from it."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[folder.name] = (folder / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
    found = [str(root)]
    for pid in found:
        found += [child for child, parent in parents.items() if parent == pid]
    return found


def main() -> None:
    """Read what to measure, measure it, and print it."""
    asked = json.loads(sys.argv[1])
    side = side_named(asked["entry"], asked["side"])
    found = measure(side.prepare(asked["sizes"], Path(asked["folder"])), side.tree)
    sys.stdout.write(f"\n{json.dumps(found)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
