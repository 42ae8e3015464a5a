"""What is a kind of knowledge? One class, which says everything about it.

A kind is a frozen dataclass below `Knowledge`, registered once by `@kind`: its name for
``--grant``, how a federation discloses it, how it is written to ``side/``, read back and checked.
Threat models list kinds; whoever else asks about knowledge goes through `kinds`. A kind in a
package of its own is announced by an entry point of the group ``overheard.knowledge``, and from
then on every simulation and description writes it out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from importlib.metadata import entry_points
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from overheard.errors import FixConfig, FixRecording, ListenLonger
from overheard.foreign.shown import first_error
from overheard.programs.program import Program, Told, program_of
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


@dataclass(frozen=True)
class Disclosure:
    """What whoever holds the clients' records can disclose to an adversary who asks ``target``.

    ``clients``: each client's records; ``known``: those of them that the adversary may know, empty
    where none are; ``hidden``: columns that it must not know. ``population``: everybody's records
    together. ``given``: pieces that are settled already.
    """

    target: Target
    recipe: Told
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
    of_strangers: ClassVar[bool] = False
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
        """The inverse: a stranger wrote ``content``, so everything is checked."""
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
        """Fail clearly when fewer rounds were heard than an attack can work with."""
        if len(self) < least:
            raise ListenLonger(
                f"{len(self)} round(s) were heard but {purpose} needs at least {least}; record "
                "more rounds"
            )


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
    """What every participant is told that clients do: a recipe of a network's training, or another
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
