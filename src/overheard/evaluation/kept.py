"""What an audit has found so far, kept on disk so that a stopped audit can go on.

A piece is one attack on one client, or one curve; it is kept the moment it is there and read back
bit for bit, so that an audit ends the same however often it was stopped. The pieces hold scores of
single records: they are for the audit that makes them, and go when it ends.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from overheard.evaluation.record import Failed, Finding, Skipped
from overheard.evaluation.scoring import Scored
from overheard.evaluation.sureness import Posterior
from overheard.files import write_durably

Part = TypeVar("Part", bound=BaseModel)


@dataclass(frozen=True)
class Kept:
    """A folder of pieces; without a folder nothing is kept and nothing is there."""

    folder: Path | None = None

    def outcome(self, *key: str) -> Scored | Skipped | Failed | None:
        """What an attack on a client came to, if that is known already."""
        content = self._read(self._path("outcome", *key))
        return None if content is None else _outcome(content)

    def outcomes(self) -> Iterator[Scored]:
        """What every attack that was kept came to, in no order that means anything."""
        for path in sorted(self.folder.glob("*.json")) if self.folder else ():
            content = self._read(path)
            if content is not None and "finding" in content:
                found = _outcome(content)
                if isinstance(found, Scored):
                    yield found

    def keep(self, outcome: Scored | Skipped | Failed, *key: str) -> None:
        """Note what an attack on a client came to."""
        if isinstance(outcome, Skipped):
            self._write({"skipped": outcome.model_dump()}, "outcome", *key)
            return
        if isinstance(outcome, Failed):
            self._write({"failed": outcome.model_dump()}, "outcome", *key)
            return
        p = outcome.posterior
        content = {
            "finding": outcome.finding.model_dump(),
            "records": outcome.records,
            "units": _packed(outcome.units),
            "imputed": None if outcome.imputed is None else _packed(outcome.imputed),
            "posterior": None
            if p is None
            else [
                None if a is None else _packed(a) for a in (p.confidence, p.hits, p.bits, p.beyond)
            ],
        }
        self._write(content, "outcome", *key)

    def parts(
        self, kind: type[Part], make: Callable[[], Sequence[Part | Failed | Skipped]], *key: str
    ) -> Sequence[Part | Failed | Skipped]:
        """Parts of the record, and those that could not be made: read, or made and kept."""
        content = self._read(self._path(kind.__name__, *key))
        if content is not None:
            return [
                *(kind.model_validate(part) for part in content["parts"]),
                *(Failed.model_validate(part) for part in content["failed"]),
                *(Skipped.model_validate(part) for part in content["skipped"]),
            ]
        made = make()
        kinds: dict[str, type[BaseModel]] = {"parts": kind, "failed": Failed, "skipped": Skipped}
        content = {
            name: [part.model_dump() for part in made if isinstance(part, its)]
            for name, its in kinds.items()
        }
        self._write(content, kind.__name__, *key)
        return made

    def _path(self, *key: str) -> Path | None:
        if self.folder is None:
            return None
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
        return self.folder / f"{name}.json"

    def _read(self, path: Path | None) -> dict[str, Any] | None:
        """The piece; one that is not as it was written is as good as none, and is removed."""
        if path is None or not path.exists():
            return None
        digest, _, text = path.read_bytes().partition(b"\n")
        if digest.decode("ascii", "replace") != hashlib.sha256(text).hexdigest():
            path.unlink()
            return None
        content: dict[str, Any] = json.loads(text)
        return content

    def _write(self, content: dict[str, Any], *key: str) -> None:
        path = self._path(*key)
        if path is not None:
            text = json.dumps(content, allow_nan=True).encode()
            write_durably(path, [hashlib.sha256(text).hexdigest().encode(), b"\n", text])


NOTHING_KEPT = Kept()


def _outcome(content: dict[str, Any]) -> Scored | Skipped | Failed:
    if "skipped" in content:
        return Skipped.model_validate(content["skipped"])
    if "failed" in content:
        return Failed.model_validate(content["failed"])
    posterior = content["posterior"]
    return Scored(
        Finding.model_validate(content["finding"]),
        _unpacked(content["units"]),
        None if content["imputed"] is None else _unpacked(content["imputed"]),
        None if posterior is None else Posterior(*(a and _unpacked(a) for a in posterior)),
        content["records"],
    )


def _packed(array: NDArray[Any]) -> dict[str, Any]:
    raw = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "bytes": raw}


def _unpacked(content: dict[str, Any]) -> NDArray[Any]:
    raw = base64.b64decode(content["bytes"])
    return np.frombuffer(raw, np.dtype(content["dtype"])).reshape(content["shape"]).copy()
