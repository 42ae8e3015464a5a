"""Several federations in one chart: the same secrets, what each federation gave away.

For every secret that two or more audits measured, a row per federation with its strongest attack
over all clients together.
"""

from __future__ import annotations

from collections.abc import Sequence

from overheard.evaluation.judged import Judged, best_of, judge
from overheard.evaluation.record import Audit, Finding, Pooled
from overheard.questions.question import Topic
from overheard.report import charts, words


def federation_words(audit: Audit) -> str:
    """The federation's model and length in a few words."""
    model = audit.run.recipe.get("model", {})
    hidden = [str(width) for width in model.get("hidden", [])] if isinstance(model, dict) else []
    squared = audit.run.recipe.get("loss") == "squared_error"
    kind = "linear regression" if squared else "logistic regression"
    if hidden:
        kind = f"network with {' and '.join(hidden)} hidden units"
    return f"{kind}, {words.count(audit.run.rounds, 'round')}"


def compared(audits: Sequence[Audit]) -> list[charts.Chart]:
    """A chart per attribute that all the audits measured; none for a single audit."""
    if len(audits) < 2:
        return []
    best = [_strongest(audit) for audit in audits]
    shared = [topic for topic in best[0] if all(topic in other for other in best[1:])]
    both = list(zip(audits, best, strict=True))
    return charts.shares(
        *((t.name, [_row(audit, of[t].finding) for audit, of in both]) for t in shared)
    )


def _strongest(audit: Audit) -> dict[Topic, Judged]:
    """The attributes of which shares were guessed, each with its strongest attack."""
    judged = [j for j in judge(audit).pooled if j.reliable and j.topic.measure.hits]
    return {j.topic: j for j in best_of(judged).values() if j.topic.attribute is not None}


def _row(audit: Audit, found: Finding | Pooled) -> charts.Row:
    lane = charts.Lane(0, 0, found, words.interval(found.value, found.low, found.high, 1))
    return charts.Row(
        label=federation_words(audit),
        note=f"by {found.attack}, {words.count(found.n, 'record')}",
        client=None,
        lanes=(lane,),
        majority=found.majority,
        imputation=found.imputation,
    )
