"""Flip bytes in every region of a small recording: is every flip noticed, and what is audited?"""

from __future__ import annotations

import html
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from killing import Scene
from scene import command, run_child

from overheard.evaluation.record import Audit, read_audit
from overheard.report.digest import digest
from overheard.report.html import render
from overheard.report.markdown import render_markdown
from overheard.transcript.ledger import INDEX
from overheard.transcript.verify import verify

Row = dict[str, Any]
Region = tuple[Path, int, int]


def regions(run: Path) -> Iterator[tuple[str, list[Region]]]:
    """Every kind of byte that a recording has, with where its bytes lie."""
    indexes = [run / name / INDEX for name in ("wire", "side", "truth")]
    digests, contents, newlines = [], [], []
    for path in indexes:
        at = 0
        for line in path.read_bytes().splitlines(keepends=True):
            digests.append((path, at, at + 65))
            contents.append((path, at + 65, at + len(line) - 1))
            newlines.append((path, at + len(line) - 1, at + len(line)))
            at += len(line)
    yield "digests of an index", digests
    yield "lines of an index", contents
    yield "newlines of an index", newlines
    lengths, heads, arrays = [], [], []
    for path in sorted((run / "wire").glob("*.safetensors")):
        size = path.stat().st_size
        head = 8 + int.from_bytes(path.read_bytes()[:8], "little")
        lengths.append((path, 0, 8))
        heads.append((path, 8, head))
        arrays.append((path, head, size))
    yield "lengths of safetensors headers", lengths
    yield "safetensors headers", heads
    yield "arrays sent and returned", arrays
    for folder, what in (("side", "side knowledge"), ("truth", "truth")):
        files = [p for p in sorted((run / folder).iterdir()) if p.name != INDEX]
        yield what, [(p, 0, p.stat().st_size) for p in files]


def flipped(scene: Scene, flips: int, audits: int, seed: int) -> tuple[list[Row], list[str]]:
    """So many flips in each region; of a few, whether `audit` refuses and what it then reports."""
    rows, wrong = [], []
    run = scene.folder / "damaged"
    shutil.copytree(scene.folder / "run", run)
    for number, (what, spans) in enumerate(regions(run)):
        rng = np.random.default_rng([seed, number])
        missed, unnamed = 0, 0
        for _ in range(flips):
            path, at, bit = _spot(spans, rng)
            with _flip(path, at, bit):
                found = verify(run)
                missed += not found.problems
                unnamed += not any(path.name in problem for problem in found.problems)
            if not found.problems:
                wrong.append(f"{path} byte {at} bit {bit}: {found}")
        named = "each named its file" if not unnamed else f"{unnamed} did not name the file"
        rows.append(
            {
                "what": f"bits flipped in the {what}",
                "trials": flips,
                "faults": flips,
                "outcome": f"`overheard verify` called {flips - missed} of {flips} damage; "
                f"{named}.",
            }
        )
        if unnamed:
            wrong.append(f"{what}: {unnamed} flips were not named")
    row, worse = _audited(scene, run, audits, seed)
    assert verify(run).sound, "the flips were not undone"
    return [*rows, row], wrong + worse


def _audited(scene: Scene, run: Path, audits: int, seed: int) -> tuple[Row, list[str]]:
    """Flip a bit anywhere, audit, and audit again with ``--ignore-damage``."""
    rng = np.random.default_rng([seed, 99])
    every = list(regions(run))
    refused = went_on = said = nothing = 0
    wrong = []
    for number in range(audits):
        what, spans = every[number % len(every)]
        path, at, bit = _spot(spans, rng)
        place = scene.folder / "audits" / str(number)
        words = ["audit", str(run), "--out", str(place / "out"), "--no-rounds", "--no-coverage"]
        words += ["--attack", "majority", "--attack", "global_model"]
        with _flip(path, at, bit):
            plain = run_child(command(*words), scene.folder, place)
            anyway = run_child(command(*words, "--ignore-damage"), scene.folder, place)
        where = f"{what}: {path} byte {at} bit {bit}"
        if plain.code == 1 and "--ignore-damage" in plain.said and "Traceback" not in plain.said:
            refused += 1
        else:
            wrong.append(f"{where}: not refused: {plain.code} {plain.said}")
        if anyway.code == 0:
            went_on += 1
            audit = read_audit(place / "out" / "audit.json")
            if _says_what_is_missing(audit):
                said += 1
            else:
                wrong.append(f"{where}: the report does not say what is missing")
        elif anyway.code == 1 and "Traceback" not in anyway.said and _says_why(anyway.said):
            nothing += 1
        else:
            wrong.append(f"{where}: --ignore-damage ended with {anyway.code}: {anyway.said}")
    return {
        "what": "bits flipped anywhere, then audited",
        "trials": audits,
        "faults": audits,
        "outcome": f"`overheard audit` refused {refused} of {audits}. With `--ignore-damage` "
        f"{went_on} were audited, and {said} of these reports say what is missing (HTML, Markdown, "
        f"JSON); {nothing} ended with the reason why nothing could be scored.",
    }, wrong


def _says_what_is_missing(audit: Audit) -> bool:
    """Whether every line about the damage stands, as it is, in each form of the report."""
    told = audit.run.damage
    page = html.unescape(render(audit))
    text = render_markdown(audit).replace("\\", "")
    listed = page.partition('<section id="missing"')[2].partition("</section>")[0]
    in_text = text.partition("## What is missing")[2].partition("## Verdict")[0]
    return (
        bool(told)
        and all(line in listed and line in in_text for line in told)
        and digest(audit)["missing"] == list(told)
    )


def _says_why(said: str) -> bool:
    """Whether the last line names what an audit cannot do without."""
    last = said.splitlines()[-1]
    needed = ("the header, is damaged", "has no training recipe", "lists no records")
    return last.startswith("error: ") and any(words in last for words in needed)


def _spot(spans: list[Region], rng: np.random.Generator) -> tuple[Path, int, int]:
    sizes = np.array([end - start for _, start, end in spans], dtype=float)
    path, start, end = spans[rng.choice(len(spans), p=sizes / sizes.sum())]
    return path, int(rng.integers(start, end)), int(rng.integers(8))


class _flip:
    """A file with one bit flipped, for the time being."""

    def __init__(self, path: Path, at: int, bit: int) -> None:
        self._path, self._whole = path, path.read_bytes()
        changed = bytearray(self._whole)
        changed[at] ^= 1 << bit
        path.write_bytes(changed)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._path.write_bytes(self._whole)
