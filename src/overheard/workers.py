"""Several processes at once, of this machine or a Ray cluster: for audits and sweeps.

How many, is said in one word everywhere. A number: so many processes of this machine. ``ray``, or
the address of a Ray cluster: its processors. Nothing: the work begins here, and is shared out once
the processor time that it takes shows that this is worth it. What comes out never depends on it.
"""

from __future__ import annotations

import logging
import os
import re
import resource
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache
from multiprocessing import active_children, get_context
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from overheard.errors import FixConfig, needs

Result = TypeVar("Result")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ONCE, WORTH, LONG = 3.0, 10.0, 60.0
"""Seconds that whatever is done once may take, seconds of a processor's work that a process must
find before it is started (starting takes it about two), and seconds that are announced."""


def shared_out(
    task: Callable[..., Result],
    calls: Sequence[tuple[Any, ...]],
    workers: str,
    what: str,
    say: Callable[[str], None],
) -> Iterator[Result]:
    """What the task returns for each of the calls, as they end; ``what`` a call is, in words.

    ``workers``: see above. ``say``: called with how long it takes, once that is known to be long.
    """
    if workers == "ray" or ":" in workers:
        yield from on_cluster(task, calls, "auto" if workers == "ray" else workers)
        return
    if workers and not (workers.isdigit() and int(workers)):
        raise FixConfig(
            f"{workers!r} cannot work; give a number of processes from 1 on, ray, or the address "
            "of a Ray cluster, HOST:PORT"
        )
    if workers not in ("", "1"):
        yield from in_processes(task, calls, min(int(workers), max(len(calls), 1)), what)
        return
    begun, announced = (time.monotonic(), time.process_time()), False
    for done, call in enumerate(calls, 1):
        yield task(*call)
        spent = time.monotonic() - begun[0], time.process_time() - begun[1]
        ahead, work = (max(s - ONCE, 0.0) / done * (len(calls) - done) for s in spent)
        several = 1 if workers else min(room(), len(calls) - done, int(work / WORTH))
        if not announced and (left := ahead / max(several, 1)) > LONG:
            say(f"about {left / 60:.0f} minutes more")
            announced = True
        if several > 1:
            yield from in_processes(task, calls[done:], several, what)
            return


def room() -> int:
    """Processes as large as this one has been that the machine has processors and memory for."""
    try:
        free = int(re.findall(r"MemAvailable: +(\d+)", Path("/proc/meminfo").read_text())[0])
        cores = len(os.sched_getaffinity(0))
    except (OSError, IndexError, AttributeError):  # no Linux: who knows what is free there
        return 1
    return min(cores, free // resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def in_processes(
    task: Callable[..., Result], calls: Sequence[tuple[Any, ...]], workers: int, what: str
) -> Iterator[Result]:
    """What the task returns for each of the calls, as they end; ``what`` a call is, in words.

    Each process gets the task once, so that it may hold (`functools.partial`) what all calls share.
    """
    others = set(active_children())
    with _for_workers():  # they are started as the calls are handed in
        pool = ProcessPoolExecutor(workers, get_context("spawn"), _begin, (os.getpid(), task))
        waiting = [pool.submit(_do, *call) for call in calls]
    ours = set(active_children()) - others
    try:
        for done in as_completed(waiting):
            yield done.result()
    except BrokenProcessPool as error:
        raise FixConfig(
            f"a worker ended before its {what} did (killed, perhaps for the memory that it took); "
            f"what is finished is kept: give the same command again, with fewer --workers"
        ) from error
    except BaseException:
        for worker in ours:  # nobody wants what they are at any more
            worker.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def on_cluster(
    task: Callable[..., Result], calls: Sequence[tuple[Any, ...]], address: str
) -> Iterator[Result]:
    """The same as tasks of the Ray cluster at an address, one processor each."""
    with needs("ray"):
        import ray
    try:
        if address != "auto":  # Ray itself would try for minutes where nobody listens
            host, _, port = address.removeprefix("ray://").rpartition(":")
            socket.create_connection((host, int(port)), timeout=10).close()
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, OverflowError, ValueError, RuntimeError) as error:
        words = f"no Ray cluster answers at {address!r} ({type(error).__name__}: {error})"
        raise FixConfig(f"{words}; start one, or give a number of workers") from error
    try:
        held, remote = ray.put(task), ray.remote(num_cpus=1)(_do_there)
        waiting = [remote.remote([ray.get, held], *call) for call in calls]
        while waiting:
            ready, waiting = ray.wait(waiting)
            yield from ray.get(ready)
    finally:
        ray.shutdown()


_TASK: list[Callable[..., Any]] = []
"""In a worker: what it does."""


def _do(*call: Any) -> Any:
    return _TASK[0](*call)


@lru_cache(maxsize=1)
def _fetched(get: Callable[[Any], Any], held: Any) -> Any:
    return get(held)


def _do_there(how: Sequence[Any], *call: Any) -> Any:
    """On a machine of a cluster: the task is fetched once (what is not in a list Ray fetches)."""
    return _fetched(*how)(*call)


def _begin(parent: int, task: Callable[..., Any]) -> None:
    """Take the task, and end with the parent, which cannot say good-bye if it is killed."""
    _TASK.append(task)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    Thread(target=watch, daemon=True).start()


@contextmanager
def _for_workers() -> Iterator[None]:
    """What workers are started in; afterwards it is as it was.

    One thread each, and nothing imported from the folder in which the user stands: it may be
    somebody else's, and a file random.py there would be run. Nor is the user's own script run
    again in each of them, as it would be for who has functions there.
    """
    added = [name for name in (*THREADS, "PYTHONSAFEPATH") if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    script = sys.modules["__main__"]
    sys.modules["__main__"] = type(script)("__main__")  # an empty module
    try:
        yield
    finally:
        sys.modules["__main__"] = script
        for name in added:
            os.environ.pop(name, None)
