"""How does a number or a name read in a sentence, and how in a table?

Only formatting: nothing is estimated here. A share below 1 never reads "100%" and one above 0
never "0%", however it rounds. What questions, metrics, levels and papers are called, and the fixed
sentences about them, stand in ``words.toml``; a question that is not named there, of a package of
somebody else, is called by its own name and its metric like every other of its kind.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from math import floor, log10
from typing import TYPE_CHECKING, Any

from overheard.evaluation.policy import Known
from overheard.evaluation.record import Finding, leaves
from overheard.questions.question import Metric, Topic

if TYPE_CHECKING:
    from overheard.report.advice import Mean

WORDS: dict[str, Any] = tomllib.loads(
    (resources.files("overheard.report") / "words.toml").read_text(encoding="utf-8")
)
SIGNS: dict[str, str] = WORDS["signs"]
NOTHING = "–"
MANY_TIMES = 1e3
"""A relative excess from which its digits say nothing more."""
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def actor(threat: str) -> str:
    return str(WORDS["actors"].get(threat, f"the adversary “{threat}”"))


def rung(name: str) -> str:
    """What an adversary of the knowledge ladder knows."""
    return str(WORDS["rungs"].get(name, name))


# ------------------------------------------------------------------------ questions and metrics


def _question(question: str) -> dict[str, str]:
    plain = question.replace("_", " ")
    usual = {"title": capital(plain), "noun": plain, "of": f"{plain} of {{}}", "unit": "record"}
    known: dict[str, str] = WORDS["questions"].get(question, {})
    return usual | known


def question_title(question: str) -> str:
    return _question(question)["title"]


def secret(topic: Topic) -> str:
    """What the secret is called, as short as a column heading."""
    known = _question(topic.question)
    return known["noun"] if topic.attribute is None else known["of"].replace("{}", topic.attribute)


def unit(topic: Topic) -> str:
    return _question(topic.question)["unit"]


def what_of(property_: str) -> str:
    """A property as the predicate of a sentence: "holds the target record"."""
    kind, number = re.fullmatch(r"(.*?)(-[0-9]+)?", property_, re.DOTALL).groups()  # type: ignore[union-attr]
    return str(WORDS["properties"].get(kind, kind)) + (number or "").replace("-", " ")


def of(metric: Metric) -> dict[str, Any]:
    """The words for a metric: see ``words.toml``."""
    usual = {"prefix": "", "suffix": "", "legend": [], "intro": "", "about": "Secret"}
    metrics: dict[str, dict[str, Any]] = WORDS["metrics"]
    return usual | metrics.get(metric.name, metrics["accuracy" if metric.share else "error"])


def value(found: Finding, digits: int = 1) -> str:
    """The number with its interval; what is below the best possible is so by rounding or noise."""
    ends = (found.value, found.low, found.high)
    if found.measure.limit is not None and found.value >= MANY_TIMES:
        return f"more than {MANY_TIMES:,.0f}"
    if not found.measure.share:
        return loss_interval(*(max(end, 0.0) for end in ends))
    return interval(*ends, digits) if found.measure.hits else "{:.2f} ({:.2f}–{:.2f})".format(*ends)


def number(metric: Metric, value: float | None) -> str:
    """A single one, or none."""
    if value is None:
        return NOTHING
    if not metric.share:
        return loss(value)
    return percent(value, 1) if metric.hits else f"{value:.2f}"


def mark(found: Finding) -> str:
    """What stands at a finding's mark in a chart."""
    text = value(found, 0) if found.measure.share else value(found).partition(" (")[0]
    return text + (", flagged" if found.flag else some(found))


def some(found: Finding) -> str:
    """Of how many clients a number over all of them is, where answers about others are flagged."""
    left_out = found.client is None and found.flagged and not found.flag
    return f", {together(found)}" if left_out else ""


def brief(found: Finding) -> tuple[str, str]:
    """The two texts of a cell: the score, and what it is set against."""
    metric = found.measure
    if metric.hits:
        return percent(found.value), "" if found.lift is None else points(found.lift)
    guess = None if metric.share else found.imputation
    own = excess(found.value) if metric.limit is not None else number(metric, found.value)
    return own, "" if guess is None else loss(guess)


def cell(found: Finding, what: str) -> str:
    """One cell of a client's table; ``what``: as in the columns of a metric."""
    details = found.details
    if what == "found":
        counts = [details.get(key) for key in ("found", "positives")]
        return NOTHING if None in counts else "{} of {}".format(*counts)
    if what == "false_alarms":
        return str(details.get(what, NOTHING))
    if what in ("value", "lift"):
        return value(found) if what == "value" else points(found.lift)
    return number(found.measure, getattr(found, what))


def together(found: Finding) -> str:
    """2 of 4 clients: over how many the pooled number is."""
    asked = found.clients + (0 if found.flag else found.flagged)
    some = f"{found.clients:,} of " if found.clients < asked else ""
    return some + count(asked, "client")


def people(known: Known) -> str:
    """1,049 of 1,049 (1,045 to 1,049): people known, with the interval in people."""
    low, high = (round(end * known.records) for end in (known.low, known.high))
    low, high = min(low, known.people), max(high, known.people)
    return f"{known.people:,} of {known.records:,} ({low:,} to {high:,})"


