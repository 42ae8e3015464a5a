"""What does a client do that trains no network? A program: how it answers, and what that tells.

A family of programs (Newton steps, statistics, boosted trees) is one file in ``programs/families``,
whose ``PROGRAM`` is a `Program`. The file's name is the family's, and a config's ``[model]`` asks
for it by ``name``; nothing else compares it. So does a file of your own: `new_program.py`, whose
package announces ``total = "new_program:Total"`` in the group of entry points
``overheard.programs``::

    from typing import Literal

    import numpy as np

    from overheard.programs.program import Program, Settings, expected, measured
    from overheard.programs.records import encode

    class TotalSettings(Settings):
        name: Literal["total"] = "total"

    class Total(Program):
        settings: TotalSettings  # every client releases the sum of inputs times labels

        def first(self):
            return {}

        def respond(self, received, records, rng):
            return {"total": self.added(records).sum(axis=0)}

        def following(self, sent, returned):
            return {}

        def measure(self, observed, candidates):
            added = np.stack([self.added(table) for table in candidates.filled])
            total = expected(observed[0].returned, "total", added.shape[2:], observed[0].number)
            return measured(added, total, 1e-9 * np.abs(added).max())

        def added(self, records):
            return encode(self.encoding, records) * self.target.encode(records)[:, None]

A program is data: it travels in a recording as JSON,
and reading it runs nothing but the family's own checks.

Its releases are exactly linear in "which candidate is record i?", so `Program.measure` gives a
decoder all that was observed as one `Measurement`, whose noise is the rounding of the messages.
"""

from __future__ import annotations

import pkgutil
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, ValidationError, model_validator

from overheard.errors import FixConfig, FixData, FixRecording
from overheard.foreign.limits import check
from overheard.foreign.shown import short
from overheard.programs.recipe import Recipe, Target
from overheard.programs.records import Encoding, Records, Spec, alike

if TYPE_CHECKING:  # scipy: whoever only reads a description does without
    from overheard.decoding.measurement import Measurement
    from overheard.decoding.subset_sums import SubsetSums

Array = NDArray[np.float64]
GROUP = "overheard.programs"
ROUNDING = 1e-9
"""Relative to an array's largest number: float64 sums in another order differ by less."""
Message = Mapping[str, NDArray[Any]]
"""Named arrays of any shape; bytes are an array of uint8."""
Terms: TypeAlias = "Recipe | Program"
"""Of any training or release: how records become inputs, and what the label is."""


@dataclass(frozen=True)
class Exchange:
    """A round with one client: what it was sent and what it returned."""

    number: int
    sent: Message
    returned: Message


@dataclass(frozen=True)
class Candidates:
    """What each record may be: ``known`` columns, the same under every candidate, and the K
    ``settings`` of the others (of each column one value, or one a record). None in place of a
    setting: the record is not among the client's. ``members``: how many are. ``spread``: of a
    number in bins, the standard deviation within each."""

    known: Records
    settings: tuple[Mapping[str, Any] | None, ...]
    members: int
    spread: tuple[float, ...] = ()

    @property
    def records(self) -> int:
        return len(self.known)

    @property
    def present(self) -> NDArray[np.bool_]:
        """Under which candidates (K,) a record is the client's."""
        return np.array([setting is not None for setting in self.settings])

    @property
    def unknowns(self) -> int:
        return self.records * (len(self.settings) - 1)

    @cached_property
    def tables(self) -> tuple[Records | None, ...]:
        """Every record under each candidate, with all columns and the label."""
        return tuple(None if setting is None else self._with(setting) for setting in self.settings)

    def _with(self, setting: Mapping[str, Any]) -> Records:
        set_to = {c: np.array(np.broadcast_to(v, self.records)) for c, v in setting.items()}
        return Records({**self.known.columns, **set_to})

    @property
    def first(self) -> Records:
        """The records under the first candidate that is present."""
        return next(table for table in self.tables if table is not None)

    @property
    def filled(self) -> list[Records]:
        """`tables`, with the first one that is present in place of those that are absent."""
        return [self.first if table is None else table for table in self.tables]


class Settings(Spec):
    """A config's ``[model]`` of a family; ``name`` is the family's."""

    name: str
    sent_names: dict[str, str] = {}
    """Of recorded messages: our names of the arrays to theirs. Example: `sent_names = {
    "gradient" = "grad" }`"""

    labels_as_they_are: ClassVar[bool] = False
    """Whether labels that are numbers are neither shifted nor scaled, unless somebody says so."""

    def code(self) -> tuple[str, ...]:
        """The code that it names, which must be trusted."""
        return ()

    def learned(self, records: Records) -> dict[str, Any]:
        """Further fields of the program of a federation of these records, everybody's together;
        refuses settings that do not fit them."""
        return {}


