"""The one secret that an audit asks about.

For each target the side knowledge is written out before any attack runs, so the same
recording serves every target and nothing secret is within an attack's reach.
"""

from __future__ import annotations

from dataclasses import dataclass

from overheard.errors import FixConfig

QUESTIONS = ("local_model", "attribute", "label", "membership")
_WITH_COLUMN = {"attribute": True, "membership": None}  # must, may; the others must not


@dataclass(frozen=True)
class Target:
    """A question, and for an attribute the sensitive column.

    For ``membership`` the column is the attribute that is unknown as well, if there is one.
    """

    question: str
    column: str = ""

    def __post_init__(self) -> None:
        if self.question not in QUESTIONS:
            raise FixConfig(f"unknown question {self.question!r}; known: {', '.join(QUESTIONS)}")
        must = _WITH_COLUMN.get(self.question, False)
        if must is not None and must != bool(self.column):
            raise FixConfig(
                "the question 'attribute' names a sensitive column, 'membership' may, others must "
                f"not; given: {self.question!r} with {self.column!r}"
            )

    @property
    def key(self) -> str:
        """How the target is named on disk and on the command line."""
        return f"{self.question}.{self.column}" if self.column else self.question

    @staticmethod
    def parse(key: str) -> Target:
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
