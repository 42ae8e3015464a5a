"""Is every byte of a recording what its index says? Names each file that is not."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from overheard.errors import FixRecording
from overheard.transcript.ledger import FOLDERS, INDEX, Ledger, read_ledger, sound_file
from overheard.transcript.store import Recording


@dataclass(frozen=True)
class Verification:
    """``problems`` is damage; ``unfinished`` is what a killed recorder leaves behind."""

    files: int
    rounds: int
    problems: tuple[str, ...]
    unfinished: tuple[str, ...]

    @property
    def sound(self) -> bool:
        return not self.problems and not self.unfinished


def verify(path: str | Path, beside: str | Path | None = None) -> Verification:
    """Check every listed file, and that no file is there unlisted. ``truth/`` may be absent.

    ``beside``: the folder whose ``side/`` and ``truth/`` are checked, if they lie elsewhere.

    Only what a killed recorder can leave is called unfinished: one torn line at the end of an
    index, one file that is not listed, nothing at all before the header. Anything else is damage.
    """
    root = Path(path)
    if not root.is_dir():
        raise FixRecording(f"{root}: no such recording; `overheard simulate` makes one")
    if _never_begun(root):
        said = f"{root}: the recorder was stopped before it recorded anything; remove the folder"
        return Verification(0, 0, (), (said,))
    problems: list[str] = []
    unfinished: list[str] = []
    files = rounds = 0
    try:
        rounds = len(Recording.open(root, beside).rounds)
    except FixRecording as error:
        problems.append(str(error))
    closed: dict[str, bool] = {}
    places = [root / name if name == "wire" else Path(beside or root) / name for name in FOLDERS]
    for folder in places:
        if not folder.is_dir():
            continue
        try:
            ledger = read_ledger(folder)
        except FixRecording as error:
            problems.append(str(error))
            continue
        closed[folder.name] = ledger.closed
        if ledger.torn and (ledger.closed or not _may_be_torn(ledger.rest)):
            problems.append(f"{folder / INDEX}: its end is damaged; restore the file from a copy")
        elif not ledger.closed and closed.get("wire", False) and folder.name != "wire":
            problems.append(
                f"{folder / INDEX}: its end is missing although the recording was finished; "
                "restore the file from a copy"
            )
        elif not ledger.closed:
            unfinished.append(f"{folder / INDEX}: not closed; the recorder was stopped")
        files += sum("file" in entry for entry in ledger.entries)
        problems += _damaged_files(folder, ledger)
        strays = _strays(folder, ledger)
        if ledger.closed:
            problems += [f"{stray}: is not listed in the index; remove it" for stray in strays]
        elif len({stray.name.removesuffix(".part") for stray in strays}) > 1:
            problems += [
                f"{stray}: is not listed in the index, and a recorder that is stopped leaves one "
                "file at most; restore the index from a copy"
                for stray in strays
            ]
        else:
            unfinished += [f"{s}: written but not listed; its round is lost" for s in strays]
    return Verification(files, rounds, tuple(dict.fromkeys(problems)), tuple(unfinished))


def _never_begun(root: Path) -> bool:
    """Whether a recorder was killed before its header was whole: there is nothing else then."""
    wire = root / "wire"
    if not wire.is_dir() or wire.is_symlink():
        return not any(root.iterdir())
    if any((root / name).exists() for name in FOLDERS[1:]):
        return False
    index = wire / INDEX
    if {path.name for path in wire.iterdir()} - {INDEX} or (
        index.exists() and (index.is_symlink() or not index.is_file())
    ):
        return False
    try:
        ledger = read_ledger(wire)
    except FixRecording:
        return index.is_file() and not index.stat().st_size
    return not ledger.entries and _may_be_torn(ledger.rest)


def _may_be_torn(rest: bytes) -> bool:
    """Whether these bytes can be the beginning of a line; a flipped newline leaves a whole one."""
    digest, space, text = rest.partition(b" ")
    if not re.fullmatch(rb"[0-9a-f]{0,64}", digest) or (space and len(digest) < 64):
        return False
    try:
        words = text.decode("ascii")
        return json.JSONDecoder().raw_decode(words)[1] == len(words)
    except UnicodeDecodeError:
        return False
    except (ValueError, RecursionError):
        return True


def _damaged_files(folder: Path, ledger: Ledger) -> list[str]:
    problems = []
    for entry in ledger.entries:
        try:
            if "file" in entry:
                sound_file(folder, entry)
        except FixRecording as error:
            problems.append(str(error))
    return problems


def _strays(folder: Path, ledger: Ledger) -> list[Path]:
    listed = {INDEX, *(str(entry["file"]) for entry in ledger.entries if "file" in entry)}
    return sorted(path for path in folder.iterdir() if path.name not in listed)
