"""How does an audit that was stopped go on? One writer, and what was found so far, on disk.

``OUT/unfinished/`` holds what was asked (``asked.json``) and the pieces found (`Kept`). A piece is
one attack on one client, or one curve; it is kept the moment it is there and read back bit for bit,
so that an audit that is asked the same again ends the same however often it was stopped. The pieces
hold scores of single records: when ``OUT/audit.json`` is whole, the folder goes.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter

from overheard.errors import ChooseAnotherOutput, OverheardError
from overheard.evaluation.compare import HITS, hits_json
from overheard.evaluation.record import Audit, Climbed, Failed, Heard, Replay, Skipped, read_audit
from overheard.evaluation.scoring import Scored
from overheard.files import LOCK, sole_writer, write_durably
from overheard.transcript.ledger import INDEX
from overheard.transcript.store import Recording

Piece = Scored | Skipped | Failed | Heard | Climbed | Replay
Made = TypeVar("Made", bound=Piece)
_PIECES: TypeAdapter[list[Any]] = TypeAdapter(list[Piece])


@dataclass(frozen=True)
class Kept:
    """A folder of pieces; without a folder nothing is kept and nothing is there."""

    folder: Path | None = None

    def outcome(self, *key: str) -> Scored | Skipped | Failed | None:
        """What an attack on a client came to, if that is known already."""
        found = self._read(self._path("outcome", *key))
        return found[0] if found else None

    def keep(self, outcome: Scored | Skipped | Failed, *key: str) -> None:
        self._write([outcome], "outcome", *key)

    def outcomes(self) -> Iterator[Scored]:
        """What every attack that was kept came to, in no order that means anything."""
        for path in sorted(self.folder.glob("*.json")) if self.folder else ():
            yield from (piece for piece in self._read(path) or () if isinstance(piece, Scored))

    def parts(self, make: Callable[[], Sequence[Made]], *key: str) -> Sequence[Made]:
        """Parts of the record, read, or made and kept."""
        found = self._read(self._path(*key))
        if found is None:
            found = list(make())
            self._write(found, *key)
        return found

    def _path(self, *key: str) -> Path | None:
        if self.folder is None:
            return None
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
        return self.folder / f"{name}.json"

    def _read(self, path: Path | None) -> list[Any] | None:
        """The pieces; what is not as it was written is as good as none, and is removed."""
        if path is None or not path.exists():
            return None
        digest, _, text = path.read_bytes().partition(b"\n")
        if digest.decode("ascii", "replace") != hashlib.sha256(text).hexdigest():
            path.unlink()
            return None
        return _PIECES.validate_json(text)

    def _write(self, pieces: Sequence[Piece], *key: str) -> None:
        path = self._path(*key)
        if path is not None:
            text = _PIECES.dump_json(list(pieces))
            write_durably(path, [hashlib.sha256(text).hexdigest().encode(), b"\n", text])


NOTHING_KEPT = Kept()
AUDIT = "audit.json"
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
        raise ChooseAnotherOutput(f"{out} exists already; choose another path or remove it")
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


def asking(work: Path, asked: Mapping[str, Any]) -> Kept:
    """The pieces found so far, if the same was asked; an audit of something else is refused."""
    there = _asked(work)
    wanted = json.loads(json.dumps(asked))
    if there is None:
        if (work.parent / AUDIT).exists():
            _remove(work)
            raise ChooseAnotherOutput(
                f"{work.parent} exists already; choose another path or remove it"
            )
        shutil.rmtree(work / PIECES, ignore_errors=True)
        (work / PIECES).mkdir()
        write_durably(work / ASKED, [json.dumps(wanted, indent=1).encode()])
    elif there != wanted:
        differs = [name for name in {**there, **wanted} if there.get(name) != wanted.get(name)]
        raise ChooseAnotherOutput(
            f"{work.parent} holds an unfinished audit that differs in {', '.join(differs)}; choose "
            "another folder, remove this one, or ask the same"
        )
    (work / PIECES).mkdir(exist_ok=True)
    return Kept(work / PIECES)


def finished(work: Path) -> Audit | None:
    path = work.parent / AUDIT
    return read_audit(path) if path.exists() else None


def finish(work: Path, audit: Audit, hits: bool = False) -> Path:
    """Write the audit, whole, then remove what it was made from; returns its path.

    ``hits``: keep which records were guessed right, for its owner alone to read.
    """
    path = work.parent / AUDIT
    if not path.exists():
        if hits:
            private = work / HITS
            private.unlink(missing_ok=True)
            write_durably(private, [hits_json(Kept(work / PIECES).outcomes()).encode()])
            private.chmod(0o600)
            private.replace(path.with_name(HITS))
        write_durably(path, [audit.to_json().encode()])
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


def _asked(work: Path) -> dict[str, Any] | None:
    try:
        content = json.loads((work / ASKED).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return content if isinstance(content, dict) else None


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
