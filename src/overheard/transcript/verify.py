"""Is every byte of a recording what its index says? Each file that is damaged is named."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from overheard.errors import FixRecording
from overheard.transcript.ledger import FOLDERS, INDEX, read_checked, read_ledger
from overheard.transcript.messages import Round, read_messages
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


def verify(path: str | Path) -> Verification:
    """Check every listed file, and that no file is there unlisted. ``truth/`` may be absent.

    Only what a killed recorder can leave is called unfinished: one torn line at the end of an
    index, one file that is not listed, nothing at all before the header. Anything else is damage.
    """
    root = Path(path)
    if not root.is_dir():
        raise FixRecording(f"{root}: no such recording; `overheard simulate` makes one")
    if _never_begun(root):
        line = f"{root}: the recorder was stopped before it recorded anything; remove the folder"
        return Verification(0, 0, (), (line,))
    problems: list[str] = []
    unfinished: list[str] = []
    files = 0
    rounds: dict[str, Round] = {}
    finished = False  # as messages/ is, which a recorder closes last
    try:
        rounds = {entry.line["file"]: entry for entry in Recording.open(root).rounds}
    except FixRecording as error:
        problems.append(str(error))
    for name in FOLDERS:
        folder = root / name
        if not folder.is_dir():
            continue
        try:
            ledger = read_ledger(folder)
        except FixRecording as error:
            problems.append(str(error))
            continue
        finished = ledger.closed if name == "messages" else finished
        if ledger.rest and (ledger.closed or not _may_be_torn(ledger.rest)):
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
                if (name, entry["kind"]) != ("messages", "round"):
                    read_checked(folder, entry)
                elif one := rounds.get(str(entry["file"])):  # else it could not be opened
                    for _ in read_messages(folder, one, one.spans, set()):
                        pass
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
    return Verification(files, len(rounds), tuple(dict.fromkeys(problems)), tuple(unfinished))


def _never_begun(root: Path) -> bool:
    """Whether a recorder was killed before its header was whole: there is nothing else then."""
    recorded = {path for name in FOLDERS for path in (root / name).glob("*")}
    if recorded - {root / "messages" / INDEX}:
        return False
    try:
        ledger = read_ledger(root / "messages")
    except FixRecording:
        return not any(root.iterdir())
    return not ledger.entries and _may_be_torn(ledger.rest)


def _may_be_torn(rest: bytes) -> bool:
    """Whether these bytes can be the beginning of a line; a flipped newline leaves a whole one."""
    found = re.fullmatch(rb"[0-9a-f]{0,63}|[0-9a-f]{64}( [ -~]*)?", rest)
    text = (found[1] or b" ")[1:].decode() if found else ""
    with suppress(ValueError, RecursionError):
        return json.JSONDecoder().raw_decode(text)[1] == len(text)
    return found is not None
