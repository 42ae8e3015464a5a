"""How does a number or a name read in a sentence, and how in a table?

Only formatting: nothing is estimated here. A share below 1 never reads "100%" and one above 0
never "0%", however it rounds.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import floor, log10
from typing import Any

from overheard.evaluation.record import Audit
from overheard.questions.question import all_questions, grouped

NOTHING = "–"
MANY_TIMES = 1e3
"""A relative excess from which its digits are not spelled out."""
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_ACTORS = {
    "eavesdropper": "an eavesdropper",
    "server": "the server",
    "isolating-server": "a server that isolates the client",
    "secure-server": "the server behind secure aggregation",
}


def actor(threat: str) -> str:
    return _ACTORS.get(threat, f"the adversary “{threat}”")


def question_title(question: str) -> str:
    known = all_questions().get(question)
    return known.title if known else question.replace("_", " ").capitalize()


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


def score_interval(value: float, low: float, high: float) -> str:
    """0.92 (0.85–0.97): an F1 score and its interval."""
    return f"{value:.2f} ({low:.2f}–{high:.2f})"


def points(difference: float | None) -> str:
    """A difference of two shares, in percentage points, with its sign."""
    if difference is None:
        return NOTHING
    text = f"{100 * difference:+.1f}".replace("-", "−")
    return "0.0" if text[1:] == "0.0" else text


def share(value: float | None) -> str:
    return NOTHING if value is None else percent(value, 1)


def excess(value: float) -> str:
    """A relative excess loss in a sentence: 0.0031%, 12%, 350%, 2.1×10⁷%."""
    if value < 0:
        return f"−{excess(-value)}" if value <= -1e-6 else "less than 0.0001%"
    if value < 1e-6:
        return "less than 0.0001%" if value else "0%"
    if value >= MANY_TIMES:
        return f"{scientific(100 * value)}%"
    places = max(0, 1 - floor(log10(100 * value)))
    return f"{100 * value:,.{places}f}%"


def excess_interval(value: float, low: float, high: float) -> str:
    """The same with its interval; a vanishing one is not spelled out."""
    if abs(value) < 1e-6 and abs(high) < 1e-6:
        return excess(value)
    if low <= 0:  # noise: no model beats the optimum
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
    if exponent == -2:
        return "10⁻² = 1%"
    return (
        f"10{str(exponent).translate(_SUPERSCRIPT)}"
        if exponent not in (0, 1)
        else ("1" if exponent == 0 else "10")
    )


def diagnostics(details: Mapping[str, float | int | str], most: int = 12) -> str:
    """An attack's own diagnostics on one line."""
    shown = [f"{key.replace('_', ' ')} {_scalar(v)}" for key, v in list(details.items())[:most]]
    left = len(details) - len(shown)
    return "; ".join(shown) + (f"; {left} more in audit.json" if left > 0 else "")


def settings(recipe: Mapping[str, Any], longest: int = 300) -> list[tuple[str, str]]:
    """A nested recipe as (name, value) lines; long values are cut, audit.json has them whole."""
    lines: list[tuple[str, str]] = []
    for key, value in recipe.items():
        if isinstance(value, Mapping) and value:
            lines += [(f"{key} · {name}", text) for name, text in settings(value, longest)]
        else:
            text = _plain(value)
            cut = f"{text[:longest]} … (whole in audit.json)"
            lines.append((str(key), text if len(text) <= longest else cut))
    return [(name.replace("_", " "), text) for name, text in lines]


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


def _scalar(value: float | int | str) -> str:
    match value:
        case bool() | str():
            return str(value)
        case int():
            return f"{value:,}"
        case float():
            return scientific(value)


def _plain(value: object) -> str:
    match value:
        case None | () | [] | {}:
            return "none"
        case bool():
            return "yes" if value else "no"
        case str() | int() | float():
            return str(value)
        case list() | tuple() if all(isinstance(v, str | int | float) for v in value):
            return ", ".join(map(str, value))
        case _:
            return json.dumps(value, default=str, ensure_ascii=False)


MOST_DAMAGE = 50
"""So many lines of what is missing stand on the page."""


def damaged(lines: Sequence[str]) -> str:
    """What a reader must know of an audit of a damaged recording before any figure."""
    return (
        f"The recording is damaged, and the audit was told to go on all the same: "
        f"{count(len(lines), 'part')} of it {'was' if len(lines) == 1 else 'were'} left out. Every "
        "figure here is about what is left; with the whole recording more may be learned."
    )


def failed(audit: Audit) -> str:
    """What a reader must know of an audit in which attacks failed before any figure."""
    return (
        f"{count(len(audit.failed), 'attack run')} ended in an error of "
        f"{'its' if len(audit.failed) == 1 else 'their'} own, and what "
        f"{'it' if len(audit.failed) == 1 else 'they'} would have learned is not in any figure "
        "here: more may be learned."
    )


def failures(audit: Audit) -> list[str]:
    """Which attacks failed on which secrets of which clients, and how; one line per error."""
    lines = []
    for (attack, reason), group in grouped(audit.failed, lambda f: (f.attack, f.reason)).items():
        secrets = joined(unique(f.attribute for f in group if f.attribute is not None))
        about = f" on {secrets}" if secrets else ""
        clients = joined(unique(f.client for f in group), most=5)
        lines.append(f"{attack}{about} ({clients}): {reason}")
    return lines
