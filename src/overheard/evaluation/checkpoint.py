"""How does long work survive errors, kills and full disks? One piece at a time.

A piece is one attack on one client, or one curve. Whatever its run raises ends nothing but itself
(`attempt`). It is kept the moment it is there (`Checkpoint`) and read back bit for bit, so that
work that is asked the same again ends the same however often it was stopped.

``OUT/unfinished/`` holds what was asked (``asked.json``) and the pieces found. The pieces of an
audit hold scores of single records: when its results are whole, the folder goes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from overheard.errors import ChooseAnotherOutput, FixData, NotRun, OverheardError
from overheard.evaluation.record import Failed, Skipped
from overheard.files import LOCK, PRIVATE, sole_writer, write_durably
from overheard.transcript.ledger import INDEX
from overheard.transcript.store import Recording

Answer = TypeVar("Answer")
Progress = Callable[[str, int, int], None]
"""Told what begins, how many steps are done and how many there are."""
NOT_RUN = (NotRun, FixData)
"""An attack that raises one of these does not apply; anything else is an error of the attack."""
LONGEST = 300
OVER = "over its budget of {:g} s"
AGAIN = 1.0
"""Seconds after which an attack that went on all the same is told again that its time is up."""


def silent(what: str, done: int, total: int) -> None:
    """Nobody is told how far it is."""


class OverBudget(BaseException):
    """The time of a run is up; no error, so that nobody who catches errors holds it up."""


def attempt(
    run: Callable[[], Answer],
    attack: str,
    client: str,
    attribute: str | None,
    doing: str = "",
    budget: float | None = None,
) -> Answer | Failed | Skipped:
    """What ``run`` returns, or how it failed: its error's class, first line and place.

    ``NOT_RUN`` passes, for the caller to say so; so do an interrupt and an exit, which are asked of
    the whole audit, and a warning that is an error, which only `python -W error` makes it.
    ``budget``: seconds after which it is ended and listed as skipped; see `within`.
    """
    try:
        return run() if budget is None else within(budget, run)
    except (*NOT_RUN, Warning):
        raise
    except OverBudget:
        reason = f"{doing}: {OVER}" if doing else OVER
        return Skipped(
            attack=attack, client=client, attribute=attribute, reason=reason.format(budget)
        )
    except Exception as error:  # noqa: BLE001  (a MemoryError too: the next attack may need less)
        lines = str(error).strip().splitlines()
        name, message = type(error).__name__, lines[0][:LONGEST] if lines else ""
        said = [doing, name, message] if doing else [name, message]
        return Failed(
            attack=attack,
            client=client,
            attribute=attribute,
            reason=": ".join(filter(None, said)) + _where(error),
            error=name,
            doing=doing,
        )


def within(seconds: float, run: Callable[[], Answer]) -> Answer:
    """What ``run`` returns, or `OverBudget` if that takes longer.

    In the main thread of a system with alarms (Linux, macOS) it is ended at the next step of
    Python: a single call into a compiled library runs to its own end first. Elsewhere it runs to
    its end, and its answer is dropped if that was too late.
    """
    begin, armed = time.monotonic(), True

    def ring(number: int, frame: Any) -> None:
        if armed:
            raise OverBudget

    if not _has_alarm():
        answer = run()
    else:
        before = signal.signal(signal.SIGALRM, ring)
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
            try:
                answer = run()
            finally:
                armed = False
        finally:  # also if it rang a line ago
            armed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
    if time.monotonic() - begin > seconds:
        raise OverBudget
    return answer


def _has_alarm() -> bool:
    """Whether this thread can be interrupted, by an alarm that nobody else waits for."""
    return (
        hasattr(signal, "setitimer")
        and threading.current_thread() is threading.main_thread()
        and signal.getitimer(signal.ITIMER_REAL)[0] == 0
    )


def _where(error: Exception) -> str:
    """The file and line in which it was raised, without the machine's own folders."""
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    path = Path(frames[-1].filename)
    return f" ({path.parent.name}/{path.name}:{frames[-1].lineno})"


# ------------------------------------------------------------------------------ what is kept

Made = TypeVar("Made")


@cache
def _codec(kind: Any) -> TypeAdapter[list[Any]]:
    return TypeAdapter(list[kind])


