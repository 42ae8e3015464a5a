"""The one secret that an audit asks about.

For each target the side knowledge is written out before any attack runs, so the same
recording serves every target and nothing secret is within an attack's reach.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from overheard.errors import FixConfig

QUESTIONS = ("local_model", "attribute", "label", "membership", "property")
_WITH_COLUMN = {"attribute": True, "membership": None, "property": True}  # must, may, must
PROPERTIES = ("membership", "poisoning", "free-rider")
_PROPERTY = re.compile(r"membership(-[1-9][0-9]{0,3})?|poisoning|free-rider")


@dataclass(frozen=True)
class Target:
    """A question, and for an attribute the sensitive column.

    For ``membership`` the column is the attribute that is unknown as well, if there is one. For
    ``property``, which is asked of all clients at once, it is what a client may have or do: hold
    the target record (``membership``; ``membership-2`` and so on for further records),
    ``poisoning`` or being a ``free-rider``.
    """

    question: str
    column: str = ""

    def __post_init__(self) -> None:
        if self.question not in QUESTIONS:
            raise FixConfig(f"unknown question {self.question!r}; known: {', '.join(QUESTIONS)}")
        must = _WITH_COLUMN.get(self.question, False)
        if must is not None and must != bool(self.column):
            raise FixConfig(
                "the question 'attribute' names a sensitive column and 'property' one of "
                f"{', '.join(PROPERTIES)}; 'membership' may name a column, others must not; given: "
                f"{self.question!r} with {self.column!r}"
            )
        if self.question == "property" and not _PROPERTY.fullmatch(self.column):
            raise FixConfig(
                f"unknown property {self.column!r}; known: {', '.join(PROPERTIES)} (and "
                "membership-2, membership-3, ... for further target records)"
            )

    @property
    def key(self) -> str:
        """How the target is named on disk and on the command line."""
        return f"{self.question}.{self.column}" if self.column else self.question

    @staticmethod
    def parse(key: str) -> Target:
        """The target of a key such as ``attribute.black``."""
        question, _, column = key.partition(".")
        return Target(question, column)


LOCAL_MODEL = Target("local_model")
LABEL = Target("label")


def attribute(column: str) -> Target:
    """The question "which value does this column have, for every record?"."""
    return Target("attribute", column)


def membership(column: str = "") -> Target:
    """The question "which records of a pool are the client's?", a column being unknown too."""
    return Target("membership", column)


def client_property(column: str) -> Target:
    """The question "which clients have this property?", asked of the whole federation."""
    return Target("property", column)
