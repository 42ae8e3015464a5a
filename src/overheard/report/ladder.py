"""How much must one know? For every attribute a row a rung, all clients together.

A client of which an answer must not be relied on is left out (`evaluation.rungs`), and counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from overheard.evaluation.record import Audit, Climbed
from overheard.questions.question import grouped
from overheard.report import charts, words


@dataclass(frozen=True)
class Ladder:
    """One attribute: its rungs from the top, as a chart and for a table; ``single`` are the rungs
    client by client."""

    chart: charts.Chart
    rungs: tuple[Climbed, ...]
    single: tuple[Climbed, ...]


def ladders(audit: Audit) -> list[Ladder]:
    """A ladder an attribute; none where the audit was not asked for them."""
    made = []
    for name, line in grouped(audit.ladder, lambda one: one.attribute).items():
        rungs, single = (tuple(r for r in line if bool(r.client) == of) for of in (False, True))
        rows = [_row(rung, [one for one in single if one.rung == rung.rung]) for rung in rungs]
        made.append(Ladder(charts.shares((name, rows))[0], rungs, single))
    return made


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
