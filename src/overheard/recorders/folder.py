"""A folder of checkpoints as a recording: one safetensors file a message, named by a pattern."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field

from overheard.errors import FixConfig, FixData
from overheard.federation.reading import checked
from overheard.foreign.files import inside, opened, read_bounded, read_toml
from overheard.foreign.limits import check
from overheard.programs.records import Spec
from overheard.recorders.recorder import EVERYBODY, Recorder
from overheard.transcript.messages import Arrays, releases_arrays


class Pattern(Spec):
    """Where each message lies: paths with ``{round}`` (digits) and ``{client}`` (no slash).

    ``sent`` is the model that a round begins with; with ``sent_is = "after"`` the file holds the
    model that the round ended in, so each round begins with the file of the one before. ``weights``
    are the clients' record counts, ``payload`` says what they return. "release": models of boosted
    trees, recorded as the bytes that they are; the first round may begin with none.
    """

    sent: str = "round_{round}/global.safetensors"
    returned: str = "round_{round}/{client}.safetensors"
    sent_is: Literal["before", "after"] = "before"
    payload: Literal["model", "gradient", "release"] = "model"
    weights: dict[str, float] = Field(default={})


def read_pattern(path: str | Path) -> Pattern:
    """Read and check a pattern file."""
    return checked(Pattern, read_toml(path), str(path))


def import_folder(folder: str | Path, out: str | Path, pattern: Pattern | None = None) -> int:
    """Write the recording of a folder's checkpoints to ``out``; returns the number of rounds."""
    root, how = Path(folder), pattern or Pattern()
    if not root.is_dir():
        raise FixData(f"{root}: no such folder; name the one that holds the checkpoints")
    found = _found(root, how)
    rounds = sorted(number for number, there in found.items() if there.keys() - {EVERYBODY})
    if not rounds:
        raise FixData(
            f"{root}: no file is named like {how.returned!r}; give a TOML file with the pattern "
            "(--pattern)"
        )
    later = int(how.sent_is == "after")
    models = {n + later: there[EVERYBODY] for n, there in found.items() if EVERYBODY in there}
    if later:
        rounds = [number for number in rounds if number in models]
        if not rounds:
            raise FixData(f"{root}: no round comes after one with a file like {how.sent!r}")
    whole = releases_arrays(how.payload)
    lacking = [number for number in rounds[int(whole) :] if number not in models]
    if lacking:
        raise FixData(
            f"{root}: round {lacking[0]} has no file like {how.sent!r}; it is the model that the "
            "round begins with"
        )
    about = {"framework": "checkpoints", "folder": root.name}
    with Recorder(out, how.payload, about) as recorder:
        for number in rounds:
            begins = read_arrays(models[number], whole) if number in models else _bytes(b"")
            recorder.sent(number, EVERYBODY, begins)
            clients = {client: file for client, file in found[number].items() if client}
            for client, file in sorted(clients.items()):
                weight = how.weights.get(client, float("nan"))
                recorder.returned(number, client, read_arrays(file, whole), weight)
    return len(rounds)


def _found(root: Path, how: Pattern) -> dict[int, dict[str, Path]]:
    """The files of each round, by who sent them. What is named like ``sent`` is not a client's."""
    one, other = _expression("sent", how.sent), _expression("returned", how.returned)
    found: dict[int, dict[str, Path]] = {}
    for file in sorted(p for p in root.rglob("*") if p.is_file()):
        name = file.relative_to(root).as_posix()
        match = one.fullmatch(name) or other.fullmatch(name)
        if match is None:
            continue
        if not inside(root, file):
            raise FixData(f"{file}: is a link that leads out of {root}; copy the file there")
        there = found.setdefault(int(match["round"]), {})
        client = match.groupdict().get("client", EVERYBODY)
        if client in there:  # rounds 1 and 01
            raise FixData(f"{file}: is the same message as {there[client]}; keep one of the two")
        there[client] = file
        check("rounds", len(found), root, FixData)
    return found


def _expression(key: str, pattern: str) -> re.Pattern[str]:
    """The pattern as a regular expression; all but its two fields is taken literally."""
    wanted = {"round"} if key == "sent" else {"round", "client"}
    fields = re.findall(r"\{(\w*)\}", pattern)
    if set(fields) != wanted or len(fields) != len(wanted):
        raise FixConfig(
            f"{key} = {pattern!r} must have {' and '.join(sorted('{' + w + '}' for w in wanted))}, "
            "each once"
        )
    text = re.escape(pattern)
    text = text.replace(re.escape("{round}"), r"(?P<round>[0-9]{1,15})")
    return re.compile(text.replace(re.escape("{client}"), r"(?P<client>[^/]+)"))


def _bytes(raw: bytes) -> Arrays:
    return {"model": np.frombuffer(raw, dtype=np.uint8)}


def read_arrays(file: Path, whole: bool = False) -> Arrays:
    """The arrays of a file; ``whole``: one array, of its bytes."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if whole:
        return _bytes(read_bounded(file, "message_bytes", True, FixData))
    with opened(file, True, FixData) as (_, size):
        check("message_bytes", size, file, FixData)
    try:
        return dict(load_file(file))
    except (SafetensorError, OSError, TypeError, KeyError, ValueError, AttributeError) as error:
        raise FixData(f"{file}: cannot be read as safetensors: {error}") from error
