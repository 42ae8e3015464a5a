"""Who is suspected, and since when? Each client's probability over the rounds, as a picture."""

from __future__ import annotations

import io
from typing import Any

from overheard.evaluation.record import Detection

COLOURS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MOST_NAMED = 14
# Names are text: a dollar in one begins no formula, and nothing is handed to TeX.
PEN: Any = {
    "svg.hashsalt": "overheard",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "text.usetex": False,
}
WORDS = {
    "membership": "holds the target record",
    "poisoning": "poisons the model",
    "free-rider": "rides for free",
}


def what_of(property_: str) -> str:
    """The property as the predicate of a sentence: "holds the target record"."""
    kind, _, number = property_.rpartition("-") if property_[-1:].isdigit() else (property_, "", "")
    words = WORDS.get(kind, kind)
    return f"{words} {number}" if number else words


def draw(found: Detection) -> str:
    """An SVG: a line per client, the accused in colour and named; bars where there is no line."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(PEN):
        return _drawn(found, Figure(figsize=(8.0, 4.5), layout="constrained"))


def _drawn(found: Detection, figure: Any) -> str:
    axis = figure.subplots()
    accused = [s.client for s in found.suspects if s.accused]
    if len(found.curve_rounds) > 1:
        for suspect in reversed(found.suspects):
            name, line = suspect.client, found.curves[suspect.client]
            if not suspect.accused:
                axis.plot(found.curve_rounds, line, color="#999999", lw=0.6, alpha=0.7)
                continue
            place = accused.index(name)
            label = name if place < MOST_NAMED else None
            colour = COLOURS[place % len(COLOURS)]
            axis.plot(found.curve_rounds, line, color=colour, lw=1.6, label=label)
        axis.set_xlabel("rounds listened to")
        if accused:
            axis.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    else:
        shown = found.suspects[: 3 * MOST_NAMED]
        colours = ["#D55E00" if s.accused else "#999999" for s in shown]
        axis.bar([s.client for s in shown], [s.probability for s in shown], color=colours)
        axis.tick_params(axis="x", rotation=90, labelsize=7)
    axis.set_ylim(-0.02, 1.02)
    axis.set_ylabel(f"probability that the client {what_of(found.property)}")
    axis.set_title(
        f"{len(accused)} of {len(found.suspects)} clients accused by {found.attack}", fontsize=10
    )
    out = io.StringIO()
    figure.savefig(out, format="svg", metadata={"Date": None, "Creator": "overheard"})
    return out.getvalue()
