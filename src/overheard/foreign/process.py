"""This interpreter, run again as a child that may crash or never end."""

from __future__ import annotations

import os
import signal
import subprocess  # nosec B404  # this interpreter is run again, by list and without a shell
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
OUT_OF_TIME = (-signal.SIGXCPU, -signal.SIGKILL)


def run_child(
    words: Sequence[str],
    given: bytes | Path,
    seconds: int,
    most: int,
    environment: Mapping[str, str] | None = None,
) -> tuple[int, bytes, str]:
    """Its status, at most ``most`` bytes of what it wrote, and the end of what it complained.

    Its streams are files without names: nothing waits for anything, and all is bounded. It has one
    thread, an empty working directory and no environment but what is given. A child that takes
    longer than ``seconds`` is killed, and its status is one of `OUT_OF_TIME`.
    """
    with (
        tempfile.TemporaryFile() if isinstance(given, bytes) else given.open("rb") as source,
        tempfile.TemporaryFile() as answer,
        tempfile.TemporaryFile() as said,
        tempfile.TemporaryDirectory(prefix="overheard-") as empty,
    ):
        if isinstance(given, bytes):
            source.write(given)
            source.seek(0)
        child = subprocess.Popen(  # nosec B603  # a list, no shell, no stranger's word in it
            [sys.executable, "-I", "-B", *words],
            stdin=source,
            stdout=answer,
            stderr=said,
            cwd=empty,
            env={
                **dict.fromkeys(THREADS, "1"),
                **{"LANG": "C.UTF-8", "HOME": empty, "TMPDIR": empty},
                **(environment or {}),
            },
            close_fds=True,
            start_new_session=True,
        )
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            code = OUT_OF_TIME[0]
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
        answer.seek(0)
        said.seek(max(said.seek(0, os.SEEK_END) - 4000, 0))
        return code, answer.read(most), said.read().decode("utf-8", "replace").strip()
