"""How does long work survive errors, kills and full disks? One piece at a time.

A piece is what the quick attacks found of one client, or one slow search, or one curve. What an
attack raises ends nothing but itself (`attempt`). A piece is kept the moment it is there
(`Checkpoint`) and read back bit for bit, so that work that is asked the same again ends the same
however often it was stopped.

``OUT/unfinished/`` holds what was asked (``asked.json``) and the pieces found. The pieces of an
audit hold scores of single records: when its results are whole, the folder goes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from overheard.errors import ChooseAnotherOutput, FixData, NotRun, OverheardError
from overheard.evaluation.record import Failed
from overheard.files import LOCK, refuse_existing, replace_durably, sole_writer, write_durably
from overheard.transcript.ledger import INDEX
from overheard.transcript.store import Recording

Answer = TypeVar("Answer")
Progress = Callable[[str, int, int], None]
"""Called with what begins, how many steps are done and how many there are."""
NOT_RUN = (NotRun, FixData)
"""An attack that raises one of these does not apply; anything else is an error of the attack."""
LONGEST = 300


def silent(what: str, done: int, total: int) -> None:
    """Nobody asks how far it is."""


def attempt(run: Callable[[], Answer], **about: Any) -> Answer | Failed:
    """What ``run`` returns, or how it failed: its error's class, first line and place. ``about``:
    whose answer it is (`Failed`).

    ``NOT_RUN`` passes, for the caller to say so; so do an interrupt and an exit, which are asked of
    the whole audit, and a warning that is an error, which only `python -W error` makes it.
    """
    try:
        return run()
    except (*NOT_RUN, Warning):
        raise
    except Exception as error:  # noqa: BLE001  (a MemoryError too: the next attack may need less)
        lines = str(error).strip().splitlines()
        name, message = type(error).__name__, lines[0][:LONGEST] if lines else ""
        reason = ": ".join(filter(None, (about.get("doing"), name, message))) + _where(error)
        return Failed(**about, reason=reason, error=name)


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
            self.keep(found, *key)
        return found

    def keep(self, pieces: list[Any], *key: str) -> None:
        """Put pieces in the place of those under a key."""
        if self.folder is not None:
            text = _codec(self.kind).dump_json(pieces)
            whole = hashlib.sha256(text).hexdigest().encode() + b"\n" + text
            replace_durably(self._path(key), whole)

    def read(self, *key: str) -> list[Any] | None:
        """What is kept under a key; None: nothing. What is not as it was written is nothing, nor is
        what is no such piece."""
        if self.folder is None or not (path := self._path(key)).exists():
            return None
        digest, _, text = path.read_bytes().partition(b"\n")
        if digest != hashlib.sha256(text).hexdigest().encode():
            return None
        try:
            return _codec(self.kind).validate_json(text)
        except ValidationError:
            return None

    def _path(self, key: tuple[str, ...]) -> Path:
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
        return Path(self.folder or "", f"{name}.json")


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
    if not begun and not empty:
        refuse_existing(out)
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
    except (FileNotFoundError, ValueError):
        if len(list(work.parent.iterdir())) > 1:  # of one that was killed at its very end
            _remove(work)
            refuse_existing(work.parent)
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


def finish(work: Path, name: str, result: str) -> Path:
    """Write the result, whole, then remove what it was made from; returns its path."""
    path = work.parent / name
    if not path.exists():
        write_durably(path, [result.encode()])
    _remove(work)
    return path


def fingerprint(recording: Recording) -> str:
    """A digest of a recording, by its indexes: they hold the digests of everything else."""
    total = hashlib.sha256()
    for folder in (recording.path / "messages", recording.side_folder, recording.beside / "truth"):
        index = folder / INDEX
        raw = index.read_bytes() if index.is_file() else b"none"
        total.update(hashlib.sha256(raw).digest())
    return total.hexdigest()


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
