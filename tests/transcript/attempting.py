"""Attempts to break the readers: what each file in ``attempts/`` makes, and who must refuse it.

Each ``attempts/NAME.toml`` is one attack: ``what`` it is, the ``reader`` that meets it, the
``error`` that it must get (or ``right = true`` where the file is read rightly and nothing happens),
and the steps that make it out of a small, sound recording. Large things are made on the spot from
a few words.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from overheard.cli.audit import run_audit
from overheard.data.dataset import Data
from overheard.data.file import load
from overheard.errors import FixConfig, FixRecording
from overheard.evaluation.compare import compare
from overheard.evaluation.parts import AuditOptions
from overheard.evaluation.record import read_audit
from overheard.federation.federation import read_config
from overheard.federation.plan import plan
from overheard.foreign.shown import visible
from overheard.programs.records import Records
from overheard.recorders.describe import describe
from overheard.recorders.folder import import_folder, read_pattern
from overheard.recorders.template import write_template
from overheard.report import render
from overheard.report.digest import digest
from overheard.report.html import render_markdown, render_settings
from overheard.sweep.frontier import frontier
from overheard.sweep.grid import cells, parse_sweep, read_sweep
from overheard.sweep.run import read_rows
from overheard.transcript.kind import recipe_of
from overheard.transcript.ledger import digest_line
from overheard.transcript.store import Recorder, Recording
from overheard.transcript.target import Target
from overheard.transcript.threat import threat_named
from overheard.transcript.verify import verify
from overheard.transcript.view import in_the_clear, observe

HERE = Path(__file__).parent / "attempts"
ROOT = Path(__file__).parents[2]


_OTHERS: tuple[tuple[str, Any, str], ...] = (  # further kinds of knowledge, each with its question
    ("Groups", {"column": "x", "values": [0.0, 1.0]}, "label"),
    ("GroupCounts", {"north": {"counts": [3, 3]}, "south": {"counts": [2, 4]}}, "label"),
    ("ShardSize", {"records": 6}, "property.poisoning"),
    ("SuspectedBehaviour", {"behaviour": "inversion"}, "property.poisoning"),
    ("AppliedDefence", {"names": ["gaussian"], "noise_sd": 0.1, "effects": [["additive"]]}, ""),
    ("PrivacyBudget", {"north": {"epsilon": 1.0, "delta": 1e-5, "words": "a promise"}}, ""),
)


def sound(path: Path, secret: str = "s", words: str = "a note", close: bool = True) -> Path:
    """A small recording that describes itself: three clients, four rounds, one secret.

    ``secret``: the name of the sensitive column, ``words``: all that is said in sentences.
    ``close``: finished, and not as a recorder leaves it that is stopped.
    """
    rng = np.random.default_rng(7)
    clients = ("north", "south", "east")
    values = np.array(list("ababab"))
    tables = {
        c: Records({"x": rng.normal(size=6), secret: values, "y": rng.normal(size=6)})
        for c in clients
    }
    blocks = [
        {"block": "scaled", "column": "x"},
        {"block": "one_hot", "column": secret, "values": ["a", "b"]},
    ]
    recipe = {
        "model": {"architecture": "dense", "inputs": 3},
        "loss": "squared_error",
        "encoding": {"blocks": blocks},
        "target": {"column": "y"},
        "learning_rate": 0.1,
    }
    about = {"clients": list(clients), "data": words, "origin": words}
    target = f"attribute.{secret}"
    with Recorder(path, "model", about) as recorder:
        recorder.truth(tables)
        recorder.side("ClientProgram", recipe)
        recorder.side("AttributeDomain", {"column": secret, "values": ["a", "b"]}, target)
        recorder.side("AttributePrior", {"shares": [0.5, 0.5]}, target)
        recorder.side("InTheClear", {"notes": [words], "values": {}})
        public = {c: t.without(secret, "y") for c, t in tables.items()}
        recorder.side("PublicRecords", public, target)
        labels = {c: Records({"__label__": t["y"]}) for c, t in tables.items()}
        recorder.side("Labels", labels, target)
        for kind, content, asked in _OTHERS:
            recorder.side(kind, content, asked)
        for number in range(4):
            one = {"layers.0.weight": rng.normal(size=(1, 3)), "layers.0.bias": rng.normal(size=1)}
            sent = {n: a.astype(np.float32) for n, a in one.items()}
            back = {c: {n: a + np.float32(0.1) for n, a in sent.items()} for c in clients}
            recorder.round(number, sent, back, dict.fromkeys(clients, 6.0))
        if not close:
            recorder.release()
    return path


# ---- the steps that turn what is sound into an attack


def lines_of(index: Path) -> list[Any]:
    return [json.loads(line.partition(" ")[2]) for line in index.read_text().splitlines()]


def forge(index: Path, entries: list[Any]) -> None:
    """Write an index whose digests are right, as somebody would who can compute sha256."""

    previous, lines = "", []
    for entry in entries:
        text = entry if isinstance(entry, str) else json.dumps(entry)
        previous = digest_line(previous, text)
        lines.append(f"{previous} {text}\n")
    index.write_text("".join(lines), encoding="utf-8")


def put(content: Any, path: list[Any], value: Any) -> Any:
    """The content with the value at the path; the whole of it for an empty path."""
    if not path:
        return value
    place = content
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return content


def large(step: dict[str, Any]) -> str:
    """What a step writes: its value, or a text of a few words, said many times, numbered where
    ``{0}`` stands in it."""
    if "value" in step:
        return str(step["value"])
    text, times = step["text"], step.get("times", 1)
    said = (text.replace("{0}", str(i)) for i in range(times)) if "{0}" in text else [text] * times
    return f"{step.get('head', '')}{''.join(said)}{step.get('tail', '')}"


def change(step: dict[str, Any], place: Path) -> None:
    """One step of an attempt."""
    path = place / step.get("path", "run")
    index = path / "index.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    match step["do"]:
        case "line":  # set a field of a line of an index
            where = [step["line"], *step.get("at", [])]
            forge(index, put(lines_of(index), where, json.loads(large(step))))
        case "raw_line":  # a line of an index as it is
            forge(index, put(lines_of(index), [step["line"]], large(step)))
        case "side":  # what a kind of side knowledge says
            relisted(path, step["kind"], large(step).encode())
        case "table":  # a file in the place of a kind of knowledge
            relisted(path, step["kind"], (HERE / step["file"]).read_bytes())
        case "columns":  # a table by its head, with these bytes or so many zeros after it
            head = step["value"].encode()
            size = step.get("claims", len(head)).to_bytes(8, "little")
            body = bytes.fromhex(step.get("hex", "")) or bytes(step.get("zeros", 0))
            relisted(path, step["kind"], size + head + body)
        case "header":  # other words in the header of a round's file
            entry = lines_of(index)[step["line"]]
            raw = (path / entry["file"]).read_bytes()
            replaced = raw.replace(step["old"].encode(), step["new"].encode())
            relisted(path, entry["file"], replaced, "file")
        case "write":
            path.write_text(large(step), encoding="utf-8")
        case "append":
            with path.open("a", encoding="utf-8") as file:
                file.write(large(step))
        case "bytes":  # and a hole up to this size
            path.write_bytes(bytes.fromhex(step.get("hex", "")))
            os.truncate(path, step.get("size", path.stat().st_size))
        case "copy":
            shutil.copy(HERE / step["file"], path)
        case "audit":  # the demo's, with findings about so many secrets
            source = ROOT / "docs" / "assets" / "demo" / "network.json"
            content = json.loads(source.read_text(encoding="utf-8"))
            one = content["findings"][0]
            name = step.get("name", "a")
            content["findings"] = [
                one | {"attribute": f"{name}{i}"} for i in range(step["secrets"])
            ]
            path.write_text(json.dumps(content), encoding="utf-8")
        case "symlink":
            if path.is_dir():
                path.rename(place / "elsewhere")
            path.unlink(missing_ok=True)
            path.symlink_to(step["to"])
        case "fifo":
            path.unlink(missing_ok=True)
            os.mkfifo(path)
        case "checkpoint":
            save_file({"w": np.zeros(3, np.float32)}, path)
        case other:
            raise ValueError(f"no step {other!r}")


def relisted(folder: Path, name: str, raw: bytes, key: str = "holds") -> None:
    """Another content for the file that holds this kind, with a size and digest that are right."""
    index = folder / "index.jsonl"
    entries = lines_of(index)
    entry = next(e for e in entries if e.get(key) == name)
    (folder / entry["file"]).write_bytes(raw)
    entry |= {"size": len(raw), "sha256": hashlib.sha256(raw).hexdigest()}
    forge(index, entries)


# ---- who meets them


def _recording(place: Path) -> None:
    """Open a recording and read everything that an audit could ask of it."""

    recording = Recording.open(place / "run")
    recipe_of(recording)
    in_the_clear(recording).sentences()
    for key in recording.targets:
        target = Target.parse(key)
        if target.question == "property":
            observe(recording, threat_named("secure-server"), target, "")
            continue
        for client in recording.clients[:5]:
            observe(recording, threat_named("server"), target, client)
    recording.truth()


def _audited(place: Path) -> None:
    """The audit itself, with a guess and two attacks that take no time."""

    run, chosen = Recording.open(place / "run"), ["majority", "max_entropy", "exact_linear"]
    run_audit(run, threat_named("eavesdropper"), chosen, [], [], AuditOptions(rounds=False))


def _verify(place: Path) -> None:
    found = verify(place / "run")
    if found.problems:
        raise FixRecording("; ".join(found.problems))


def _config(place: Path) -> None:
    plan(read_config(place / "config.toml"))


def _sweep(place: Path) -> None:
    cells(read_sweep(place / "sweep.toml"))


def _description(place: Path) -> None:
    read = read_config(place / "run/audit.toml", recorded=True, confined=True)
    shutil.rmtree(place / "run/side")
    describe(Recording.open(place / "run"), read, place / "described")


def _template(place: Path) -> None:
    shutil.rmtree(place / "run/side")
    said = tomllib.loads(write_template(place / "run").read_text(encoding="utf-8"))
    if "factory" in said["model"] or said["data"]["path"] != "records.csv":
        raise AssertionError(f"a name became a setting: {said}")
    raise FixConfig("every name stayed in a comment")


def _import(place: Path) -> None:
    pattern = place / "pattern.toml"
    import_folder(
        place / "folder", place / "out", read_pattern(pattern) if pattern.exists() else None
    )


def _audit(place: Path) -> None:
    audit = read_audit(place / "audit.json")
    for text in (render(audit), render_markdown(audit)):
        if visible(text, keep="\n\t") != text:
            raise AssertionError("a report holds a character that nobody sees")
    digest(audit)
    compare(audit, audit, True)


def _cells(place: Path) -> None:
    folder = place / "sweep"
    with (folder / "sweep.json").open(encoding="utf-8") as file:
        (cell,) = cells(parse_sweep(json.load(file)["sweep"]))
    (folder / "cells").mkdir()
    text = b"[" + (folder / "cell.json").read_bytes() + b"]"
    name = hashlib.sha256(json.dumps([cell.key]).encode()).hexdigest()[:32]
    whole = hashlib.sha256(text).hexdigest().encode() + b"\n" + text
    (folder / "cells" / f"{name}.json").write_bytes(whole)
    render_settings(frontier(read_rows(folder)), folder.name)


def _table(place: Path) -> None:
    (file,) = place.glob("table.*")
    load(Data(source="file", path=str(file), client="c", target="y"))


READERS: dict[str, Callable[[Path], None]] = {
    reader.__name__.removeprefix("_"): reader
    for reader in (
        _recording, _audited, _verify, _config, _sweep, _description, _template, _import, _audit,
        _cells, _table,
    )
}  # fmt: skip
