"""What would help? What a sweep measured or, without one, what to try first and how.

The order of what to try (``words.toml``) follows from who listens: first what takes the messages
from this adversary, then what makes them say less. None of it is measured by the audit, and the
page says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from markupsafe import Markup
from scipy.stats import t as student_t

from overheard.evaluation.policy import USUAL
from overheard.evaluation.record import Audit
from overheard.foreign.shown import command
from overheard.questions.question import grouped
from overheard.report import svg, words
from overheard.report.verdict import sentences


@dataclass(frozen=True)
class Mean:
    """A mean over seeds with its 95% interval (Student's), which one seed has none of."""

    value: float
    low: float | None = None
    high: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        mean = fmean(values)
        if len(values) < 2:
            return cls(mean)
        reach = float(student_t.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5
        return cls(mean, mean - reach, mean + reach)


@dataclass(frozen=True)
class Point:
    """One setting of a sweep: the worst attack's leakage and the model's utility, over seeds.

    ``leakage`` is the lift over the better baseline (never below 0), ``people`` how many are known
    beyond 99% because of the updates, ``bits`` what the adversary learned per record. ``epsilon``
    is promised to a record's values (None: nothing is). ``majority``: the utility of the best
    constant. ``exposed``: by the audit of any seed. ``best``: no other setting leaks less and is
    worth more; ``chosen``: the one that is recommended.
    """

    defence: str
    strength: float
    varied: tuple[tuple[str, Any], ...]
    attack: str
    attribute: str
    leakage: Mean
    people: float | None
    bits: float | None
    utility: Mean
    utility_is: str
    seeds: int
    flagged: int
    epsilon: float | None = None
    majority: float | None = None
    exposed: bool = False
    best: bool = False
    chosen: bool = False

    @property
    def doubtful(self) -> bool:
        """The listener was sure and wrong: its decoder failed, which proves no privacy."""
        return self.bits is not None and self.bits < -0.05

    @property
    def setting(self) -> tuple[Any, ...]:
        """Which setting it is about, whatever the secret."""
        return self.defence, self.strength, self.varied

    @property
    def plain(self) -> bool:
        """Whether it is the federation as it is, undefended."""
        return self.defence == "none" and not self.strength

    @property
    def name(self) -> str:
        strength = f" {self.strength:g}" if self.strength else ""
        return ", ".join([f"{self.defence}{strength}", *(f"{k}={v}" for k, v in self.varied)])

    @property
    def allowed(self) -> bool:
        """Whether the usual policy allows what leaks, of a model that is worth something."""
        worth = self.majority is None or (self.utility.low or self.utility.value) > self.majority
        quiet = self.leakage.value <= USUAL.lift and (self.people or 0) <= USUAL.people_known
        return worth and quiet and not self.exposed and not self.doubtful


@dataclass(frozen=True)
class Advice:
    """Something to try: what, why, and the command that measures it."""

    name: str
    why: str
    command: str


def frontiers(points: Sequence[Point]) -> list[tuple[str, list[Point], Markup]]:
    """By secret, the settings with a chart: defences differ by shape and colour, a line joins the
    best settings. Those that leak least come first."""
    found, defences = [], words.unique(p.defence for p in points)
    for secret, of in grouped(points, lambda p: p.attribute).items():
        of.sort(key=lambda p: p.leakage.value)
        marks, worth = [], of[0].utility_is
        for p in of:
            leaks, own = p.leakage.value, p.utility
            ends = (own.low or own.value, own.high or own.value)
            text = f"{p.name}: leaks {words.points(leaks)} points, "
            text += f"{worth} {words.scientific(own.value)}"
            marks.append(svg.Mark(leaks, own.value, *ends, text, defences.index(p.defence)))
        best = [(p.leakage.value, p.utility.value) for p in of if p.best]
        found.append((secret, of, svg.scatter(marks, worth, best)))
    return found


def ranked(audit: Audit) -> list[Advice]:
    """What to try, most promising first, for this adversary and this federation."""
    run, recipe = audit.run.recording, audit.run.recipe
    model = recipe.get("model", {})
    hidden = isinstance(model, dict) and bool(model.get("hidden"))
    threat, program = audit.run.threat, "settings" in recipe  # in place of a recipe
    return [
        Advice(one["name"], one["why"], _command(one.get("command", ()), run))
        for one in words.WORDS["advice"]
        if one.get("threat", threat) == threat != one.get("unless")
        and one.get("programs", program) == program
        and (hidden or not one.get("hidden"))
    ]


def _command(words: Sequence[str], run: str) -> str:
    return command(*(word.replace("{run}", run) for word in words)) if words else ""


def recommended(points: Sequence[Point]) -> Advice:
    """The setting that a sweep recommends, or that none is better, with the figures."""
    chosen = [p for p in points if p.chosen]
    if not chosen:
        return Advice("No setting measured is better", words.WORDS["none_better"], "")
    plain = next((p for p in points if p.plain), None)
    worst = max(chosen, key=lambda p: p.leakage.value)
    return Advice(worst.name, str(sentences().recommended(worst, plain)), "")
