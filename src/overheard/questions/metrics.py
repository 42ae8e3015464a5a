"""How are shares of records, and errors, read and written? The metrics that questions share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from markupsafe import Markup

from overheard.evaluation.intervals import clustered_interval, mean_interval, share_interval
from overheard.evaluation.judged import EXPOSED, NO_SIGN, UNCLEAR, Judged
from overheard.evaluation.record import Finding, Pooled
from overheard.questions.question import Column, Ends, Metric
from overheard.report import words

Found = Finding | Pooled
SKEWED = 0.9
"""Share of the commonest value from which the rare ones are counted beside accuracy."""
SMALL = 0.02
"""A gain in accuracy below which a verdict of "exposed" says what else it rests on."""


def _share_tells(worst: Judged, about: Sequence[Judged], names: dict[str, str]) -> str:
    found = worst.finding
    same = words.percent(found.value) == words.percent(worst.reference or 0.0)
    digits = 1 if same and found.value != worst.reference else 0
    names["share"] = words.interval(found.value, found.low, found.high, digits)
    compared = []
    if found.majority is not None:
        names["majority"] = words.percent(found.majority, digits)
        compared.append("always guessing the commonest value gets {majority}")
    if found.imputation is not None:
        names["imputation"] = words.percent(found.imputation, digits)
        compared.append("a stranger without listening {imputation}")
    ranges = _ranges(about)
    right = "{share} of {client}{s} {n}" + (f" ({ranges})" if ranges else "")
    told = "; ".join(filter(None, [right, ", ".join(compared), _rare(found, names)]))
    close = found.value - (worst.reference or 0) < (SMALL if worst.level is EXPOSED else 0)
    if worst.level is not NO_SIGN and (found.evidence or 0) > 0 and close:
        names["evidence"] = f"{found.evidence:,.1f}"
        told += "; its probabilities beat both guesses by {evidence} bits over all records"
        told += ", which may be chance" if worst.level is UNCLEAR else ""
    if found.oversure:
        names["oversure"] = found.oversure
        told += "; how sure it is of them must not be relied on: {oversure}"
    return told


def _ranges(about: Sequence[Judged]) -> str:
    """What counts as right of a number that was cut into ranges: a note says where they end."""
    said = (getattr(j.finding, "details", {}).get("right_is") for j in about)
    return next((str(text).partition(":")[0] for text in said if text), "")


def _rare(found: Found, names: dict[str, str]) -> str:
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


def _share_over_all(found: Found) -> Markup:
    told = Markup(
        'Over all clients together <code>{}</code> is right for <span class="unbroken">{}</span>'
    )
    said = told.format(found.attack, words.interval(found.value, found.low, found.high, 0))
    if found.majority is not None:
        said += Markup("; the commonest value for {}").format(words.percent(found.majority))
    if found.imputation is not None:
        said += Markup(", a stranger for {}").format(words.percent(found.imputation))
    return said + "."


def _share_brief(found: Found) -> tuple[str, str]:
    return words.percent(found.value), "" if found.lift is None else words.points(found.lift)


def share_strength(found: Found, reference: float | None) -> float:
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
        "takes no listening. Lines are 95% intervals, each for itself: what counts as exposed is "
        "decided over all of them together, by the rule above. A flagged answer must not be relied "
        "on."
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


def _error_tells(worst: Judged, about: Sequence[Judged], names: dict[str, str]) -> str:
    found = worst.finding
    names["value"] = words.loss_interval(found.value, found.low, found.high)
    told = "off by {value} on average for {client}{s} {n}"
    if worst.reference is None:
        return told
    names["stranger"] = words.loss(worst.reference)
    return told + "; the best guess without listening by {stranger}"


def _error_over_all(found: Found) -> Markup:
    told = Markup("Over all clients together <code>{}</code> is off by {}")
    said = told.format(found.attack, words.loss_interval(found.value, found.low, found.high))
    if found.imputation is not None:
        said += Markup("; a stranger by {}").format(words.loss(found.imputation))
    return said + "."


def _error_strength(found: Found, reference: float | None) -> float:
    """The error as a share of a guess's, turned round."""
    return -float(found.value / reference if reference else found.value)


def _error_brief(found: Found) -> tuple[str, str]:
    return words.loss(found.value), "" if found.imputation is None else words.loss(found.imputation)


def _from_zero(ends: Ends) -> Ends:
    """Neither an error nor an excess over an optimum is negative."""
    return max(ends[0], 0.0), ends[1]


def _loss(value: float | None) -> str:
    return words.NOTHING if value is None else words.loss(value)


def errors(
    name: str,
    axis: str,
    rule: str,
    caption: str,
    of: Callable[[str | None], str] = lambda attribute: "it",
    **more: Any,
) -> Metric:
    """A metric of errors: means over units, of which smaller leaks more, down to zero.

    ``axis``: what it is, ``of(attribute)``: and of what, for the chart; ``rule``: when it counts as
    exposed; ``caption``: of a client's table, in which {} is the client. Else as in `Metric`.
    """
    usual: dict[str, Any] = {
        "larger_leaks": False,
        "head": "Off by",
        "suffix": " off",
        "says": (
            "Nothing suggests that {actor} learns the {secret}: the best attack is ",
            "{Actor} may learn the {secret}: ",
            "{Actor} learns the {secret}: ",
        ),
        "interval": lambda units, rng: _from_zero(mean_interval(units, rng)),
        "pooled": lambda clients: _from_zero(clustered_interval(clients)),
        "strength": _error_strength,
        "text": lambda value, low, high, digits: words.loss_interval(value, low, high),
        "number": _loss,
        "brief": _error_brief,
        "tells": _error_tells,
        "over_all": _error_over_all,
        "chart": lambda attribute: Markup(
            "{} of {}. Logarithmic; <strong>further left leaks more</strong>. The dashed line is a "
            "stranger's error without listening. Lines are 95% intervals."
        ).format(axis, of(attribute)),
        "columns": (
            Column("Off by", lambda f: words.loss_interval(f.value, f.low, f.high), by_value=True),
            Column("Stranger", lambda f: _loss(f.imputation)),
        ),
    }
    return Metric(name=name, axis=axis, rule=rule, caption=caption, **(usual | more))
