"""What may be asked, and in which units an answer is scored? Two values, and where they are found.

A `Question` says of whom it is asked, what a guess is and how it is scored; its `Metric` says what
kind of number the score is. Attacks, audits and the command line ask these values and compare no
name; how a question is put into words is the report's business (`overheard.report.words`).

A new question is one file with a ``QUESTION``: in this folder, or in a package that announces it by
an entry point of the group ``overheard.questions``. ``examples/new_question.py`` is one.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeVar

from overheard.errors import FixConfig

GROUP = "overheard.questions"
"""The group of entry points under which other packages announce questions."""
SKIPPED = "skipped"
"""Stands for the metric where nothing was measured."""


@dataclass(frozen=True)
class Metric:
    """The units of a score.

    ``kind``: "hits" is a mean of zeros and ones, one a record; "share" another number from 0 to 1;
    of both more is more leakage, and a finding says itself what a guess gets (``majority``,
    ``imputation``). An "error" is a mean that is never below zero; less of it is more leakage, and
    it is compared with the errors of everybody who does not listen. ``limit``: an error of at most
    this counts as the secret itself. ``same``: errors up to this are equally good.
    """

    name: str
    kind: Literal["hits", "share", "error"]
    limit: float | None = None
    same: float = 0.0

    @property
    def share(self) -> bool:
        """Whether it lies in [0, 1] and more of it is more leakage."""
        return self.kind != "error"

    @property
    def hits(self) -> bool:
        return self.kind == "hits"

    @property
    def sign(self) -> int:
        """1 where more of it is more leakage, else -1."""
        return 1 if self.share else -1

    def gain(self, value: float, over: float) -> float:
        """How much more leaks at ``value``."""
        return self.sign * (value - over)

    def best(self, values: Iterable[float]) -> float | None:
        """The one that leaks most; None of none."""
        return (max if self.share else min)(values, default=None)


ACCURACY = Metric("accuracy", "hits")
"""The share of records guessed right: of attributes, and of who is in a pool."""


@dataclass(frozen=True)
class Question:
    """One thing that an adversary may want to know.

    ``answers``: the types of a guess. ``score(case)``: given one client under one target (an
    `evaluation.scoring.Case`), what scores guesses about it; the truth, and what guessing without
    listening gets, are read there, and what nobody could answer is refused. ``together``: it is
    asked of all clients at once. ``truth``: what ``truth/`` must hold for it beside the clients'
    records.

    ``column``: a regular expression for the column that a target names; the empty one: it names
    none. ``side``: the question whose side knowledge it is asked with, by default its own, and None
    if it needs none and can be asked of every recording. ``hidden(target, recipe)``: columns of the
    data that no attack may see. ``sums``: sums of updates may answer it.
    """

    name: str
    asks: str
    metric: Metric
    answers: tuple[type[Any], ...]
    score: Callable[[Any], Any]
    together: bool = False
    truth: str = ""
    column: str = ""
    side: str | None = ""
    hidden: Callable[[Any, Any], tuple[str, ...]] = lambda target, recipe: target.columns
    sums: bool = False

    def takes(self, column: str) -> bool:
        """Whether a target of it may name this column, or none."""
        return re.fullmatch(self.column, column, re.DOTALL) is not None

    @property
    def removable(self) -> bool:
        """Whether the secret is a column, and gone once that is not in the model."""
        return not self.together and not self.takes("")

    def keys(self, written: Sequence[str]) -> list[str]:
        """Its targets in a recording, by their keys; ``written``: for which side knowledge is."""
        if self.side is None:
            return [self.name]
        source = self.side or self.name
        there = [key for key in written if key.partition(".")[0].rstrip("+") == source]
        return [self.name + key.removeprefix(source) for key in there]

    def source(self, key: str) -> str:
        """The target whose side knowledge one of its targets is asked with."""
        return self.side + key.removeprefix(self.name) if self.side else key


@cache
def all_questions() -> dict[str, Question]:
    """Every question by its name, in the order of their names."""
    package = import_module(__name__.rpartition(".")[0])
    there = [m.name for m in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    result = [(m, getattr(import_module(m), "QUESTION", None)) for m in there]
    result += [(point.value, point.load()) for point in entry_points(group=GROUP)]
    known: dict[str, Question] = {}
    for where, question in result:
        if question is None:
            continue
        if not isinstance(question, Question):
            raise FixConfig(f"{where}: is no question but a {type(question).__name__}")
        if question.name in known:
            raise FixConfig(f"{where}: there is a question {question.name!r} already; rename one")
        metric = {q.metric.name: q.metric for q in known.values()}.get(question.metric.name)
        if metric is not None and metric != question.metric:
            raise FixConfig(f"{where}: there is another metric {metric.name!r}; rename one")
        known[question.name] = question
    return dict(sorted(known.items()))


Known = TypeVar("Known")


def _named(name: str, known: dict[str, Known], what: str) -> Known:
    if name not in known:
        raise FixConfig(
            f"unknown {what} {name!r}; known: {', '.join(known)}; is the package installed that "
            "brings it?"
        )
    return known[name]


def question_named(name: str) -> Question:
    return _named(name, all_questions(), "question")


def all_metrics() -> dict[str, Metric]:
    return {q.metric.name: q.metric for q in all_questions().values()}


def metric_named(name: str) -> Metric:
    return _named(name, all_metrics(), "metric")


class Topic(NamedTuple):
    """One thing that was asked about every client."""

    question: str
    attribute: str | None
    metric: str

    @property
    def asked(self) -> Question | None:
        """The question; None of an attack that nobody knows any more."""
        return all_questions().get(self.question)

    @property
    def together(self) -> bool:
        return self.asked is not None and self.asked.together

    @property
    def measure(self) -> Metric:
        return metric_named(self.metric)

    @property
    def skipped(self) -> bool:
        return self.metric == SKIPPED


T = TypeVar("T")
Key = TypeVar("Key")


def grouped(things: Iterable[T], key: Callable[[T], Key]) -> dict[Key, list[T]]:
    """Things by a key, in the order in which both come."""
    result: dict[Key, list[T]] = {}
    for thing in things:
        result.setdefault(key(thing), []).append(thing)
    return result


def by_question(things: Iterable[T]) -> dict[str, list[T]]:
    """Attacks, targets or findings by the question that they are about."""
    return grouped(things, attrgetter("question"))
