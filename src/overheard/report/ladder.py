"""How much must one know? For every attribute a row a rung, all clients together.

A client of which an answer must not be relied on is left out (`evaluation.rungs`), and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from overheard.evaluation.record import Audit, Climbed
from overheard.report import charts, words


@dataclass(frozen=True)
class Ladder:
    """One attribute: its rungs from the top, as a chart and for a table; ``single`` are the rungs
    client by client."""

    name: str
    rows: tuple[tuple[charts.Row, Markup], ...]
    axis: Markup
    rungs: tuple[Climbed, ...]
    single: tuple[Climbed, ...]


def ladders(audit: Audit) -> list[Ladder]:
    """A ladder an attribute; none where the audit was not asked for them."""
    lines: dict[str, list[Climbed]] = {}
    for one in audit.ladder:
        lines.setdefault(one.attribute, []).append(one)
    return [_ladder(name, line) for name, line in lines.items()]


def _ladder(name: str, line: list[Climbed]) -> Ladder:
    rungs, single = (tuple(r for r in line if bool(r.client) == of) for of in (False, True))
    values = [v for r in rungs for v in (r.low, r.high, r.majority, r.stranger) if v is not None]
    scale = charts.share_scale(values)
    rows = [_row(rung, [one for one in single if one.rung == rung.rung]) for rung in rungs]
    drawn = tuple((row, charts.row_figure(row, scale)) for row in rows)
    return Ladder(name, drawn, charts.axis(scale), rungs, single)


def _row(rung: Climbed, of: Sequence[Climbed]) -> charts.Row:
    text = words.interval(rung.value, rung.low, rung.high, 1)
    flagged = sum(bool(one.flag) for one in of)
    left_out = f"; {words.count(flagged, 'client')} not measured" if flagged else ""
    return charts.Row(
        label=rung.rung,
        note=rung.words + left_out,
        client=None,
        lanes=(charts.Lane(0, 0, rung, "not measured" if rung.flag else text),),
        majority=rung.majority,
        imputation=rung.stranger,
    )
