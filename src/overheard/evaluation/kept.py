"""What an audit has found so far, kept on disk so that a stopped audit can go on.

A piece is one attack on one client, or one curve; it is kept the moment it is there and read back
bit for bit, so that an audit ends the same however often it was stopped. The pieces hold scores of
single records: they are for the audit that makes them, and go when it ends.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from overheard.evaluation.record import Finding, Skipped
from overheard.evaluation.scoring import Scored
from overheard.evaluation.sureness import Posterior
from overheard.files import write_durably

Part = TypeVar("Part", bound=BaseModel)


@dataclass(frozen=True)
class Kept:
    """A folder of pieces; without a folder nothing is kept and nothing is there."""

    folder: Path | None = None

    def outcome(self, *key: str) -> Scored | Skipped | None:
        """What an attack on a client came to, if that is known already."""
        content = self._read("outcome", *key)
        if content is None:
            return None
        if "skipped" in content:
            return Skipped.model_validate(content["skipped"])
        posterior = content["posterior"]
        return Scored(
            Finding.model_validate(content["finding"]),
            _unpacked(content["units"]),
            None if content["imputed"] is None else _unpacked(content["imputed"]),
            None if posterior is None else Posterior(*(a and _unpacked(a) for a in posterior)),
        )

    def keep(self, outcome: Scored | Skipped, *key: str) -> None:
        """Note what an attack on a client came to."""
        if isinstance(outcome, Skipped):
            self._write({"skipped": outcome.model_dump()}, "outcome", *key)
            return
        p = outcome.posterior
        content = {
            "finding": outcome.finding.model_dump(),
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
        self, kind: type[Part], make: Callable[[], Sequence[Part]], *key: str
    ) -> Sequence[Part]:
        """Parts of the record: read, or made and kept."""
        content = self._read(kind.__name__, *key)
        if content is not None:
            return [kind.model_validate(part) for part in content["parts"]]
        made = make()
        self._write({"parts": [part.model_dump() for part in made]}, kind.__name__, *key)
        return made

    def _path(self, *key: str) -> Path | None:
        if self.folder is None:
            return None
        name = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32]
        return self.folder / f"{name}.json"

    def _read(self, *key: str) -> dict[str, Any] | None:
        """The piece; one that is not as it was written is as good as none, and is removed."""
        path = self._path(*key)
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


def _packed(array: NDArray[Any]) -> dict[str, Any]:
    raw = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"dtype": array.dtype.str, "shape": list(array.shape), "bytes": raw}


def _unpacked(content: dict[str, Any]) -> NDArray[Any]:
    raw = base64.b64decode(content["bytes"])
    return np.frombuffer(raw, np.dtype(content["dtype"])).reshape(content["shape"]).copy()
