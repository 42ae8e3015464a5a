"""Several processes of this machine at once, one thread each: for sweeps and for audits of many."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cache
from multiprocessing import active_children, get_context
from threading import Thread
from types import ModuleType
from typing import Any, TypeVar

from overheard.errors import FixConfig
from overheard.foreign.process import THREADS

Result = TypeVar("Result")


def in_processes(
    task: Callable[..., Result], calls: Sequence[tuple[Any, ...]], workers: int, what: str
) -> Iterator[Result]:
    """What the task returns for each of the calls, as they end; ``what`` a call is, in words."""
    others = set(active_children())
    with _for_workers():  # they are started as the calls are handed in
        pool = ProcessPoolExecutor(workers, get_context("spawn"))
        waiting = [pool.submit(_called, os.getpid(), task, call) for call in calls]
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


def _called(parent: int, task: Callable[..., Result], call: tuple[Any, ...]) -> Result:
    _end_with(parent)
    return task(*call)


@cache
def _end_with(parent: int) -> None:
    """End this process with its parent, which cannot say good-bye if it is killed."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    Thread(target=watch, daemon=True).start()


@contextmanager
def _for_workers() -> Iterator[None]:
    """What workers are started in; afterwards it is as it was.

    One thread each, and nothing imported from the folder in which the user stands: it may be a
    stranger's, and a file random.py there would be run. Nor is the user's own script run again in
    each of them, as it would be for who has functions there.
    """
    added = [name for name in (*THREADS, "PYTHONSAFEPATH") if name not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script
        for name in added:
            os.environ.pop(name, None)
