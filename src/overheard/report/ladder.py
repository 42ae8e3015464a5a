"""How much must one know? For every attribute a row a rung, all clients together.

A client of which an answer must not be relied on is left out of every row, so that all rows are of
the same people, and counted; where that would leave nobody, of its own row only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from overheard.evaluation.intervals import share_interval
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
    lines: dict[str, dict[str, list[Climbed]]] = {}
    for one in audit.ladder:
        lines.setdefault(one.attribute, {}).setdefault(one.rung, []).append(one)
    return [_ladder(name, line) for name, line in lines.items()]


def _ladder(name: str, line: dict[str, list[Climbed]]) -> Ladder:
    flagged = {one.client for of in line.values() for one in of if one.flag}
    some = {r: [one for one in of if one.client not in flagged] for r, of in line.items()}
    rungs = tuple(_together(some[rung] or of) for rung, of in line.items())
    values = [v for r in rungs for v in (r.low, r.high, r.majority, r.stranger) if v is not None]
    scale = charts.share_scale(values)
    rows = [_row(rung, of) for rung, of in zip(rungs, line.values(), strict=True)]
    drawn = tuple((row, charts.row_figure(row, scale)) for row in rows)
    return Ladder(
        name, drawn, charts.axis(scale), rungs, tuple(r for of in line.values() for r in of)
    )


def _together(of: Sequence[Climbed]) -> Climbed:
    """A rung over all clients whose answers may be relied on; over all, flagged, if none may."""
    reliable = [one for one in of if not one.flag] or list(of)
    n = np.array([one.n for one in reliable])
    right = round(sum(one.value * one.n for one in reliable))
    low, high = share_interval((np.arange(n.sum()) < right).astype(np.float64))

    def mean(name: str) -> float | None:
        known = [getattr(one, name) for one in reliable]
        return None if None in known else float(np.average(known, weights=n))

    return reliable[0].model_copy(
        update={
            "client": "",
            "n": int(n.sum()),
            "value": right / int(n.sum()),
            "low": low,
            "high": high,
            **{name: mean(name) for name in ("majority", "stranger", "confidence")},
            **{k: sum(getattr(r, k) for r in reliable) for k in ("certain", "certain_right")},
            "seconds": sum(one.seconds for one in of),
        }
    )


def _row(rung: Climbed, of: Sequence[Climbed]) -> charts.Row:
    text = words.interval(rung.value, rung.low, rung.high, 1)
    flagged = sum(bool(one.flag) for one in of)
    left_out = f"; {words.count(flagged, 'client')} not measured" if flagged else ""
    return charts.Row(
        label=rung.rung,
        note=rung.words + left_out,
        client=None,
        lanes=(charts.Lane(0, 0, rung, "not measured" if flagged == len(of) else text),),
        majority=rung.majority,
        imputation=rung.stranger,
    )
