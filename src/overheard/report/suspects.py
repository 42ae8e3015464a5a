"""Who is suspected, and since when? Each client's probability over the rounds, as a picture."""

from __future__ import annotations

from collections.abc import Iterator

from overheard.evaluation.detection import Detection
from overheard.plot import COLOURS, Axis, Panel, Series, figure

ACCUSED, NOT_ACCUSED = COLOURS[1], "#999999"
MOST_NAMED = 14
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
    accused = [s.client for s in found.suspects if s.accused]
    lines = len(found.curve_rounds) > 1
    panel = Panel(
        list(_lines(found, accused)) if lines else list(_bars(found)),
        Axis("rounds listened to") if lines else Axis(ticks=_names(found)),
        Axis(f"probability that the client {what_of(found.property)}", least=-0.02, most=1.02),
        f"{len(accused)} of {len(found.suspects)} clients accused by {found.attack}",
    )
    return figure([panel], size=(640, 300))


def _lines(found: Detection, accused: list[str]) -> Iterator[Series]:
    rounds = found.curve_rounds
    for suspect in sorted(found.suspects, key=lambda s: s.accused):  # on top of the others
        name, line = suspect.client, found.curves[suspect.client]
        if not suspect.accused:
            yield Series(rounds, line, colour=NOT_ACCUSED, line="solid", width=0.6)
            continue
        place = accused.index(name)
        label = name if place < MOST_NAMED else ""
        yield Series(rounds, line, label, COLOURS[(place + 1) % 7], line="solid", width=1.6)


def _names(found: Detection) -> list[tuple[float, str]]:
    return [(at, s.client) for at, s in enumerate(found.suspects[: 3 * MOST_NAMED])]


def _bars(found: Detection) -> Iterator[Series]:
    shown = found.suspects[: 3 * MOST_NAMED]
    for name, colour in (("accused", ACCUSED), ("not accused", NOT_ACCUSED)):
        these = [at for at, s in enumerate(shown) if s.accused == (name == "accused")]
        if these:
            bars = [(at, 0.0, at, shown[at].probability) for at in these]
            yield Series(name=name, colour=colour, strokes=bars, thick=420 / len(shown))
