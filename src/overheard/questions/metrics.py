"""How are shares of records, and errors, read and written? The metrics that questions share."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from markupsafe import Markup

from overheard.evaluation.intervals import clustered_interval, mean_interval, share_interval
from overheard.questions.question import Column, Metric
from overheard.report import words

SKEWED = 0.9
"""Share of the commonest value from which the rare ones are counted beside accuracy."""
SMALL = 0.02
"""A gain in accuracy below which a verdict of "exposed" says what else it rests on."""


def _share_tells(worst: Any, about: Sequence[Any], names: dict[str, str]) -> str:
    found = worst.finding
    close = words.percent(found.value) == words.percent(worst.reference or 0.0)
    digits = 1 if close and found.value != worst.reference else 0
    names["share"] = words.interval(found.value, found.low, found.high, digits)
    compared = []
    if found.majority is not None:
        names["majority"] = words.percent(found.majority, digits)
        compared.append("always guessing the commonest value gets {majority}")
    if found.imputation is not None:
        names["imputation"] = words.percent(found.imputation, digits)
        compared.append("a stranger without listening {imputation}")
    told = ["{share} of {client}{s} {n}", ", ".join(compared), _rare(found, names)]
    if worst.exposed and found.evidence and found.value - (worst.reference or 0) < SMALL:
        names["evidence"] = f"{found.evidence:,.1f}"
        told.append("its probabilities beat both guesses by {evidence} bits over all records")
    return "; ".join(filter(None, told))


def _rare(found: Any, names: dict[str, str]) -> str:
    """Where one value is rare, accuracy hardly sees it: how many of the rare ones are found."""
    details = getattr(found, "details", {})
    told = [details.get(k) for k in ("rare_value", "rare_records", "rare_recall")]
    if None in told or (found.majority or 0.0) < SKEWED:
        return ""
    precision = details.get("rare_precision")
    names["rare"], names["there"] = str(told[0]), words.count(int(told[1] or 0), "record")
    names["recall"] = words.percent(float(told[2] or 0.0))
    names["precision"] = "none" if precision is None else words.percent(float(precision))
    return "of the {there} with {rare} it finds {recall}, and of those it names {precision} are"


def _share_over_all(found: Any) -> Markup:
    told = Markup(
        'Over all clients together <code>{}</code> is right for <span class="unbroken">{}</span>'
    )
    said = told.format(found.attack, words.interval(found.value, found.low, found.high, 0))
    if found.majority is not None:
        said += Markup("; the commonest value for {}").format(words.percent(found.majority))
    if found.imputation is not None:
        said += Markup(", a stranger for {}").format(words.percent(found.imputation))
    return said + "."


def _share_brief(found: Any) -> tuple[str, str]:
    return words.percent(found.value), "" if found.lift is None else words.points(found.lift)


def share_strength(found: Any, reference: float | None) -> float:
    """The margin over guessing."""
    return float(found.lift if found.lift is not None else found.value - (reference or 0.0))


ACCURACY = Metric(
    name="accuracy",
    larger_leaks=True,
    share=True,
    hits=True,
    axis="Share guessed right",
    head="Guessed right",
    rule="Attributes and membership: more records right than by the client's commonest value and "
    "by a stranger, or probabilities that beat both (which sees rare values too).",
    says=(
        "Nothing suggests that {actor} learns {secret}: the best attack is right for ",
        "{Actor} may learn {secret}: the best attack is right for ",
        "{Actor} learns {secret} for ",
    ),
    interval=lambda units, rng: share_interval(units),
    pooled=partial(clustered_interval, share=True),
    strength=share_strength,
    text=words.interval,
    number=words.share,
    brief=_share_brief,
    tells=_share_tells,
    over_all=_share_over_all,
    chart=lambda attribute: Markup(
        "Share of records guessed right; <strong>further right leaks more</strong>. Grey is what "
        "takes no listening; an interval that lies wholly to the right of it counts as exposed. "
        "Lines are 95% intervals."
    ),
    caption="What was learned about <bdi>{}</bdi>",
    columns=(
        Column("Guessed right", lambda f: words.interval(f.value, f.low, f.high, 1)),
        Column("Commonest value", lambda f: words.share(f.majority)),
        Column("Stranger", lambda f: words.share(f.imputation)),
        Column("Lift, points", lambda f: words.points(f.lift)),
        Column("Bound", lambda f: words.share(f.bound)),
    ),
    legend=(
        ("majority", "always guessing the commonest value"),
        ("imputation", "a stranger without listening"),
    ),
)
"""The share of records guessed right: of attributes, and of who is in a pool."""


def _error_tells(worst: Any, about: Sequence[Any], names: dict[str, str]) -> str:
    found = worst.finding
    names["value"] = words.loss_interval(found.value, found.low, found.high)
    told = "off by {value} on average for {client}{s} {n}"
    if worst.reference is None:
        return told
    names["stranger"] = words.loss(worst.reference)
    return told + "; the best guess without listening by {stranger}"


def _error_over_all(found: Any) -> Markup:
    told = Markup("Over all clients together <code>{}</code> is off by {}")
    said = told.format(found.attack, words.loss_interval(found.value, found.low, found.high))
    if found.imputation is not None:
        said += Markup("; a stranger by {}").format(words.loss(found.imputation))
    return said + "."


def _error_strength(found: Any, reference: float | None) -> float:
    """The error as a share of a guess's, turned round."""
    return -float(found.value / reference if reference else found.value)


def _error_brief(found: Any) -> tuple[str, str]:
    return words.loss(found.value), "" if found.imputation is None else words.loss(found.imputation)


def _loss(value: float | None) -> str:
    return words.NOTHING if value is None else words.loss(value)


def errors(name: str, axis: str, of: str, rule: str, caption: str, **more: Any) -> Metric:
    """A metric of errors: means over units, of which smaller leaks more, down to zero.

    ``axis``: what it is, ``of``: and of what, for the chart; ``rule``: when it counts as exposed;
    ``caption``: of a client's table, in which {} is the client. Anything else as in `Metric`.
    """
    usual: dict[str, Any] = {
        "larger_leaks": False,
        "least": 0.0,
        "head": "Off by",
        "suffix": " off",
        "says": (
            "Nothing suggests that {actor} learns the {secret}: the best attack is ",
            "{Actor} may learn the {secret}: ",
            "{Actor} learns the {secret}: ",
        ),
        "interval": mean_interval,
        "pooled": clustered_interval,
        "strength": _error_strength,
        "text": lambda value, low, high, digits: words.loss_interval(value, low, high),
        "number": _loss,
        "brief": _error_brief,
        "tells": _error_tells,
        "over_all": _error_over_all,
        "chart": lambda attribute: Markup(
            "{} of {}. Logarithmic; <strong>further left leaks more</strong>. The dashed line is a "
            "stranger's error without listening. Lines are 95% intervals."
        ).format(axis, of),
        "columns": (
            Column("Off by", lambda f: words.loss_interval(f.value, f.low, f.high), by_value=True),
            Column("Stranger", lambda f: _loss(f.imputation)),
        ),
    }
    return Metric(name=name, axis=axis, rule=rule, caption=caption, **(usual | more))
