"""Which records an attack guessed right, kept beside an audit so that another one can be paired
with it, record by record.

``audit.json`` holds nothing about single records. ``hits.json`` does: one bit a record, attack and
client. Whoever has the recording can run the attacks again, and with these bits knows the secrets;
so the file is written only where it was asked for, for its owner alone, and belongs where
``truth/`` is.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from overheard.errors import FixRecording
from overheard.evaluation.record import Audit, Finding
from overheard.evaluation.scoring import Scored
from overheard.foreign.limits import check
from overheard.foreign.notation import read_json

HITS = "hits.json"


class About(NamedTuple):
    """Whose guesses, about what, of which client."""

    attack: str
    question: str
    attribute: str | None
    client: str


class Guessed(NamedTuple):
    """``records``: a digest of the records asked about, in their order; ``right`` (n,)."""

    records: str
    right: NDArray[np.bool_]


Hits = Mapping[About, Guessed]


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Line(_Spec):
    attack: str
    question: str
    attribute: str | None
    client: str
    records: str
    n: int = Field(ge=1)
    right: str


class _File(_Spec):
    hits: Literal[1] = 1
    lines: tuple[_Line, ...]


def about(found: Finding) -> About:
    return About(found.attack, found.question, found.attribute, found.client)


def hits_json(outcomes: Iterable[Scored]) -> str:
    """What ``hits.json`` holds of the shares of records guessed right."""
    lines = [
        _Line(
            **about(one.finding)._asdict(),
            records=one.records,
            n=len(one.units),
            right=base64.b64encode(np.packbits(one.units > 0.5).tobytes()).decode(),
        )
        for one in outcomes
        if one.finding.measure.hits and one.records
    ]
    return _File(lines=tuple(lines)).model_dump_json(indent=1) + "\n"


def read_hits(file: Path, audit: Audit) -> Hits:
    """The hits beside an audit; none if there is no such file. What contradicts the audit, or is
    not what `hits_json` writes, is refused."""
    if not file.exists() and not file.is_symlink():
        return {}
    try:
        content = _File.model_validate(read_json(file))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "top level"
        raise FixRecording(f"{file}: holds no hits: {where}: {first['msg']}") from error
    check("rows", sum(line.n for line in content.lines), file)
    known = {about(found): found for found in audit.findings}
    found: dict[About, Guessed] = {}
    for number, line in enumerate(content.lines):
        key = About(line.attack, line.question, line.attribute, line.client)
        finding = known.get(key)
        right = _unpacked(line, f"{file}: line {number}")
        if finding is None or finding.n != line.n or abs(finding.value - right.mean()) > 1e-9:
            raise FixRecording(
                f"{file}: line {number} is not what the audit beside it found; put back the file "
                "that was written with it, or remove this one"
            )
        found[key] = Guessed(line.records, right)
    return found


def _unpacked(line: _Line, where: str) -> NDArray[np.bool_]:
    try:
        raw = base64.b64decode(line.right, validate=True)
    except (binascii.Error, ValueError) as error:
        raise FixRecording(f"{where}: holds no hits: not base64") from error
    if len(raw) != -(-line.n // 8):
        raise FixRecording(f"{where}: holds no hits: {len(raw)} bytes for {line.n} records")
    return np.unpackbits(np.frombuffer(raw, np.uint8), count=line.n).astype(np.bool_)
