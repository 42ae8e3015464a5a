"""What would help? What a sweep measured or, without one, what to try first and how.

The order of what to try (``words.toml``) follows from who listens: first what takes the messages
from this adversary, then what makes them say less. None of it is measured by the audit, and the
page says so.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from overheard.evaluation.record import Audit
from overheard.foreign.shown import visible
from overheard.questions.question import grouped
from overheard.report import svg, words


@dataclass(frozen=True)
class Point:
    """One setting of a sweep: the worst attack's leakage and the model's utility, means over seeds.

    ``leakage`` is the lift over the best guess of somebody who does not listen (never below 0),
    ``bits`` what the adversary learned per record. ``spread`` are standard deviations over seeds.
    """

    defence: str
    strength: float
    varied: tuple[tuple[str, Any], ...]
    attack: str
    attribute: str
    leakage: float
    leakage_spread: float
    bits: float | None
    utility: float
    utility_spread: float
    utility_is: str
    seeds: int
    flagged: int
    best: bool = False

    @property
    def doubtful(self) -> bool:
        """The listener was sure and wrong: its decoder failed, which proves no privacy."""
        return self.bits is not None and self.bits < -0.05

    @property
    def name(self) -> str:
        strength = f" {self.strength:g}" if self.strength else ""
        return ", ".join([f"{self.defence}{strength}", *(f"{k}={v}" for k, v in self.varied)])


@dataclass(frozen=True)
class Frontier:
    """The settings of a sweep for one secret, with their chart."""

    secret: str
    utility_is: str
    points: tuple[Point, ...]
    figure: Markup


@dataclass(frozen=True)
class Advice:
    """Something to try: what, why, and the command that measures it."""

    name: str
    why: str
    command: str


def frontiers(points: Sequence[Point]) -> list[Frontier]:
    """A chart per secret: defences differ by shape and colour, a line joins the best settings.
    Those that leak least come first."""
    found, defences = [], words.unique(p.defence for p in points)
    for secret, of in grouped(points, lambda p: p.attribute).items():
        of.sort(key=lambda p: p.leakage)
        marks, worth = [], of[0].utility_is
        for p in of:
            ends = (p.utility - p.utility_spread, p.utility + p.utility_spread)
            text = f"{p.name}: leaks {words.points(p.leakage)} points, "
            text += f"{worth} {words.scientific(p.utility)}"
            marks.append(svg.Mark(p.leakage, p.utility, *ends, text, defences.index(p.defence)))
        best = [(p.leakage, p.utility) for p in of if p.best]
        found.append(Frontier(secret, worth, tuple(of), svg.scatter(marks, worth, best)))
    return found


def ranked(audit: Audit) -> list[Advice]:
    """What to try, most promising first, for this adversary and this federation."""
    run, recipe = shlex.quote(visible(audit.run.recording)), audit.run.recipe
    model = recipe.get("model", {})
    hidden = isinstance(model, dict) and bool(model.get("hidden"))
    threat, program = audit.run.threat, "settings" in recipe  # in place of a recipe
    return [
        Advice(one["name"], one["why"], one.get("command", "").replace("{run}", run))
        for one in words.WORDS["advice"]
        if one.get("threat", threat) == threat != one.get("unless")
        and one.get("programs", program) == program
        and (hidden or not one.get("hidden"))
    ]


def recommended(points: Sequence[Point]) -> Advice:
    """Of the settings measured, the one that leaks least for what it is worth."""
    chosen = next((p for p in points if p.best), None)
    if chosen is None:
        return Advice("No setting measured is better", "", "")
    return Advice(chosen.name, "", "")
