"""What do boosted trees tell? Each client sends the trees that it grew on its own records.

As Flower's and FLARE's XGBoost apps do it: the server sends the global model, a client grows one or
a few trees on top of it and returns them (bagging: the server appends everybody's) or the whole
model (cyclic: it goes on to the next client). Models travel as the bytes of XGBoost's JSON or
UBJSON. How they are read: `programs/trees/model.py`; what their leaves say about the records, and
how exactly: `programs/trees/equations.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from overheard.decoding.measurement import Measurement
from overheard.decoding.sparse_equations import SparseEquations
from overheard.errors import FixConfig, FixRecording
from overheard.programs.program import Candidates, Exchange, Message, Program, Settings, room
from overheard.programs.recipe import Target
from overheard.programs.records import Encoding, Records, encode
from overheard.programs.trees import equations as trees
from overheard.programs.trees.model import MOST_CLASSES, Booster, read_growing, read_model
from overheard.programs.trees.objectives import start_margin
from overheard.programs.trees.training import TreeSettings, bagged, grow

MODEL = "model"
"""The name of the bytes in a simulated message; in others it is whatever it is."""
SAME = 1e-5
"""Values of leaves that differ by less, relative to the tree's largest, differ by rounding."""
_NUMBERED = re.compile(r"\.[0-9]+$")
_CLASSES = {"binary:logistic": (2, 2), "multi:softprob": (2, MOST_CLASSES)}


class Trees(Program):
    """Boosting rounds on top of the global model, for the server to append."""

    settings: TreeSettings

    @model_validator(mode="after")
    def _fits(self) -> Self:
        objective, classes = self.settings.objective, len(self.target.classes)
        least, most = _CLASSES.get(objective, (0, 0))
        if not least <= classes <= most:
            raise ValueError(
                f"objective {objective!r} does not fit the target {self.target.column!r} of "
                f"{classes or 'no'} classes: use binary:logistic for two, multi:softprob for more, "
                "the others for numbers"
            )
        return self

    @classmethod
    def planned(
        cls, settings: Settings, encoding: Encoding, target: Target, records: Records
    ) -> Self:
        target = target.model_copy(update={"shift": 0.0, "scale": 1.0})  # labels as they stand
        return super().planned(settings, encoding, target, records)

    @property
    def chance(self) -> bool:  # type: ignore[override]
        """Sampled rows and columns are nobody's to repeat."""
        return min(self.settings.subsample, self.settings.colsample_bytree) < 1

    def first(self) -> Message:
        return {MODEL: np.zeros(0, dtype=np.uint8)}

    def respond(self, received: Message, records: Records, rng: np.random.Generator) -> Message:
        inputs, labels = encode(self.encoding, records), self.target.encode(records)
        several = self.settings.objective == "multi:softprob"
        classes = len(self.target.classes) if several else 0
        if self.settings.objective in ("count:poisson", "reg:gamma") and labels.min() < 0:
            raise FixConfig(
                f"objective {self.settings.objective!r} needs labels that are not negative; "
                f"{self.target.column!r} has {labels.min():g}: choose another objective"
            )
        seed = int(rng.integers(1 << 31))
        sent = model_bytes(received, 0)
        return _message(grow(sent, (inputs, labels), self.settings, seed, classes))

    def following(self, sent: Message, returned: Mapping[str, Message]) -> Message:
        models = [model_bytes(message, 0) for message in returned.values()]
        if self.settings.aggregation == "bagging":
            return _message(bagged(model_bytes(sent, 0), models))
        if len(models) > 1:
            raise FixConfig(
                f"cyclic training passes one model from client to client, and {len(models)} took "
                "part in a round: set training.participation to 1 / the number of clients"
            )
        return _message(models[0])

    def assembled(self, heard: Sequence[Exchange]) -> tuple[Exchange, ...]:
        """With the whole model that each round began with. FLARE's bagging sends only what is new,
        a list of the models that all clients returned before (arrays ``name.0``, ``name.1``)."""
        whole, found = b"", []
        for one in super().assembled(heard):
            new = [a.tobytes() for n, a in one.sent.items() if _NUMBERED.search(n)]
            whole = _joined(whole, new, one.number) if new else b""
            found.append(replace(one, sent=_message(whole)) if new else one)
        return tuple(found)

    def own(self, heard: Sequence[Exchange]) -> Message:
        """Its own trees (bagging), or the model that it passed on."""
        returned = [(model_bytes(one.returned, one.number), one.number) for one in heard]
        whole = b""
        for raw, number in returned if self.settings.aggregation == "bagging" else returned[-1:]:
            whole = _joined(whole, [raw] if raw else [], number)
        return _message(whole)

    def predict(self, sent: Message, records: Records) -> NDArray[np.float64] | None:
        if not model_bytes(sent, 0):
            return None
        model = read_model(model_bytes(sent, 0), "the global model")
        inputs = encode(self.encoding, records).astype(np.float32)
        margin = np.tile(start_margin(model).astype(np.float64), (len(inputs), 1))
        for tree in model.trees:
            margin[:, tree.group] += tree.value[tree.leaves(inputs)]
        exponential = self.settings.objective in ("count:poisson", "reg:gamma")
        return np.exp(margin) if exponential else margin

    def measure(self, heard: Sequence[Exchange], candidates: Candidates) -> Measurement:
        return self.equations(heard, candidates).measurement()

    def equations(self, heard: Sequence[Exchange], candidates: Candidates) -> SparseEquations:
        tables = candidates.tables
        room(self.encoding.width, candidates.records, len(tables))
        some = next(table for table in tables if table is not None)
        full = [some if table is None else table for table in tables]
        inputs = np.stack([encode(self.encoding, table) for table in full], dtype=np.float32)
        labels = np.stack([self.target.encode(table) for table in full], dtype=np.float32)
        present = np.array([table is not None for table in tables])
        each = trees.Candidates(inputs, labels, None if present.all() else present)
        return trees.tree_equations(read_exchanges(heard), each, self.settings)

    def distance(self, returned: Message, repeated: Message) -> float:
        """Of the newest tree's leaves; infinity where the trees differ in form."""
        return _apart(*(read_model(model_bytes(m, 0), "a model") for m in (returned, repeated)))


