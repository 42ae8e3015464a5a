"""Is every byte of a recording what its index says? Names each file that is not."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from overheard.errors import FixRecording
from overheard.foreign.files import opened
from overheard.transcript.ledger import INDEX, listed_file, read_ledger
from overheard.transcript.store import Recording

FOLDERS = ("wire", "side", "truth")


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


def verify(path: str | Path) -> Verification:
    """Check every listed file, and that no file is there unlisted. ``truth/`` may be absent."""
    root = Path(path)
    if not root.is_dir():
        raise FixRecording(f"{root}: no such recording; `overheard simulate` makes one")
    problems: list[str] = []
    unfinished: list[str] = []
    files = rounds = 0
    try:
        rounds = len(Recording.open(root).rounds)
    except FixRecording as error:
        problems.append(str(error))
    for folder in (root / name for name in FOLDERS):
        if not folder.is_dir():
            continue
        try:
            ledger = read_ledger(folder)
        except FixRecording as error:
            problems.append(str(error))
            continue
        if ledger.torn or not ledger.closed:
            unfinished.append(f"{folder / INDEX}: not closed; the recorder was stopped")
        listed = {INDEX}
        for entry in ledger.entries:
            if "file" not in entry:
                continue
            files += 1
            listed.add(str(entry["file"]))
            try:
                actual = listed_file(folder, entry)
                with opened(actual) as (file, _):
                    digest = hashlib.file_digest(file, "sha256").hexdigest()
                if digest != entry.get("sha256"):
                    raise FixRecording(
                        f"{actual}: its bytes do not match the index; restore it from a copy"
                    )
            except FixRecording as error:
                problems.append(str(error))
        for stray in sorted(p for p in folder.iterdir() if p.name not in listed):
            if ledger.closed:
                problems.append(f"{stray}: is not listed in the index; remove it")
            else:
                unfinished.append(f"{stray}: written but not listed; its round is lost")
    return Verification(files, rounds, tuple(dict.fromkeys(problems)), tuple(unfinished))
