"""Foreign text, made printable: what would steer a terminal or hide is spelled out.

Control characters (escape sequences, bells, carriage returns), the C1 controls, line separators,
marks that turn the direction of writing, characters without width, the tags that no font shows and
halves of surrogate pairs become ``\\x1b``-like words. Everything else stays as it is.
"""

from __future__ import annotations

import re
import shlex

from pydantic import ValidationError

_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff"
    "\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
)


def visible(text: str, keep: str = "") -> str:
    """The text without anything that a terminal or a reader would not show; ``keep``: but these."""
    return _UNSAFE.sub(
        lambda m: m[0] if m[0] in keep else m[0].encode("unicode_escape").decode(), text
    )


def command(*words: object) -> str:
    """A command of ours as it is typed, whatever is in the names of files."""
    return shlex.join(["overheard", *(visible(str(word)) for word in words)])


def short(value: object, longest: int = 200) -> str:
    """A value in an error message: its repr, cut where it goes on."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or a number of too many digits
        text = f"a {type(value).__name__} too large to show"
    return visible(text if len(text) <= longest else f"{text[:longest]}...")


def first_error(error: ValidationError) -> str:
    """The first field that is wrong, why, and what is given there."""
    first = error.errors()[0]
    where = visible(".".join(map(str, first["loc"])))[:200] or "top level"
    return f"{where}: {first['msg']} (given: {short(first['input'])})"
