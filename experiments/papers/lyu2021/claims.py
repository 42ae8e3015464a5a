"""lyu2021's tables as printed (``claims.toml``): the numbers that it claims, and for which data.

"cos_matching" is the paper's own method ("Our" in its tables), and so is "gmm" for membership.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COS = "cos_matching"

SOURCES: Mapping[str, tuple[str, str, tuple[int, ...]]] = {
    "purchase100": ("c130", "c595", (50, 100, 500, 1000)),
    "hs3d": ("c007", "c017", (50, 100, 500, 1000)),
    "location30": ("c001", "c069", (50, 100, 300)),
}
"""Each with two attributes and the victim's sizes (tables 2 to 4), in the order of the columns of
tables 5 to 8. Where the paper's index does not fit our columns these are attributes of comparable
variance, as each data source says. `hs3d` is the paper's genome data."""

PRINTED: Mapping[str, Any] = tomllib.loads(
    Path(__file__).with_name("claims.toml").read_text("utf-8")
)["claims"]


def numbers(line: str) -> list[float | None]:
    """A printed line; None for an empty cell."""
    return [None if cell == "-" else float(cell) for cell in line.split()]
