"""The one secret that an audit asks about.

For each target the side knowledge is written out before any attack runs, so the same
recording serves every target and nothing secret is within an attack's reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from overheard.errors import FixConfig
from overheard.programs.records import Records
from overheard.questions.question import Question, all_questions, question_named

JOINT = "+"
"""Between the columns of a secret that is several of them at once."""


@dataclass(frozen=True)
class Target:
    """A question, and the sensitive column where it is about one.

    For ``membership`` the column is the attribute that is unknown as well, if there is one. For
    ``property``, which is asked of all clients at once, it is what a client may have or do: hold
    the target record (``membership``; ``membership-2`` and so on for further records),
    ``poisoning`` or being a ``free-rider``. ``joint``: the secret is several columns at once, whose
    names are joined by a plus.
    """

    question: str
    column: str = ""
    joint: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are the secret; none where the question names none."""
        if self.joint:
            return tuple(self.column.split(JOINT))
        return (self.column,) if self.column else ()

    @property
    def key(self) -> str:
        """How the target is named on disk and on the command line."""
        question = self.question + JOINT * self.joint
        return f"{question}.{self.column}" if self.column else question

    @property
    def asked(self) -> Question:
        """The question as a value."""
        return question_named(self.question)

    def checked(self) -> Target:
        """The target, if its question is known and names such a column."""
        if not self.asked.takes(self.column):
            takes = f"takes {self.asked.column}" if self.asked.column else "takes none"
            raise FixConfig(
                f"a target names a sensitive column if its question is about one; "
                f"{self.question!r} {takes}, and {self.column or 'none'!r} is given"
            )
        if self.joint and (len(self.columns) < 2 or not all(self.columns)):
            raise FixConfig(f"{self.key!r}: a joint target names two columns or more, as 'a+b'")
        return self

    @staticmethod
    def parse(key: str) -> Target:
        """The target of a key such as ``attribute.black`` or ``attribute+.female+black``."""
        question, _, column = key.partition(".")
        return Target(question.removesuffix(JOINT), column, question.endswith(JOINT)).checked()


def joined(records: Records, target: Target) -> Records:
    """The records and, of a joint target, its columns as one: their values joined by a plus."""
    if not target.joint:
        return records
    rows = zip(*(records[column].tolist() for column in target.columns), strict=True)
    values = np.array([JOINT.join(map(str, row)) for row in rows])
    return Records({**records.columns, target.column: values})


LOCAL_MODEL = Target("local_model")
LABEL = Target("label")


def attribute(*columns: str) -> Target:
    """The question "which value does this column have, for every record?", or these columns."""
    return Target("attribute", JOINT.join(columns), len(columns) > 1).checked()


def membership(column: str = "") -> Target:
    """The question "which records of a pool are the client's?", a column being unknown too."""
    return Target("membership", column).checked()


def client_property(column: str) -> Target:
    """The question "which clients have this property?", asked of the whole federation."""
    return Target("property", column).checked()


def targets_in(written: Sequence[str]) -> list[Target]:
    """What a recording can be asked, given the targets for which side knowledge was written."""
    for key in written:
        Target.parse(key)  # a question that nobody knows is an error, not nothing to ask
    keys = {key: None for asked in all_questions().values() for key in asked.keys(written)}
    order = {key: place for place, key in enumerate(written)}
    return [Target.parse(key) for key in sorted(keys, key=lambda key: order.get(key, len(order)))]


def chosen_targets(there: Sequence[Target], keys: Iterable[str], what: str) -> list[Target]:
    """Those of the targets that are named, by their keys or, where that is enough, columns."""
    known = {t.column: t for t in reversed(there) if t.column} | {t.key: t for t in there}
    for key in keys:
        if key not in known:
            have = ", ".join(t.key for t in there)
            raise FixConfig(f"{what} has no target {key!r}; it has {have}")
    return [known[key] for key in keys]
