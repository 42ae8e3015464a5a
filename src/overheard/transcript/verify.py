"""Is every byte of a recording what its index says? And what is left of one where it is not?

`verify` names each file that is damaged. `salvage` makes a recording of its own of what is sound:
nothing is mended and nothing is guessed, a line or a file whose digest is wrong is left out, and so
is what only it could have described. Without a whole header nothing can be made of the rest.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from overheard.errors import FixRecording
from overheard.foreign.files import opened, parse_json, read_bounded
from overheard.transcript.ledger import (
    FOLDERS,
    INDEX,
    Entry,
    LedgerWriter,
    chained,
    listed_file,
    read_ledger,
    sound_file,
)
from overheard.transcript.messages import check_round, parse_round
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
    finished = False  # as wire/ is, which a recorder closes last
    try:
        rounds = len(Recording.open(root, beside).rounds)
    except FixRecording as error:
        problems.append(str(error))
    for name in FOLDERS:
        folder = root / name if name == "wire" else Path(beside or root) / name
        if not folder.is_dir():
            continue
        try:
            ledger = read_ledger(folder)
        except FixRecording as error:
            problems.append(str(error))
            continue
        finished = ledger.closed if name == "wire" else finished
        if ledger.torn and (ledger.closed or not _may_be_torn(ledger.rest)):
            problems.append(f"{folder / INDEX}: its end is damaged; restore the file from a copy")
        elif not ledger.closed and finished:
            problems.append(
                f"{folder / INDEX}: its end is missing although the recording was finished; "
                "restore the file from a copy"
            )
        elif not ledger.closed:
            unfinished.append(f"{folder / INDEX}: not closed; the recorder was stopped")
        listed = {INDEX}
        for entry in (entry for entry in ledger.entries if "file" in entry):
            listed.add(str(entry["file"]))
            try:
                _check(folder, entry)
            except FixRecording as error:
                problems.append(str(error))
        files += len(listed) - 1
        strays = sorted(path for path in folder.iterdir() if path.name not in listed)
        if not ledger.closed and len({s.name.removesuffix(".part") for s in strays}) == 1:
            unfinished += [
                f"{stray}: written but not listed; what it holds is lost" for stray in strays
            ]
        else:  # a recorder that is stopped leaves one file at most
            problems += [
                f"{stray}: is not listed in the index; remove it, or restore the index from a copy"
                for stray in strays
            ]
    return Verification(files, rounds, tuple(dict.fromkeys(problems)), tuple(unfinished))


def _check(folder: Path, entry: Entry) -> Path:
    """The path of a listed file; refuses one that is not what the index says."""
    if entry["kind"] == "round":
        check_round(folder, parse_round(folder, entry))
        return listed_file(folder, entry)
    return sound_file(folder, entry)


def _never_begun(root: Path) -> bool:
    """Whether a recorder was killed before its header was whole: there is nothing else then."""
    wire = root / "wire"
    if not wire.is_dir() or wire.is_symlink():
        return not any(root.iterdir())
    there = {path.name for path in wire.iterdir()}
    if there - {INDEX} or any((root / name).exists() for name in FOLDERS[1:]):
        return False
    try:
        raw = read_bounded(wire / INDEX, "index_bytes") if there else b""
    except FixRecording:
        return False
    return b"\n" not in raw and _may_be_torn(raw)


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


def salvage(run: Path, out: Path) -> tuple[str, ...]:
    """Write what is sound of a recording to a new one; returns what is missing, in sentences."""
    missing: list[str] = []
    closed = False  # as the wire is, which a recorder closes last
    for name in FOLDERS:
        folder = run / name
        if not folder.is_dir() or folder.is_symlink():
            if name == "wire":
                raise FixRecording(f"{folder}: missing; nothing can be made of what is left")
            continue
        entries = _sound_lines(folder, missing)
        if name == "wire" and (not entries or entries[0]["kind"] != "header"):
            raise FixRecording(
                f"{folder / INDEX}: its first line, the header, is damaged; nothing can be made of "
                "what is left: restore it from a copy"
            )
        closed = bool(entries) and entries[-1]["kind"] == "end" if name == "wire" else closed
        writer = LedgerWriter(out / name)
        for entry in (entry for entry in entries if entry["kind"] != "end"):
            try:
                _copy(folder, entry, writer)
            except (FixRecording, OSError) as error:
                why = str(error).removeprefix(f"{folder}/").removesuffix("; restore it from a copy")
                missing.append(f"{name}/{why}; {_lost(entry)}")
        (writer.close if closed else writer.release)()
    return tuple(missing)


def _copy(folder: Path, entry: Entry, writer: LedgerWriter) -> None:
    """A sound line, with its file if it lists one."""
    if "file" not in entry:
        writer.append(entry)
        return
    about = {key: entry[key] for key in entry.keys() - {"file", "size", "sha256"}}
    with opened(_check(folder, entry)) as (file, _):
        writer.file(entry["file"], iter(lambda: file.read(1 << 24), b""), **about)


def _sound_lines(folder: Path, missing: list[str]) -> list[Entry]:
    """The lines of an index that follow from what stands before them.

    A line is held against the digest that stands in the line before, so that damage to one line
    costs that line, and the next one only if the digest itself was hit.
    """
    where = f"{folder.name}/{INDEX}"
    try:
        raw = read_bounded(folder / INDEX, "index_bytes")
    except (FixRecording, OSError):
        missing.append(f"{where}: cannot be read, so nothing that {folder.name}/ holds is used")
        return []
    *whole, rest = raw.split(b"\n")
    if rest:
        missing.append(f"{where}: its last line is not whole; what it listed is left out")
    entries: list[Entry] = []
    for number, (_, text, sound) in enumerate(chained(whole), 1):
        try:
            entry = parse_json(text, f"{where}: line {number}") if sound else None
        except FixRecording:
            entry = None
        if isinstance(entry, dict) and isinstance(entry.get("kind"), str):
            entries.append(entry)
        else:
            missing.append(f"{where}: line {number} is damaged; what it listed is left out")
    return entries


def _lost(entry: Entry) -> str:
    """What a file that cannot be used held, in words."""
    if entry["kind"] == "round":
        return f"round {entry.get('round')} is left out"
    about = entry.get("target")
    return f"{entry.get('holds')}{f' for {about}' if about else ''} is left out"