def read_exchanges(heard: Sequence[Exchange]) -> list[trees.Exchange]:
    """The models of every round, read and checked; rounds in which nothing came back are left
    out."""
    sent = [model_bytes(one.sent, one.number) for one in heard]
    models = read_growing(sent, "the model sent in round")
    found = []
    for one, model in zip(heard, models, strict=True):
        raw = model_bytes(one.returned, one.number)
        if raw:
            back = read_model(raw, f"the model returned in round {one.number}")
            found.append(trees.Exchange(model, back))
    return found


def model_bytes(message: Message, number: int) -> bytes:
    """The bytes of a message's only array."""
    arrays: list[NDArray[np.generic]] = list(message.values())
    if len(arrays) != 1 or arrays[0].dtype != np.uint8 or arrays[0].ndim != 1:
        have = ", ".join(f"{n} {a.dtype} {a.shape}" for n, a in list(message.items())[:5])
        raise FixRecording(
            f"round {number}: a message of trees is one array of bytes (uint8); this one has "
            f"{have[:200] or 'none'}"
        )
    return arrays[0].tobytes()


def _joined(model: bytes, new: list[bytes], number: int) -> bytes:
    """A stranger's models as one, each read and checked before."""
    for raw in new:
        read_model(raw, f"a model of round {number}")
    try:
        return bagged(model, new) if new else model
    except (KeyError, TypeError, ValueError) as error:
        raise FixRecording(f"round {number}: the models cannot be joined ({error!r})") from error


def _message(model: bytes) -> Message:
    return {MODEL: np.frombuffer(model, dtype=np.uint8)}


def _apart(one: Booster, other: Booster) -> float:
    if len(one.trees) != len(other.trees):
        return float("inf")
    found = 0.0
    for a, b in zip(one.trees, other.trees, strict=True):
        if not (np.array_equal(a.left, b.left) and np.array_equal(a.feature, b.feature)):
            return float("inf")
        size = float(np.abs(b.value).max(initial=0.0))
        gap = float(np.abs(a.value - b.value).max(initial=0.0))
        if gap > SAME * size:
            found = max(found, gap / max(size, 1e-300))
    return found


PROGRAM = Trees
