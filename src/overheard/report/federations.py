"""Several federations in one chart: the same secrets, what each federation gave away.

For every secret that two or more audits measured, a row per federation with its strongest attack
over all clients together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from overheard.evaluation.record import Audit, Pooled
from overheard.report import charts, verdict, words


@dataclass(frozen=True)
class Compared:
    name: str
    rows: tuple[tuple[charts.Row, Markup], ...]
    axis: Markup


def federation_words(audit: Audit) -> str:
    """The federation's model and length in a few words."""
    model = audit.run.recipe.get("model", {})
    hidden = [str(width) for width in model.get("hidden", [])] if isinstance(model, dict) else []
    squared = audit.run.recipe.get("loss") == "squared_error"
    kind = "linear regression" if squared else "logistic regression"
    if hidden:
        kind = f"network with {' and '.join(hidden)} hidden units"
    return f"{kind}, {words.count(audit.run.rounds, 'round')}"


def compared(audits: Sequence[Audit]) -> list[Compared]:
    """A chart per attribute that all the audits measured; none for a single audit."""
    if len(audits) < 2:
        return []
    best = [_strongest(audit) for audit in audits]
    shared = [name for name in best[0] if all(name in other for other in best[1:])]
    values: list[float] = []
    for found in (b[name] for b in best for name in shared):
        guesses = (found.majority, found.imputation)
        values += [found.low, found.high, *(v for v in guesses if v is not None)]
    if not shared:
        return []
    scale = charts.share_scale(values)
    return [
        Compared(
            name,
            tuple(
                (row, charts.row_figure(row, scale))
                for row in (_row(a, b[name]) for a, b in zip(audits, best, strict=True))
            ),
            charts.axis(scale),
        )
        for name in shared
    ]


def _strongest(audit: Audit) -> dict[str, Pooled]:
    found: dict[str, Pooled] = {}
    for judged in verdict.judge_pooled(audit):
        row = judged.finding
        if not isinstance(row, Pooled) or not row.measure.hits or row.attribute is None:
            continue
        if judged.baseline or row.flag:
            continue
        known = found.get(row.attribute)
        if known is None or row.value > known.value:
            found[row.attribute] = row
    return found


def _row(audit: Audit, found: Pooled) -> charts.Row:
    lane = charts.Lane(0, 0, found, words.interval(found.value, found.low, found.high, 1))
    return charts.Row(
        label=federation_words(audit),
        note=f"by {found.attack}, {words.count(found.n, 'record')}",
        client=None,
        lanes=(lane,),
        majority=found.majority,
        imputation=found.imputation,
    )
