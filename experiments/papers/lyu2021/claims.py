"""lyu2021's tables as printed: the numbers that it claims, and for which data.

Lines of numbers stand in the paper's order; "-" is an empty cell. "cos_matching" is the paper's
own method ("Our" in its tables), and so is "gmm" for membership.
"""

from __future__ import annotations

from collections.abc import Mapping

COS = "cos_matching"

SOURCES: Mapping[str, tuple[str, str, tuple[int, ...]]] = {
    "purchase100": ("c130", "c595", (50, 100, 500, 1000)),
    "hs3d": ("c007", "c017", (50, 100, 500, 1000)),
    "location30": ("c001", "c069", (50, 100, 300)),
}
"""Each with two attributes and the victim's sizes (tables 2 to 4). Where the paper's index does not
fit our columns these are attributes of comparable variance, as each data source says. `hs3d` is the
paper's genome data."""

ACROSS = ("purchase100", "hs3d", "location30")
"""The order of the columns in tables 5 to 8; each with its two attributes."""

METHODS: Mapping[str, Mapping[str, str]] = {
    "purchase100": {
        "random": "0.5 0.5 0.5 0.5 0.5 0.5 0.5 0.5",
        "public100": "0.86 0.84 0.816 0.788 0.6 0.7 0.694 0.709",
        "public1000": "0.82 0.85 0.826 0.824 0.7 0.76 0.734 0.709",
        "statistics": "0.66 0.74 0.65 0.656 0.74 0.78 0.68 0.656",
        "l2_lbfgs": "1 0.96 0.774 0.765 1 1 0.724 0.733",
        COS: "1 1 0.924 0.831 1 0.99 0.808 0.759",
    },
    "location30": {
        "random": "0.5 0.5 0.5 0.5 0.5 0.5",
        "public100": "0.86 0.85 0.82 0.58 0.57 0.56",
        "public1000": "0.88 0.84 0.8367 0.6 0.58 0.6433",
        "statistics": "0.78 0.76 0.69 0.78 0.7 0.6567",
        "l2_lbfgs": "1 1 0.85 1 0.79 0.71",
        COS: "1 1 0.8633 1 0.95 0.7967",
    },
    "hs3d": {
        "random": "0.25 0.25 0.25 0.25 0.25 0.25 0.25 0.25",
        "public100": "0.26 0.33 0.25 0.262 0.28 0.25 0.268 0.266",
        "public1000": "0.32 0.31 0.276 0.284 0.34 0.33 0.284 0.283",
        "statistics": "0.24 0.28 0.342 0.321 0.28 0.3 0.312 0.295",
        "l2_lbfgs": "1 0.91 0.318 0.27 1 0.73 0.282 0.269",
        COS: "0.56 0.52 0.354 0.355 0.58 0.48 0.372 0.335",
    },
}
"""Tables 2, 3 and 4: per method, for each attribute the sizes of the victim in turn."""

ISOLATION = {
    "isolate=1": "1 0.99 0.52 0.48 1 1",
    "isolate=0, 2 participants": "1 0.89 0.42 0.37 1 1",
    "isolate=0, 10 participants": "0.97 0.86 0.42 0.37 1 1",
}
BATCHES = {
    "B=8": "0.85 0.69 0.4 0.35 0.98 0.9",
    "B=32": "0.96 0.8 0.39 0.43 0.93 0.77",
    "B=all": "1 0.99 0.33 0.46 1 0.95",
}
PHASES = {
    "pre1": "1 0.95 0.33 0.45 1 0.92",
    "pre2": "1 0.97 0.33 0.46 1 0.94",
    "pre5": "1 0.97 0.32 0.42 1 0.95",
    "gap10": "0.98 0.99 0.26 0.3 0.98 0.81",
    "last5": "0.93 0.93 0.19 0.32 0.96 0.81",
}
SIZES = {
    "50": "1 1 0.44 0.48 1 1",
    "100": "1 0.97 0.32 0.42 1 0.94",
    "300": "- - - - 0.8667 0.7967",
    "500": "0.9 0.784 0.294 0.296 - -",
    "1000": "0.831 0.748 0.275 0.255 - -",
}
"""Tables 5 to 8: a line per variant, a column per data set and attribute (`ACROSS`)."""

NETWORKS = {
    (128,): "1 1 0.8633 1 0.95 0.7967",
    (1024,): "1 1 1 1 1 0.9633",
    (1024, 256): "1 1 1 1 1 0.9833",
}
"""Table 9, by hidden layers: for each attribute of Location the sizes of the victim in turn."""

MEMBERS = {
    "purchase100": {
        8: "0.99 0.99 0.9925 0.98 0.886 0.8865 0.8245 0.8205",
        32: "0.97 0.995 0.99 0.995 0.9005 0.911 0.816 0.799",
        0: "0.99 0.99 1 1 0.9805 0.98 0.9568 0.9568",
    },
    "location30": {
        8: "0.965 0.985 0.945 0.965 0.7958 0.8",
        32: "0.985 0.98 0.9325 0.9375 0.8 0.8",
        0: "0.985 0.98 0.96 0.9575 0.8958 0.8933",
    },
}
"""Tables 10 and 11: by batch size (0: all), for each size of the victim the two attributes."""

PRIORS = {
    "location30": {
        8: "0.86 0.85 0.7833 0.86 0.71 0.5967",
        32: "0.94 0.8 0.7433 0.86 0.64 0.63",
        0: "0.94 0.88 0.7667 0.94 0.74 0.65",
    },
    "purchase100": {
        8: "0.86 0.78 0.646 0.583 0.68 0.71 0.628 0.638",
        32: "0.9 0.76 0.652 0.644 0.84 0.75 0.682 0.648",
        0: "0.94 0.84 0.766 0.739 0.92 0.85 0.73 0.69",
    },
}
"""Tables 12 and 13: by batch size (0: all), for each attribute the sizes of the victim in turn."""

LABELS_UNKNOWN = {
    ("purchase100", "c130"): "1 1 0.836 0.757",
    ("purchase100", "c595"): "1 0.98 0.73 0.738",
    ("hs3d", "c007"): "0.56 0.52 0.354 0.355",
    ("hs3d", "c017"): "0.58 0.48 0.372 0.335",
}
"""Section 5.4, two classes, by size of the victim; for its genome data the paper says "similar to
the scenario when the true label is known", so these are the numbers of its Table 4."""


def numbers(line: str) -> list[float | None]:
    """A printed line; None for an empty cell."""
    return [None if cell == "-" else float(cell) for cell in line.split()]
