"""The exponent of a growth curve."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

FLOOR = 1e-3


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The slope of the values against the sizes, both in logarithms, by least squares.

    Every point counts alike. Constant work at small sizes bends the curve and lowers the slope:
    the points themselves stand beside it.
    """
    x = [log(size) for size in sizes]
    y = [log(max(value, FLOOR)) for value in values]
    middle, level = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - middle) ** 2 for a in x)
    if spread == 0:
        return 0.0
    return sum((a - middle) * (b - level) for a, b in zip(x, y, strict=True)) / spread
