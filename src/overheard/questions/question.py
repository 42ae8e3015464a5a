"""What may be asked, and in which units an answer is scored? Two values, and where they are found.

A `Question` says of whom it is asked, what a guess is, how it is scored and what it is called; its
`Metric` says how scores are read, pooled, compared and written. Attacks, audits, reports and the
command line ask these values; nobody else compares the name of a question or of a metric.

A new question is one file with a ``QUESTION``: in this folder, or in a package that announces it by
an entry point of the group ``overheard.questions``. ``examples/new_question.py`` is one.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from operator import attrgetter
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from overheard.errors import FixConfig

GROUP = "overheard.questions"
"""The group of entry points under which other packages announce questions."""
SKIPPED = "skipped"
"""Stands for the metric where nothing was measured."""
Array = NDArray[np.float64]
Ends = tuple[float, float]


class Column(NamedTuple):
    """A column of a table of findings: its heading, what stands in it, and whether the table is
    sorted by the number itself in place of the text."""

    head: str
    cell: Callable[[Any], str]
    by_value: bool = False


@dataclass(frozen=True)
class Metric:
    """The units of a score, and how it is read, pooled, compared and written.

    ``larger_leaks``: whether more of it is more leakage. ``share``: it lies in [0, 1], and a
    finding says itself what guessing gets (``majority``, ``imputation``); other scores are compared
    with those of everybody who does not listen. ``hits``: it is a mean of zeros and ones, one a
    record. ``limit``: at most this much counts as the secret itself, called ``reached``. ``same``:
    scores below this are equally good.

    ``interval(units, rng)`` of one client's scores, ``pooled(clients)`` of several clients', both
    at 95%. ``strength(finding, reference)`` orders findings, the most leakage last.

    Of the words, ``axis`` names the score in a chart and ``head`` in a table; ``rule`` says when it
    counts as exposed. ``text(value, low, high, digits)`` is the number with its interval,
    ``number`` a single one (or none), ``brief`` the two texts of a cell: the score, and what it is
    set against; ``prefix`` and ``suffix`` stand around it where no heading does. ``says`` begins
    the verdict of no sign, unclear and exposed; ``tells(judged, about, names)`` ends it, and fills
    in ``names``. ``over_all(finding)`` is the sentence on all clients together,
    ``chart(attribute)`` the one under a heading, ``caption`` that of a client's table ({} is the
    client) with its ``columns`` after that of the secret (``about_head``, empty where there is
    only one secret), ``intro`` what stands above a table of all clients together, ``legend`` the
    lines that stand for guessing: HTML, all of them.
    """

    name: str
    larger_leaks: bool
    axis: str
    head: str
    rule: str
    says: tuple[str, str, str]
    interval: Callable[[Array, np.random.Generator], Ends]
    pooled: Callable[[Sequence[Array]], Ends]
    strength: Callable[[Any, float | None], float]
    text: Callable[[float, float, float, int], str]
    number: Callable[[float | None], str]
    brief: Callable[[Any], tuple[str, str]]
    tells: Callable[[Any, Sequence[Any], dict[str, str]], str]
    over_all: Callable[[Any], str]
    chart: Callable[[str | None], str]
    caption: str
    columns: tuple[Column, ...]
    share: bool = False
    hits: bool = False
    limit: float | None = None
    reached: str = ""
    same: float = -np.inf
    prefix: str = ""
    suffix: str = ""
    legend: tuple[tuple[str, str], ...] = ()
    intro: str = ""
    about_head: str = "Secret"

    @property
    def sign(self) -> int:
        """1 where more of it is more leakage, else -1."""
        return 1 if self.larger_leaks else -1

    @property
    def relative(self) -> bool:
        """Whether it is an error, of which a share of a guess's error is left."""
        return not self.share and not self.larger_leaks and self.limit is None

    def mark(self, found: Any) -> str:
        """What stands at a finding's mark in a chart."""
        ends = (found.value, found.low, found.high)
        return self.text(*ends, 0) if self.share else self.number(found.value)

    def gain(self, value: float, over: float) -> float:
        """How much more leaks at ``value``."""
        return value - over if self.larger_leaks else over - value

    def best(self, values: Iterable[float]) -> float | None:
        """The one that leaks most; None of none."""
        return (max if self.larger_leaks else min)(values, default=None)


