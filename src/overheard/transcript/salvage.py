"""What is left of a damaged recording, as a recording of its own, and what is missing from it.

Nothing is mended and nothing is guessed: a line or a file whose digest is wrong is left out, and
so is what only it could have described. Without a whole header nothing can be made of the rest.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from overheard.errors import FixRecording
from overheard.files import OPEN, PRIVATE
from overheard.foreign.files import read_bounded
from overheard.foreign.notation import parse_json
from overheard.transcript.ledger import FOLDERS, INDEX, Entry, LedgerWriter, chained, sound_file
from overheard.transcript.messages import parse_round


def salvage(run: Path, out: Path) -> tuple[str, ...]:
    """Write what is sound of a recording to a new one; returns what is missing, in sentences.

    Files are linked where that is possible, so that it costs no room: not those of ``side/`` and
    ``truth/`` that others than their owner may read.
    """
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
        _copy(folder, entries, out / name, closed, missing)
    return tuple(missing)


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


def _copy(folder: Path, entries: list[Entry], out: Path, closed: bool, missing: list[str]) -> None:
    writer = LedgerWriter(out)
    for entry in (entry for entry in entries if entry["kind"] != "end"):
        try:
            if entry["kind"] == "round":
                parse_round(folder, entry)
            if "file" in entry:
                _take(sound_file(folder, entry), out)
        except (FixRecording, OSError) as error:
            why = str(error).removeprefix(f"{folder}/").removesuffix("; restore it from a copy")
            missing.append(f"{folder.name}/{why}; {_lost(entry)}")
            continue
        writer.append(entry)
    if closed:
        writer.close()
    else:
        writer.release()


def _take(path: Path, out: Path) -> None:
    new = out / path.name
    private = out.name != "wire"
    if not private or not path.stat().st_mode & 0o077:
        try:
            os.link(path, new, follow_symlinks=False)
            return
        except OSError:
            new.unlink(missing_ok=True)
    new.touch(PRIVATE if private else OPEN, exist_ok=False)
    shutil.copyfile(path, new)


def _lost(entry: Entry) -> str:
    """What a file that cannot be used held, in words."""
    if entry["kind"] == "round":
        return f"round {entry.get('round')} is left out"
    about = entry.get("target")
    return f"{entry.get('holds')}{f' for {about}' if about else ''} is left out"