@dataclass(frozen=True)
class Checkpoint:
    """A folder of pieces of a ``kind`` that pydantic can write; without a folder nothing is kept
    and nothing is there."""

    folder: Path | None = None
    kind: Any = Any

    def made(self, make: Callable[[], Iterable[Made]], *key: str) -> list[Made]:
        """Pieces, read, or made and kept."""
        found = self.read(*key)
        if found is None:
            found = list(make())
            if (path := self._path(key)) is not None:
                text = _codec(self.kind).dump_json(found)
                write_durably(path, [hashlib.sha256(text).hexdigest().encode(), b"\n", text])
        return found

    def read(self, *key: str) -> list[Any] | None:
        """What is kept under a key; None: nothing."""
        path = self._path(key)
        return self._read(path) if path is not None and path.exists() else None

    def everything(self) -> Iterator[Any]:
        """Every piece, in no order that means anything."""
        for path in sorted(self.folder.glob("*.json")) if self.folder else ():
            yield from self._read(path) or ()

    def _path(self, key: tuple[str, ...]) -> Path | None:
        if self.folder is None:
            return None
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
        return self.folder / f"{name}.json"

    def _read(self, path: Path) -> list[Any] | None:
        """The pieces; what is not as it was written is as good as none, and is removed."""
        digest, _, text = path.read_bytes().partition(b"\n")
        if digest.decode("ascii", "replace") != hashlib.sha256(text).hexdigest():
            path.unlink()
            return None
        return _codec(self.kind).validate_json(text)


NOTHING_KEPT = Checkpoint()
UNFINISHED = "unfinished"
ASKED = "asked.json"
PIECES = "pieces"


@contextmanager
def unfinished(out: Path) -> Iterator[Path]:
    """The folder in which this process, and no other, works on the audit ``out``.

    An error that the user must mend leaves nothing of an audit that began here; whatever else ends
    it (a full disk, an interrupt, ``kill -9``) leaves what the next one goes on from.
    """
    work = out / UNFINISHED
    begun = work.is_dir() and not work.is_symlink()
    empty = out.is_dir() and not any(out.iterdir())  # of one that was killed here, a line ago
    if (out.exists() or out.is_symlink()) and not begun and not empty:
        raise _taken(out)
    made = [place for place in (out, *out.parents) if not place.exists()]
    out.mkdir(parents=True, exist_ok=True)
    work.mkdir(mode=0o700, exist_ok=True)
    with sole_writer(work, "another audit"):
        try:
            yield work
        except OverheardError:
            if not begun:
                _remove(work, *made)
            raise
        except OSError as error:
            if not begun and not any((work / PIECES).glob("*.json")):
                _remove(work, *made)
                raise
            raise ChooseAnotherOutput(
                f"{error.filename or out}: {error.strerror or error}; what was found so far is "
                f"kept in {out}: mend that and give the same command again"
            ) from error


def asking(work: Path, asked: Mapping[str, Any], kind: Any) -> Checkpoint:
    """The pieces found so far, if the same was asked; an audit of something else is refused."""
    wanted = json.loads(json.dumps(asked))
    try:
        there = json.loads((work / ASKED).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError) as error:
        if len(list(work.parent.iterdir())) > 1:  # of one that was killed at its very end
            _remove(work)
            raise _taken(work.parent) from error
        shutil.rmtree(work / PIECES, ignore_errors=True)
        there = wanted
        write_durably(work / ASKED, [json.dumps(wanted, indent=1).encode()])
    if there != wanted:
        differs = [name for name in {**there, **wanted} if there.get(name) != wanted.get(name)]
        raise ChooseAnotherOutput(
            f"{work.parent} holds an unfinished audit that differs in {', '.join(differs)}; choose "
            "another folder, remove this one, or ask the same"
        )
    (work / PIECES).mkdir(exist_ok=True)
    return Checkpoint(work / PIECES, kind)


def finish(work: Path, name: str, result: str, private: Mapping[str, str]) -> Path:
    """Write the result, whole, then remove what it was made from; returns its path.

    ``private``: other files, for their owner alone to read.
    """
    path = work.parent / name
    if not path.exists():
        for other, text in private.items():
            (work.parent / other).unlink(missing_ok=True)  # of one that was killed a line later
            write_durably(work.parent / other, [text.encode()], PRIVATE)
        write_durably(path, [result.encode()])
    _remove(work)
    return path


def fingerprint(recording: Recording) -> str:
    """A digest of a recording, by its indexes: they hold the digests of everything else."""
    total = hashlib.sha256()
    for folder in (recording.path / "wire", recording.side_folder, recording.beside / "truth"):
        index = folder / INDEX
        raw = index.read_bytes() if index.is_file() else b"none"
        total.update(hashlib.sha256(raw).digest())
    return total.hexdigest()


def _taken(out: Path) -> ChooseAnotherOutput:
    return ChooseAnotherOutput(f"{out} exists already; choose another path or remove it")


def _remove(work: Path, *made: Path) -> None:
    """What was asked goes last: until then a finished audit is known for what it is. ``made``:
    folders above it that go too."""
    for path in work.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in (ASKED, LOCK):
            path.unlink()
    for name in (ASKED, LOCK):
        (work / name).unlink(missing_ok=True)
    for folder in (work, *made):
        folder.rmdir()