@dataclass(frozen=True)
class Question:
    """One thing that an adversary may want to know.

    ``answers``: the types of a guess. ``score(case)``: given one client under one target (an
    `evaluation.scoring.Case`), what scores guesses about it; the truth, and what guessing without
    listening gets, are read there. ``together``: it is asked of all clients at once. ``truth``:
    what ``truth/`` must hold for it beside the clients' records. ``check(view)`` refuses what
    nobody could answer from, ``refuses(recipe, records)`` says why no guess could be scored.

    ``column``: whether a target names a column; ``allowed(column)`` what is wrong with one.
    ``targets(keys)``: which of its targets a recording can be asked, given those that side
    knowledge was written for. ``source(key)``: the target whose side knowledge it takes.
    ``hidden(target, recipe)``: columns of the data that no attack may see. ``sums``: sums of
    updates may answer it. ``short``: a target may be named by its column alone. ``removable``: the
    secret is gone once its column is not in the model.

    ``secret(attribute)``: what the secret is called in a heading; ``noun``: in a sentence, empty
    where the column says it all. ``unit``: what is counted. ``people``: it is about people, not
    about the client's model. For a client's own rehearsal: ``alone(recipe, records, attribute)`` is
    the error of who knows no more than the client's own middle, ``chances(finding)`` how common
    each answer is where the column does not say it.
    """

    name: str
    title: str
    asks: str
    metric: Metric
    answers: tuple[type[Any], ...]
    score: Callable[[Any], Any]
    together: bool = False
    truth: str = ""
    check: Callable[[Any], None] = lambda view: None
    refuses: Callable[[Any, Any], str] = lambda recipe, records: ""
    column: Literal["no", "may", "must"] = "no"
    allowed: Callable[[str], str] = lambda column: ""
    targets: Callable[[Sequence[str]], list[str]] | None = None
    source: Callable[[str], str] = lambda key: key
    hidden: Callable[[Any, Any], tuple[str, ...]] = lambda target, recipe: target.columns
    sums: bool = False
    short: bool = False
    removable: bool = False
    noun: str = ""
    secret: Callable[[str | None], str] | None = None
    unit: str = "record"
    people: bool = True
    alone: Callable[[Any, Any, str | None], float | None] = lambda recipe, records, attribute: None
    chances: Callable[[Any], Array | None] = lambda finding: None

    def keys(self, written: Sequence[str]) -> list[str]:
        """Its targets in a recording, by their keys."""
        if self.targets is not None:
            return self.targets(written)
        return [key for key in written if key.partition(".")[0].rstrip("+") == self.name]

    def heading(self, attribute: str | None) -> str:
        """What the secret is called, as short as a column heading."""
        return self.secret(attribute) if self.secret else attribute or self.noun or self.name


@cache
def all_questions() -> dict[str, Question]:
    """Every question by its name, those about people last, each sort by name."""
    package = import_module(__name__.rpartition(".")[0])
    there = [m.name for m in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")]
    found = [(m, getattr(import_module(m), "QUESTION", None)) for m in there]
    found += [(point.value, point.load()) for point in entry_points(group=GROUP)]
    known: dict[str, Question] = {}
    for where, question in found:
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
    return dict(sorted(known.items(), key=lambda item: (item[1].people, item[0])))


def question_named(name: str) -> Question:
    known = all_questions()
    if name not in known:
        raise FixConfig(
            f"unknown question {name!r}; known: {', '.join(known)}; is the package installed that "
            "asks it?"
        )
    return known[name]


def all_metrics() -> dict[str, Metric]:
    return {q.metric.name: q.metric for q in all_questions().values()}


def metric_named(name: str) -> Metric:
    known = all_metrics()
    if name not in known:
        raise FixConfig(
            f"unknown metric {name!r}; known: {', '.join(sorted(known))}; is the package installed "
            "whose question it scores?"
        )
    return known[name]


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
    def unit(self) -> str:
        return self.asked.unit if self.asked else "record"

    @property
    def skipped(self) -> bool:
        return self.metric == SKIPPED

    @property
    def name(self) -> str:
        if self.asked is None:
            return self.attribute or self.question.replace("_", " ")
        return self.asked.heading(self.attribute)


T = TypeVar("T")
Key = TypeVar("Key")


def grouped(things: Iterable[T], key: Callable[[T], Key]) -> dict[Key, list[T]]:
    """Things by a key, in the order in which both come."""
    found: dict[Key, list[T]] = {}
    for thing in things:
        found.setdefault(key(thing), []).append(thing)
    return found


def by_question(things: Iterable[T]) -> dict[str, list[T]]:
    """Attacks, targets or findings by the question that they are about."""
    return grouped(things, attrgetter("question"))
