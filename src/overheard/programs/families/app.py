"""What does a client do whose training is code of the app's own? That code is called.

``[model] name = "app"`` with ``model = "task:Net"`` and ``train = "task:train"``: from the model
that was sent, `train(model, loader)` is run on records of ours, in a loader of ours, so that
whatever the app does is what is replayed. What a record's value does to the answer is found by
trying: each record is changed alone, and what that changes in the model returned is its column. One
full-batch step of descent adds records up, and the columns are exact; where steps follow each other
they are a first order, and what they miss of clients drawn at random is the noise of the equations.
So is the order of batches where nobody knows it (``shuffle``), or what else the code draws: a
change is seen in the same few orders as what it is compared with, those clients train in others.

To name code is to run it: it must be trusted (`overheard.programs.trusted`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from overheard.decoding.measurement import Measurement
from overheard.decoding.noise import whitening
from overheard.errors import ChooseAnotherAttack, FixConfig
from overheard.programs.program import (
    Candidates,
    Exchange,
    Message,
    Program,
    Settings,
    distance,
    measured,
    room,
)
from overheard.programs.records import Records, encode
from overheard.programs.trusted import granted, made_by

Array = NDArray[np.float64]
ROUNDING = 4e-7
"""Of an array's largest number: what single precision leaves of sums in another order."""


@dataclass(frozen=True)
class ReplayOptions:
    """How an app's training is replayed.

    replays: of all rounds together, at most; some minutes of a small network.
    orders: in which a change is seen.
    drawn: clients drawn at random, by which it is seen what the columns miss; many where orders
        are drawn, too, because the noise then has a shape.
    uncorrelated: how much of the correlation of noise that drawn clients show is taken as none:
        little, because the noise of batch orders lies in few directions.
    equations: coordinates an unknown that are used: more say little that is new.
    """

    replays: int = 20_000
    orders: int = 1
    drawn: int = 8
    uncorrelated: float = 0.001
    equations: int = 4


IN_ORDER, SHUFFLED = ReplayOptions(), ReplayOptions(orders=4, drawn=240)


class AppSettings(Settings):
    """The app's own code is the description of what its clients do."""

    name: Literal["app"] = "app"
    model: str
    """A function that makes the torch module. Example: `model = "task:Net"`"""
    train: str
    """A function (module, loader) that trains it. Example: `train = "task:train"`"""
    batch_size: int = Field(default=0, ge=0)
    """Of the loader, in the order of the records; 0: all of them at once."""
    shuffle: bool = False
    """In an order that is drawn anew each time; so is whatever else the code draws then."""
    labels: Literal["column", "flat", "classes"] = "column"
    """Numbers in a column (n, 1), flat (n,), or whole numbers of classes (n,)."""

    def code(self) -> tuple[str, ...]:
        return (self.model, self.train)


