"""What is a kind of knowledge? One class, which says everything about it.

A kind is a frozen dataclass below `Knowledge`, registered once by `@kind`: its name for
``--grant``, how a federation discloses it, how it is written to ``side/``, read back and checked.
Threat models list kinds; whoever else asks about knowledge goes through `kinds`. A kind in a
package of its own is announced by an entry point of the group ``overheard.knowledge``, and from
then on every simulation and description writes it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.metadata import entry_points
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from overheard.errors import FixConfig, FixData, FixRecording, ListenLonger
from overheard.foreign.shown import first_error
from overheard.programs.program import Exchange, Message, Program, Terms, program_of
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records
from overheard.transcript.store import Recording, SideWriter
from overheard.transcript.target import Target

GROUP = "overheard.knowledge"
"""The group of entry points under which other packages announce kinds of knowledge."""
LABEL_COLUMN = "__label__"
EVERYBODY = ""  # the client of a view of the whole federation


@dataclass(frozen=True)
class Held:
    """Where a piece of knowledge is read from: a recording, what is asked, of which client."""

    recording: Recording
    target: Target
    client: str

    def public(self, records: Records) -> Records:
        """The records, read-only, after a check that what is asked for is not among them."""
        hidden = self.target.asked.hidden(self.target, program_in(self.recording))
        if shown := [column for column in hidden if column in records.columns]:
            raise FixRecording(
                f"{self.recording.side_folder}: the public records for {self.target.key!r} contain "
                f"the sensitive column {shown[0]!r}; no attack may see it, so record again without "
                "it"
            )
        return Records({name: sealed(values) for name, values in records.columns.items()})

    def finite(self, number: int, message: Message, way: str) -> None:
        """Refuse a message whose numbers are none; from here on it is read-only."""
        for name, array in message.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise FixRecording(
                    f"{self.recording.path}: round {number}: {name!r} {way} holds NaN or infinity "
                    "(a diverged federation?); lower the learning rate or audit fewer rounds"
                )
            sealed(array)

    def flat(self, message: Message) -> NDArray[Any]:
        """The arrays of a message as one row (P,), in the order of the model that is described."""
        recipe = recipe_of(self.recording)
        idle = recipe.model.idle if recipe else ()
        arrays = {name: array for name, array in message.items() if name not in idle}
        observed = {name: array.shape for name, array in arrays.items()}
        declared = dict(recipe.model.layout() if recipe else observed.items())
        if declared != observed:
            raise FixRecording(
                f"{self.recording.path}: the messages carry {observed} but the declared model has "
                f"{declared}; they come from a different model, or the recipe's sent_names are "
                "wrong"
            )
        return np.concatenate([arrays[name].reshape(-1) for name in declared])

    def rows(self, observed: Sequence[Exchange]) -> tuple[NDArray[Any], ...]:
        """Numbers, messages sent and messages returned (T, ...), as the clients' program has them:
        of a network rows of numbers, else messages."""
        program = program_in(self.recording)
        if isinstance(program, Program):
            observed = program.assembled(observed)
        ways: list[list[Any]] = [[one.sent for one in observed], [one.returned for one in observed]]
        if not isinstance(program, Program):
            ways = [[self.flat(message) for message in way] for way in ways]
        return tuple(column(each) for each in ([one.number for one in observed], *ways))

    def sums(self) -> Iterator[RoundSum]:
        """The sums of a recording, round by round."""
        program = program_in(self.recording)
        place = {name: position for position, name in enumerate(self.recording.clients)}
        for entry, sent, total in self.recording.aggregates():
            for message in (sent, total):
                self.finite(entry.number, message, "to or from all clients")
            who = np.array(sorted(place[c] for c in entry.participants), dtype=np.int64)
            if not isinstance(program, Program):
                yield RoundSum(entry.number, self.flat(sent), self.flat(total), who)
            elif len(who) == len(place):
                yield RoundSum(entry.number, sent, total, who)
            else:
                raise ListenLonger(
                    f"{self.recording.path}: not everybody took part in round {entry.number}; sums "
                    "of releases are read where all clients are in each"
                )


def column(values: Sequence[Any]) -> NDArray[Any]:
    """One a round: of messages by name an array of them."""
    mixed = any(isinstance(value, Mapping) for value in values)
    return sealed(np.array(values, dtype=object if mixed else None))


@dataclass(frozen=True)
class RoundSum:
    """A round under secure aggregation: the model ``sent`` (P,), in the messages' precision, and
    ``total`` (P,), the sum over ``participants`` (positions in the clients' names) of sent minus
    returned, or of the gradients where gradients are sent. Of a program that trains no network both
    are arrays by name, and the sum is of what was returned."""

    number: int
    sent: Any
    total: Any
    participants: NDArray[np.int64]


@dataclass(frozen=True)
class Disclosure:
    """What whoever holds the clients' records can disclose to an adversary who asks ``target``.

    ``clients``: each client's records; ``known``: those of them that the adversary may know, empty
    where none are; ``hidden``: columns that it must not know. ``population``: everybody's records
    together. ``given``: pieces that are settled already.
    """

    target: Target
    recipe: Terms
    clients: Mapping[str, Records]
    population: Records
    known: Mapping[str, Records] = field(default_factory=dict)
    hidden: frozenset[str] = frozenset()
    given: tuple[Piece, ...] = ()

    def settled(self, wanted: type[Knowledge]) -> Piece | None:
        """The given piece of a kind, if there is one."""
        return next((piece for piece in self.given if kind_of(piece) is wanted), None)


class Knowledge:
    """A kind of knowledge; each is a frozen dataclass, and final.

    As it stands here a piece is JSON in ``side/``, an object of its fields, whose types (with
    pydantic's constraints, where they are annotated with some) are checked when it is read. A kind
    that holds tables or arrays says otherwise in `content` and `of`.
    """

    name: ClassVar[str]
    """What ``--grant`` and errors call it."""
    per_client: ClassVar[bool] = False
    """Whether there is a piece for each client, of which an adversary gets its client's."""
    of_outsiders: ClassVar[bool] = False
    """Whether it is about people whom no target asks about, so that nothing in it is a secret."""
    by_place: ClassVar[bool] = False
    """Whether it speaks of a client's records by their place in its table."""

    @classmethod
    def disclosed(cls, world: Disclosure) -> Piece | None:
        """The piece to write down; None: there is none."""
        return world.settled(cls)

    def content(self) -> Any:
        """The piece as it is written to ``side/``: what JSON holds, or `Records`."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    @classmethod
    def of(cls, content: Any, held: Held) -> Self:
        """The inverse: somebody else wrote ``content``, so everything is checked."""
        hashable: Any = cls
        try:
            made: Self = _checks(hashable).validate_python(content)
        except ValidationError as error:
            raise ValueError(first_error(error)) from error
        return made

    @classmethod
    def read(cls, held: Held) -> Self | None:
        """The piece that an adversary is given; None if the recording has none."""
        content = held.recording.side(cls.__name__, held.target.key)
        if content is None:
            return None
        if cls.per_client:
            return cls.of(content[held.client], held) if held.client in content else None
        return cls.of(content, held)


class Rounds(Knowledge):
    """What was observed, round by round; ``rounds`` (T,) are their numbers."""

    rounds: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.rounds)

    def require(self, least: int, purpose: str) -> None:
        """Fail clearly when fewer rounds were observed than an attack can work with."""
        if len(self) < least:
            raise ListenLonger(
                f"{len(self)} round(s) were observed but {purpose} needs at least {least}; record "
                "more rounds"
            )


@dataclass(frozen=True)
class LabelledRecords(Knowledge):
    """Records and their labels, in one table: of each client, or one for all.

    ``derived``: what attacks on the same view learned from them, so that each learns it once.
    """

    records: Records
    labels: NDArray[Any]
    derived: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not len(self.labels) or len(self.records) not in (0, len(self.labels)):
            raise FixData(
                f"{self.name}: {len(self.records)} records and {len(self.labels)} labels; give "
                "each record one label"
            )

    @classmethod
    def split(cls, table: Records, label: str) -> Self:
        """The records of a table, of which one column is the label."""
        return cls(table.without(label), table[label])

    def content(self) -> Any:
        table = Records({**self.records.columns, LABEL_COLUMN: self.labels})
        return table if self.per_client else {type(self).__name__: table}

    @classmethod
    def of(cls, content: Any, held: Held) -> Self:
        if cls.per_client:
            return cls.split(held.public(content), LABEL_COLUMN)
        (table,) = content.values()
        return cls.split(Records({n: sealed(v) for n, v in table.columns.items()}), LABEL_COLUMN)


@cache
def _checks(made: Any) -> TypeAdapter[Any]:
    """What checks the fields of a dataclass; making it takes far longer than checking."""
    return TypeAdapter(made)


Piece = Knowledge | Mapping[str, Knowledge]
"""A piece of knowledge, or one a client."""
K = TypeVar("K", bound=type[Knowledge])
_REGISTRY: dict[str, type[Knowledge]] = {}


def kind(made: K) -> K:
    """Register a kind; no two may have one name, neither on disk nor for ``--grant``."""
    for other in _REGISTRY.values():
        again = other.__module__ == made.__module__ and other.__qualname__ == made.__qualname__
        if not again and (other.name == made.name or other.__name__ == made.__name__):
            raise FixConfig(
                f"two kinds of knowledge are called {made.name!r} ({made.__name__}), in "
                f"{other.__module__} and {made.__module__}; rename one"
            )
    _REGISTRY[made.__name__] = made
    return made


def kinds() -> dict[str, type[Knowledge]]:
    """Every kind by the name that it has on disk: ours, and those of other packages."""
    _announced()
    return dict(_REGISTRY)


@cache
def _announced() -> None:
    for point in entry_points(group=GROUP):
        found = point.load()
        if not (isinstance(found, type) and issubclass(found, Knowledge)):
            raise FixConfig(f"{point.value}: is no kind of knowledge: derive it from Knowledge")
        kind(found)


def read(wanted: type[Knowledge], held: Held) -> Any | None:
    """The piece, if the recording has it; a file of another form is an error that names it."""
    try:
        return wanted.read(held)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        about = f" for {held.target.key!r}" if held.target.key else ""
        raise FixRecording(
            f"{held.recording.side_folder}: {wanted.__name__}{about} is not what the format says "
            f"({type(error).__name__}: {error}); record again"
        ) from error


def kind_of(piece: Piece) -> type[Knowledge] | None:
    """Of what kind a piece is; None: it is one a client, of no clients."""
    if isinstance(piece, Knowledge):
        return type(piece)
    return next((type(one) for one in piece.values()), None)


def write(recorder: SideWriter, piece: Piece, target: str = "") -> None:
    """Write a piece to ``side/`` for a target, by its key; for every target if none is named."""
    if found := kind_of(piece):
        content = (
            piece.content()
            if isinstance(piece, Knowledge)
            else {client: one.content() for client, one in piece.items()}
        )
        recorder.side(found.__name__, content, target)


def program_in(recording: Recording) -> Recipe | Program | None:
    """What every participant knows that clients do: a recipe of a network's training, or another
    program. It is validated once."""
    if "program" not in recording.shared:
        content = recording.side("ClientProgram")
        recording.shared["program"] = None if content is None else _program(content, recording)
    found: Recipe | Program | None = recording.shared["program"]
    return found


def _program(content: Any, recording: Recording) -> Recipe | Program:
    if isinstance(content, dict) and "settings" in content:
        return program_of(content, recording.side_folder)
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        words = first_error(error)
        raise FixRecording(f"{recording.path}: training recipe: {words}") from error


def recipe_of(recording: Recording) -> Recipe | None:
    """The same where clients train a network."""
    program = program_in(recording)
    return program if isinstance(program, Recipe) else None


def sealed(array: NDArray[Any]) -> NDArray[Any]:
    """The array, read-only: several attacks share a view, and none may change what others see."""
    array.flags.writeable = False
    return array
