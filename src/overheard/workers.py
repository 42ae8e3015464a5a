"""Several processes at once, of this machine or a Ray cluster: for sweeps and audits of many."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from threading import Thread
from types import ModuleType
from typing import Any, TypeVar

from overheard.errors import FixConfig, needs

Result = TypeVar("Result")
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def spread(
    task: Callable[..., Result], calls: Sequence[tuple[Any, ...]], workers: int, ray: str, what: str
) -> Iterator[Result]:
    """The same on the cluster at the address ``ray``, or, without one, `in_processes`."""
    return on_cluster(task, calls, ray) if ray else in_processes(task, calls, workers, what)


def in_processes(
    task: Callable[..., Result], calls: Sequence[tuple[Any, ...]], workers: int, what: str
) -> Iterator[Result]:
    """What the task returns for each of the calls, as they end; ``what`` a call is, in words."""
    others = set(active_children())
    with _for_workers():  # they are started as the calls are handed in
        pool = ProcessPoolExecutor(workers, get_context("spawn"), _end_with, (os.getpid(),))
        waiting = [pool.submit(task, *call) for call in calls]
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
        _connect(address)
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, OverflowError, ValueError, RuntimeError) as error:
        words = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise FixConfig(
            f"no Ray cluster answers at {address!r} ({words}); start one, or leave --ray out"
        ) from error
    try:
        remote = ray.remote(num_cpus=1)(task)
        waiting = [remote.remote(*call) for call in calls]
        while waiting:
            ready, waiting = ray.wait(waiting)
            yield from ray.get(ready)
    finally:
        ray.shutdown()


def _connect(address: str) -> None:
    """Fail within seconds where nobody listens: Ray itself would go on trying for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if address == "auto":
        return
    if not host or not port.isdigit():
        raise FixConfig(f"{address!r} is no address of a Ray cluster; give HOST:PORT or auto")
    socket.create_connection((host, int(port)), timeout=10).close()


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
