"""What would help? What a sweep measured or, without one, what to try first and how.

The order of what to try follows from who listens: first what takes the messages from this
adversary, then what makes them say less. None of it is measured by the audit, and the page says so.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from overheard.evaluation.record import Audit
from overheard.foreign.shown import visible
from overheard.report import sections, words


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
    for secret in dict.fromkeys(p.attribute for p in points):
        of = sorted((p for p in points if p.attribute == secret), key=lambda p: p.leakage)
        marks = [
            sections.Mark(
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
        name = of[0].utility_is
        found.append(Frontier(secret, name, tuple(of), sections.scatter(marks, name)))
    return found


def ranked(audit: Audit) -> list[Advice]:
    """What to try, most promising first, for this adversary and this federation."""
    run = shlex.quote(visible(audit.run.recording))
    model = audit.run.recipe.get("model", {})
    sums, hidden = "secure-server", isinstance(model, dict) and bool(model.get("hidden"))
    sweep = "overheard sweep CONFIG.toml --out sweep"
    threat = audit.run.threat
    advice = (
        (
            threat == "eavesdropper",
            "Encrypt the links",
            "Who cannot read the messages learns nothing from them. The server still reads every "
            "client's, and learns all that this eavesdropper does: what stands here is what the "
            "server knows.",
            "",
        ),
        (
            threat != sums,
            "Secure aggregation",
            "The server sees the sum of the updates and no single one. Attacks on one client's "
            "updates no longer apply; those on sums still do.",
            f"overheard audit {run} --threat secure-server --out as-secure-server",
        ),
        (
            True,
            "Clipping and noise (differential privacy)",
            "The only one with a guarantee against every attack, also those not tried here. It "
            "costs utility; how much for how little leakage, a sweep measures.",
            sweep,
        ),
        (
            threat == sums,
            "More clients a round, fewer rounds",
            "A sum over more clients says less about each, and fewer sums leave more unknowns.",
            sweep,
        ),
        (
            hidden,
            "A smaller model",
            "An update has as many equations about the client's records as the model has "
            "parameters; fewer leave more open.",
            sweep,
        ),
        (
            True,
            "More local work between messages",
            "Several epochs of small batches blur what an update measures. They blur, they do not "
            "hide: measure before relying on it.",
            sweep,
        ),
    )
    return [Advice(*told) for applies, *told in advice if applies]