class App(Program):
    settings: AppSettings
    trains: ClassVar[bool] = True
    rounding: ClassVar[float] = ROUNDING

    def first(self) -> Message:
        return _arrays(made_by(self.settings.model))

    @property
    def random(self) -> bool:  # type: ignore[override]
        return self.settings.shuffle

    def respond(self, received: Message, records: Records, rng: np.random.Generator) -> Message:
        if self.random:
            return self._trained(received, records, int(rng.integers(1 << 32)))
        first, second = (self._trained(received, records, seed) for seed in (0, 1))
        if distance(first, second):
            raise ChooseAnotherAttack(
                f"{self.settings.train!r} draws at random (an order, dropout): it does not repeat "
                "itself: say shuffle = true, or let it take the loader's order"
            )
        return first

    def _trained(self, received: Message, records: Records, seed: int = 0) -> Message:
        how = self.settings
        module, train = made_by(how.model), granted(how.train, "the model is trained by")
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        module.load_state_dict({n: torch.tensor(np.asarray(a)) for n, a in received.items()})
        labels = torch.tensor(self.target.encode(records), dtype=torch.float32)
        if how.labels != "flat":
            labels = labels.long() if how.labels == "classes" else labels.view(-1, 1)
        inputs = torch.tensor(encode(self.encoding, records), dtype=torch.float32)
        people, size = TensorDataset(inputs, labels), how.batch_size or len(records)
        loader = DataLoader(people, size, shuffle=how.shuffle)
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

    def measure(self, observed: Sequence[Exchange], candidates: Candidates) -> Measurement:
        tables = [table for table in candidates.tables if table is not None]
        if len(tables) < len(candidates.tables):
            raise ChooseAnotherAttack(
                "a record that may be absent changes every batch; ask of its values"
            )
        records, rng = candidates.records, np.random.default_rng(0)
        options = SHUFFLED if self.random else IN_ORDER
        once = options.orders * (candidates.unknowns + 1) + options.drawn
        if once > options.replays:
            raise ChooseAnotherAttack(
                f"{records:,} records of {len(tables)} candidates take {once:,} replays of the "
                f"app's own training, more than {options.replays:,}; audit smaller clients"
            )
        some = observed[: options.replays // once]
        rounds = [self._columns(one, tables, options, rng) for one in some]
        features, total, noise = (
            np.concatenate(part, axis=-1) for part in zip(*rounds, strict=True)
        )
        power = (features**2).sum(axis=(0, 1)) / noise**2
        used = np.argsort(-power, kind="stable")[: options.equations * candidates.unknowns]
        return measured(features[..., used], total[used], noise[used])

    def _columns(
        self, one: Exchange, tables: Sequence[Records], options: ReplayOptions, rng: Any
    ) -> tuple[Array, Array, Array]:
        """What each candidate of each record adds to the answer (K, m, P) beyond its first one,
        what all of them added, and the noise of that."""
        orders, nobody = options.orders, np.zeros(records := len(tables[0]), dtype=np.int64)

        def answer(choice: NDArray[np.int64], order: int) -> Array:
            mixed = {
                name: np.choose(choice, [table[name] for table in tables])
                for name in tables[0].columns
            }
            return _flat(self._trained(one.sent, Records(mixed), order))

        self.respond(one.sent, tables[0], rng)  # refuses where randomness is not declared
        bases = [answer(nobody, order) for order in range(orders)]
        base, returned = np.mean(bases, axis=0), _flat(one.returned)
        room(base.size, records, orders * len(tables))
        seen = np.zeros((orders, len(tables), records, base.size))
        for order, k, i in np.ndindex(orders, len(tables) - 1, records):
            choice = np.where(np.arange(records) == i, k + 1, 0)
            seen[order, k + 1, i] = answer(choice, order) - bases[order]
        features, missed = seen.mean(axis=0), []
        for order in range(orders, orders + options.drawn):
            choice = rng.integers(len(tables), size=records)
            added = features[choice, np.arange(records)].sum(axis=0)
            missed.append(answer(choice, order) - base - added)
        rounding = ROUNDING * max(float(np.abs(returned).max()), 1e-30)
        if not self.random:
            sd = np.sqrt(np.mean(np.square(missed), axis=0) + rounding**2)
            return features, returned - base, sd
        # half of the clients drawn say what noise coordinates have in common, the others how large
        # it is; of a feature there remains what the orders agree on
        mean, (shape, judged) = np.mean(missed, axis=0), np.array_split(missed, 2)
        common = (shape - mean) / np.sqrt(len(shape))
        white = whitening(common, np.hypot(np.std(missed, axis=0), rounding), options.uncorrelated)
        each, size = white(seen), np.sqrt(np.mean(white(judged - mean) ** 2))
        features = each.mean(axis=0)
        luck = each.var(axis=0, ddof=1).mean(axis=(0, 1)) / orders
        agreed = 1 - luck / np.maximum(np.mean(features**2, axis=(0, 1)), 1e-300)
        total = white(returned - base - mean)
        return features * np.maximum(0.0, agreed), total, np.full(len(total), size)


def _arrays(module: Any) -> dict[str, NDArray[Any]]:
    return {name: value.detach().numpy().copy() for name, value in module.state_dict().items()}


def _flat(message: Message) -> Array:
    return np.concatenate([np.asarray(message[n], np.float64).ravel() for n in sorted(message)])


PROGRAM = App