class SummedSettings(Settings):
    """Of programs that release plain sums over records."""

    clip: float | None = Field(default=None, gt=0, le=1e100)
    """The norm to which what each record adds to the numbers of a release, all of them together,
    is scaled down. Example: `clip = 1.0`"""
    noise: float = Field(default=0.0, ge=0, le=1e100)
    """Every number carries Gaussian noise of so many times ``clip``."""
    rounded_to: float = Field(default=0.0, ge=0, le=1e100)
    """Numbers leave as multiples of it; 0: as they are."""

    @model_validator(mode="after")
    def _both(self) -> Self:
        if bool(self.noise) != (self.clip is not None):
            raise ValueError("noise is in units of clip, what a record adds at most: give both")
        return self

    @property
    def noise_sd(self) -> float:
        return self.noise * (self.clip or 0.0)

    @property
    def blur(self) -> float:
        """Standard deviation of noise and rounding, as who listens has to reckon with it."""
        return float(np.hypot(self.noise_sd, self.rounded_to / 12**0.5))

    def share(self, norm: Array) -> Array:
        """What is left of each record that adds so much."""
        return np.asarray(np.minimum(1.0, (self.clip or np.inf) / np.maximum(norm, 1e-300)))

    def of_sum(self, clients: int) -> Self:
        """Of the sum of so many clients' releases: their noise adds up."""
        more = {name: getattr(self, name) * clients**0.5 for name in ("noise", "rounded_to")}
        return self.model_copy(update=more)


class Program(Spec):
    """What every participant knows: the settings, how records become inputs, and the label."""

    settings: Settings
    encoding: Encoding
    target: Target

    random: ClassVar[bool] = False
    """Whether a client draws at random, so that its answer cannot be repeated to rounding."""
    trains: ClassVar[bool] = False
    """Whether it trains a network all the same, so that its messages are models."""
    rounding: ClassVar[float] = ROUNDING
    """Of an answer, relative to an array's largest number."""

    @classmethod
    def planned(
        cls, settings: Settings, encoding: Encoding, target: Target, records: Records
    ) -> Self:
        """The program of a federation of these records, everybody's together; what is wrong with
        its parts is the config's."""
        content = {"settings": settings, "encoding": encoding, "target": target}
        try:
            return cls.model_validate({**content, **settings.learned(records)})
        except ValidationError as error:
            raise FixConfig(f"model {settings.name!r}: {_first(error)}") from error

    def of(self, client: str) -> Self:
        """What one client does: the same as every other."""
        return self

    def columns(self) -> tuple[str, ...]:
        """The columns that the program looks at."""
        return (*self.encoding.columns(), self.target.column)

    def profile(self, records: Records) -> list[NDArray[Any]]:
        """What the program makes of each record: nobody tells those apart that agree in it."""
        return [records[c] for c in self.columns() if c in records.columns]

    def alike(self, records: Records) -> NDArray[np.intp]:
        """A number per record, equal where the whole profile is."""
        profile = self.profile(records)
        return alike(profile) if profile else np.zeros(len(records), dtype=np.intp)

    @abstractmethod
    def first(self) -> Message:
        """What the server sends in the first round."""

    @abstractmethod
    def respond(self, received: Message, records: Records, rng: np.random.Generator) -> Message:
        """What a client with these records answers; not NaN nor infinity."""

    @abstractmethod
    def following(self, sent: Message, returned: Mapping[str, Message]) -> Message:
        """What the server sends next, given every client's answer to what it sent."""

    def predict(self, sent: Message, records: Records) -> Array | None:
        """What the model that the server sends says of records (n, outputs): a number, a margin
        above 0 for the second of two classes, or one score a class; None where there is no model.
        """
        return None

    @property
    def makes_model(self) -> bool:
        return type(self).predict is not Program.predict

    def own(self, observed: Sequence[Exchange]) -> Message:
        """The model that a client's answers make without the others'."""
        return self.following(observed[-1].sent, {"": observed[-1].returned})

    def alone(self, records: Records, rounds: int, rng: np.random.Generator) -> Message:
        """The model that a client with these records would make by itself."""
        sent = self.first()
        for _ in range(rounds):
            sent = self.following(sent, {"": self.respond(sent, records, rng)})
        return sent

    def measure(self, observed: Sequence[Exchange], candidates: Candidates) -> Measurement:
        """What the exchanges with one client say about which candidate each record is.

        The messages may come from anybody: what does not fit the program is a `FixRecording`. A
        program has this or `equations`.
        """
        equations = self.equations(observed, candidates)
        assert equations is not None
        return equations.measurement()

    def equations(self, observed: Sequence[Exchange], candidates: Candidates) -> SubsetSums | None:
        """The same as equations that few records enter each, where they are such."""
        return None

    def assembled(self, observed: Sequence[Exchange]) -> tuple[Exchange, ...]:
        """Recorded exchanges as the program has them, by our names of the arrays."""
        ours = {theirs: name for name, theirs in self.settings.sent_names.items()}
        return tuple(
            replace(
                one,
                sent={ours.get(n, n): a for n, a in one.sent.items()},
                returned={ours.get(n, n): a for n, a in one.returned.items()},
            )
            for one in observed
        )

    def summed(self, clients: int) -> Program:
        """The program whose release is the sum of those of so many clients; refuses where messages
        cannot be added."""
        raise FixConfig(
            f"model {self.settings.name!r}: its messages cannot be added up; secure aggregation "
            "does not fit it"
        )

    def distance(self, returned: Message, repeated: Message) -> float:
        """How far an answer is from another to the same question, in parts of its size; 0 where
        they differ by no more than rounding."""
        return distance(returned, repeated, self.rounding)


