"""Numbers that several decoders share, each with its reason."""

from __future__ import annotations

UNKNOWNS = 6000
"""Beyond so many a Gram matrix and its eigenvectors take minutes and gigabytes."""
NUMBERS = 60_000_000
"""Rows of features are written out up to so many numbers (480 MB); above, as inner products."""
BLOCK = 1 << 23
"""Numbers that are made at once where rows are needed one after the other (64 MB)."""
SPARE = 20
"""Rows that nothing explains from which a noise level is estimated: to a third, then."""
DECIDED, NEARLY_ALL = 0.99, 0.98
"""A record is decided at this probability; an answer is, at this share of decided records."""
NORMAL_MEDIAN = 0.6745  # of the absolute value of a standard normal number
CARRIED = 32
"""Candidates of a record: expectation propagation carries a dimension for each."""