def over_seeds(mean: Mean) -> str:
    """0.31 (0.29 to 0.33): a mean over seeds; of one seed there is no interval."""
    text = scientific(mean.value)
    if mean.low is None or mean.high is None:
        return f"{text} (one seed)"
    return f"{text} ({scientific(mean.low)} to {scientific(mean.high)})"


def rules() -> dict[str, str]:
    """What each level means; of exposure, also what each metric asks for."""
    asked, levels = [metric["rule"] for metric in WORDS["metrics"].values()], dict(WORDS["rules"])
    return levels | {"exposed": " ".join([levels["exposed"], *asked])}


# ----------------------------------------------------------------------------- numbers and names


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def count(number: int, noun: str = "") -> str:
    """1,049 records."""
    plural = noun if number == 1 or not noun else noun + "s"
    return f"{number:,} {plural}".strip()


def joined(names: Sequence[str], most: int = 8) -> str:
    """a, b and c; a long list is cut and says by how much."""
    if len(names) > most:
        return f"{', '.join(names[:most])} and {len(names) - most:,} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def percent(share: float, digits: int = 0) -> str:
    """76%, with more digits where rounding would claim a 0 or a 100 that is not there."""
    return f"{_hundredths(share, _digits(share, digits))}%"


def interval(value: float, low: float, high: float, digits: int = 0) -> str:
    """76% (73–79): the value and its 95% confidence interval."""
    ends = [_hundredths(end, _digits(end, digits)) for end in (low, high)]
    return f"{percent(value, digits)} ({ends[0]}–{ends[1]})"


def points(difference: float | None) -> str:
    """A difference of two shares, in percentage points, with its sign."""
    if difference is None:
        return NOTHING
    text = f"{100 * difference:+.1f}".replace("-", "−")
    return "0.0" if text[1:] == "0.0" else text


def excess(value: float) -> str:
    """A relative excess in a sentence: 0.0031%, 12%, 350%; no model beats the optimum, and what
    seems to does so by rounding or by noise."""
    if value < 1e-6:
        return "less than 0.0001%" if value > 0 else "0%"
    if value >= MANY_TIMES:
        return f"more than {100 * MANY_TIMES:,.0f}%"
    places = max(0, 1 - floor(log10(100 * value)))
    return f"{100 * value:,.{places}f}%"


def excess_interval(value: float, low: float, high: float) -> str:
    """The same with its interval; a vanishing one is not spelled out."""
    if (abs(value) < 1e-6 and abs(high) < 1e-6) or value >= MANY_TIMES:
        return excess(value)
    if low <= 0:
        return f"{excess(value)} (at most {excess(high)})"
    return f"{excess(value)} ({excess(low)} to {excess(high)})"


def scientific(value: float) -> str:
    """3.1×10⁻⁶, or plain digits where those are short."""
    if value == 0 or 1e-3 <= abs(value) < 1e4:
        return f"{value:.3g}".replace("-", "−")
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}×10{str(int(exponent)).translate(_SUPERSCRIPT)}".replace("-", "−")


def seconds(value: float) -> str:
    return f"{value:.2g}" if value < 1 else f"{value:.1f}"


def bits(value: float) -> str:
    """Bits per record, two digits after the point."""
    return f"{value:.2f}".replace("-", "−").replace("−0.00", "0.00")


def loss(value: float) -> str:
    """An excess loss for a table cell: two digits, whatever its size."""
    return f"{value:#.2g}".replace("-", "−") if 1e-3 <= abs(value) < 10 else scientific(value)


def loss_interval(value: float, low: float, high: float) -> str:
    return f"{loss(value)} ({loss(low)} to {loss(high)})"


def power_of_ten(exponent: int) -> str:
    """A tick of a logarithmic axis; the one at 1% says so."""
    plain = {0: "1", 1: "10", -2: "10⁻² = 1%"}
    return plain.get(exponent, f"10{str(exponent).translate(_SUPERSCRIPT)}")


def settings(recipe: Mapping[str, Any], longest: int = 300) -> list[tuple[str, str]]:
    """A nested recipe as (name, value) lines; long values are cut, audit.json has them whole."""
    lines = []
    for keys, value in leaves(recipe):
        text = _plain(value)
        text = text if len(text) <= longest else f"{text[:longest]} … (whole in audit.json)"
        lines.append((" · ".join(keys).replace("_", " "), text))
    return lines


def unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _digits(share: float, least: int) -> int:
    """Digits after the point until the rounded percentage is honest about 0 and 100."""
    for digits in range(least, 4):
        rounded = float(f"{100 * share:.{digits}f}")
        if (rounded < 100 or share >= 1) and (rounded > 0 or share <= 0):
            return digits
    return 4


def _hundredths(share: float, digits: int) -> str:
    return f"{100 * share:.{digits}f}".replace("-", "−")


def scalar(value: float | int | str) -> str:
    """One of an attack's diagnostics."""
    if isinstance(value, bool | str):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else scientific(value)


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str | int | float):
        return str(value)
    if isinstance(value, list) and all(isinstance(v, str | int | float) for v in value):
        return ", ".join(map(str, value)) or "none"
    return json.dumps(value, default=str, ensure_ascii=False) if value else "none"