def distance(one: Message, other: Message, rounding: float = ROUNDING) -> float:
    """The largest difference of two messages beyond rounding, by array, in parts of the array's
    largest number; infinity where names or shapes differ."""
    if {n: a.shape for n, a in one.items()} != {n: a.shape for n, a in other.items()}:
        return float("inf")
    result = 0.0
    for name, array in one.items():
        a, b = (np.asarray(x, dtype=np.float64) for x in (array, other[name]))
        size = float(np.abs(b).max(initial=0.0))
        apart = float(np.abs(a - b).max(initial=0.0))
        if apart > rounding * size:
            result = max(result, apart / max(size, np.finfo(np.float64).tiny))
    return result


def expected(message: Message, name: str, shape: tuple[int, ...], number: int) -> Array:
    """An array of a message as float64; a `FixRecording` says what is wrong with it."""
    array = message.get(name)
    if array is None or array.shape != shape or array.dtype.kind not in "biuf":
        have = {n: (str(a.dtype), a.shape) for n, a in message.items()}
        raise FixRecording(
            f"round {number}: the program's message has {short(have)} where {name!r} of shape "
            f"{shape} is expected; it comes from another program, or the description is wrong"
        )
    wide = np.asarray(array, dtype=np.float64)
    if not np.isfinite(wide).all():
        raise FixRecording(f"round {number}: {name!r} holds NaN or infinity; audit fewer rounds")
    return wide


def measured(features: Array, total: Array, noise: Any) -> Measurement:
    """A measurement from features (K, m, R) under each candidate, a total (R,) and its noise."""
    from overheard.decoding.measurement import from_rows

    return from_rows(np.moveaxis(features, 0, 1), total, noise)


@cache
def families() -> tuple[str, ...]:
    """The names of the families that there are: ours, and those that packages declare."""
    package = import_module("overheard.programs.families")
    installed = (point.name for point in entry_points(group=GROUP))
    return tuple(sorted({*(m.name for m in pkgutil.iter_modules(package.__path__)), *installed}))


def family_named(name: str) -> type[Program]:
    """The program of a family."""
    if name not in families():
        raise FixConfig(f"unknown family of programs {short(name)}; known: {', '.join(families())}")
    for point in entry_points(group=GROUP, name=name):
        return cast(type[Program], point.load())
    made: type[Program] = import_module(f"overheard.programs.families.{name}").PROGRAM
    return made


def settings_of(name: str) -> type[Settings]:
    """What a config's ``[model]`` may say of a family."""
    made: Any = family_named(name).model_fields["settings"].annotation
    return cast(type[Settings], made)


def program_of(content: Any, where: object) -> Program:
    """The program that a recording describes; anybody may have written it, so everything is
    checked."""
    settings = content.get("settings") if isinstance(content, dict) else None
    name = settings.get("name") if isinstance(settings, dict) else None
    if not isinstance(name, str) or name not in families():
        raise FixRecording(
            f"{where}: describes a program of the family {short(name)}; known: "
            f"{', '.join(families())}"
        )
    try:
        return family_named(name).model_validate(content)
    except (ValidationError, FixData, FixConfig) as error:
        words = _first(error) if isinstance(error, ValidationError) else str(error)
        raise FixRecording(f"{where}: program {name!r}: {words}") from error


def _first(error: ValidationError) -> str:
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))[:200] or 'it'}: {first['msg']}"


def room(features: int, records: int, candidates: int) -> None:
    """Refuse features that would not fit in memory."""
    check("candidate_bytes", features * records * candidates * 8, "the program's features", FixData)
