"""What does a client do whose training is code of the app's own? That code is called.

``[model] name = "app"`` with ``model = "task:Net"`` and ``train = "task:train"``: from the model
that was sent, `train(model, loader)` is run on records of ours, in a loader of ours, so that
whatever the app does is what is replayed. What a record's value does to the answer is found by
trying: each record is changed alone, and what that changes in the model returned is its column. One
full-batch step of descent adds records up, and the columns are exact; where steps follow each other
they are a first order, and what they miss of clients drawn at random is the noise of the equations.

To name code is to run it: it must be trusted (`overheard.programs.trusted`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from overheard.decoding.measurement import Measurement
from overheard.errors import ChooseAnotherAttack, FixConfig
from overheard.programs.program import (
    Candidates,
    Exchange,
    Message,
    Program,
    Settings,
    measured,
    room,
)
from overheard.programs.program import distance as exact_distance
from overheard.programs.records import Records, encode
from overheard.programs.trusted import granted, made_by

Array = NDArray[np.float64]
MOST_REPLAYS = 20_000
"""Of all rounds together: some minutes of a small network."""
DRAWN = 8
"""Clients drawn at random, by which it is seen what the columns miss."""
SPARE = 4
"""Coordinates an unknown that are used: more say little that is new."""
ROUNDING = 4e-7
"""Of an array's largest number: what single precision leaves of sums in another order."""


class AppSettings(Settings):
    """The app's code: ``model`` makes the torch module, ``train(module, loader)`` trains it.
    ``batch_size``: of the loader, in the order of the records (0: all of them at once).
    ``labels``: numbers in a column (n, 1), flat (n,), or whole numbers of classes (n,)."""

    name: Literal["app"] = "app"
    model: str
    train: str
    batch_size: int = Field(default=0, ge=0)
    labels: Literal["column", "flat", "classes"] = "column"

    def code(self) -> tuple[str, ...]:
        return (self.model, self.train)


class App(Program):
    settings: AppSettings
    trains: ClassVar[bool] = True

    def first(self) -> Message:
        return _arrays(made_by(self.settings.model))

    def respond(self, received: Message, records: Records, rng: np.random.Generator) -> Message:
        first, second = (self._trained(received, records, seed) for seed in (0, 1))
        if exact_distance(first, second):
            raise ChooseAnotherAttack(
                f"{self.settings.train!r} draws at random (an order, dropout): it does not repeat "
                "itself, and what it did is not replayed; let it take the loader's order"
            )
        return first

    def _trained(self, received: Message, records: Records, seed: int = 0) -> Message:
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        how = self.settings
        module, train = made_by(how.model), granted(how.train, "the model is trained by")
        module.load_state_dict({n: torch.tensor(np.asarray(a)) for n, a in received.items()})
        labels = torch.tensor(self.target.encode(records), dtype=torch.float32)
        if how.labels != "flat":
            labels = labels.long() if how.labels == "classes" else labels.view(-1, 1)
        inputs = torch.tensor(encode(self.encoding, records), dtype=torch.float32)
        loader = DataLoader(TensorDataset(inputs, labels), how.batch_size or len(records))
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            try:
                train(module, loader)
            except Exception as error:
                raise FixConfig(
                    f"{how.train!r} failed on a module and a loader of {len(records)} records: "
                    f"{type(error).__name__}: {error}"
                ) from error
        return _arrays(module)

    def following(self, sent: Message, returned: Mapping[str, Message]) -> Message:
        return {n: np.mean([one[n] for one in returned.values()], axis=0) for n in sent}

    def distance(self, returned: Message, repeated: Message) -> float:
        """Beyond the rounding of single precision."""
        found = exact_distance(returned, repeated)
        return found if found > ROUNDING else 0.0

    def measure(self, heard: Sequence[Exchange], candidates: Candidates) -> Measurement:
        tables = [table for table in candidates.tables if table is not None]
        if len(tables) < len(candidates.tables):
            raise ChooseAnotherAttack(
                "a record that may be absent changes every batch; ask of its values"
            )
        records, rng = candidates.records, np.random.default_rng(0)
        once = records * (len(tables) - 1) + 1 + DRAWN
        if once > MOST_REPLAYS:
            raise ChooseAnotherAttack(
                f"{records:,} records of {len(tables)} candidates take {once:,} replays of the "
                f"app's own training, more than {MOST_REPLAYS:,}; audit smaller clients"
            )
        rounds = [self._columns(one, tables, rng) for one in heard[: MOST_REPLAYS // once]]
        features, total, noise = (
            np.concatenate(part, axis=-1) for part in zip(*rounds, strict=True)
        )
        said = (features**2).sum(axis=(0, 1)) / noise**2
        kept = np.argsort(-said, kind="stable")[: SPARE * records * (len(tables) - 1)]
        return measured(features[..., kept], total[kept], noise[kept])

    def _columns(
        self, one: Exchange, tables: Sequence[Records], rng: np.random.Generator
    ) -> tuple[Array, Array, Array]:
        """What each candidate of each record adds to the answer (K, m, P) beyond its first one,
        what all of them added, and the noise of that."""
        records = len(tables[0])

        def answer(choice: NDArray[np.int64]) -> Array:
            mixed = {
                name: np.choose(choice, [table[name] for table in tables])
                for name in tables[0].columns
            }
            return _flat(self._trained(one.sent, Records(mixed)))

        base = _flat(self.respond(one.sent, tables[0], rng))  # refuses where that is chance
        returned = _flat(one.returned)
        room(base.size, records, len(tables))
        features = np.zeros((len(tables), records, base.size))
        for k, i in np.ndindex(len(tables) - 1, records):
            features[k + 1, i] = answer(np.where(np.arange(records) == i, k + 1, 0)) - base
        missed = []
        for _ in range(DRAWN):
            choice = rng.integers(len(tables), size=records)
            added = features[choice, np.arange(records)].sum(axis=0)
            missed.append(answer(choice) - base - added)
        rounding = ROUNDING * max(float(np.abs(returned).max()), 1e-30)
        return features, returned - base, np.sqrt(np.mean(np.square(missed), axis=0) + rounding**2)


def _arrays(module: Any) -> dict[str, NDArray[Any]]:
    return {name: value.detach().numpy().copy() for name, value in module.state_dict().items()}


def _flat(message: Message) -> Array:
    def parts() -> Iterator[Array]:
        for name in sorted(message):
            yield np.asarray(message[name], dtype=np.float64).ravel()

    return np.concatenate([*parts()])


PROGRAM = App
