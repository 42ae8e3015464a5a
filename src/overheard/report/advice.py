"""What would help? What a sweep measured or, without one, what to try first and how.

The order of what to try (``words.toml``) follows from who listens: first what takes the messages
from this adversary, then what makes them say less. None of it is measured by the audit, and the
page says so.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from overheard.evaluation.record import Audit
from overheard.foreign.shown import visible
from overheard.questions.question import grouped
from overheard.report import svg, words


@dataclass(frozen=True)
class Measured:
    """One setting of a sweep: its worst leakage (lift, a share) and the model's utility."""

    name: str
    attribute: str
    attack: str
    leakage: float
    leakage_spread: float
    utility: float
    utility_spread: float
    utility_is: str
    seeds: int
    best: bool


@dataclass(frozen=True)
class Frontier:
    """The settings of a sweep for one secret, with their chart."""

    secret: str
    utility_is: str
    points: tuple[Measured, ...]
    figure: Markup


@dataclass(frozen=True)
class Advice:
    """Something to try: what, why, and the command that measures it."""

    name: str
    why: str
    command: str


def frontiers(points: Sequence[Measured]) -> list[Frontier]:
    """A chart per secret; the settings that leak least come first."""
    found = []
    for secret, of in grouped(points, lambda p: p.attribute).items():
        of.sort(key=lambda p: p.leakage)
        name = of[0].utility_is
        marks = [
            svg.Mark(
                x=p.leakage,
                y=p.utility,
                low=p.utility - p.utility_spread,
                high=p.utility + p.utility_spread,
                text=f"{p.name}: leaks {words.points(p.leakage)} points, "
                f"{p.utility_is} {words.scientific(p.utility)}",
                look=0 if p.best else 7,
            )
            for p in of
        ]
        found.append(Frontier(secret, name, tuple(of), svg.scatter(marks, name)))
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
