"""How strong is the evidence that listening told something? One p-value for each finding.

The null hypothesis is always that the answer is no better than guessing without listening. A
p-value here is of one look; `overheard.evaluation.decision` pays for there being many.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, hypergeom
from scipy.stats import t as student_t

Array = NDArray[np.float64]
HEDGE = 0.1
"""Part of the stake of a pooled test that does not depend on every client's probabilities."""


def share_p_value(hits: int, n: int, reference: float | None, evidence: float | None) -> float:
    """That a share guessed right, or the probabilities behind it, beat guessing.

    Two tests, each paid for by doubling. The first: that many hits by someone who is right with
    probability ``reference``, the better of the client's commonest value and a stranger (exact).
    Accuracy is blind to rare values: finding the only positive among 300 moves it by a third of a
    per cent. The second therefore asks the probabilities. ``evidence`` bits are by how much they
    beat the better of the client's own shares and the stranger's probabilities, as log2 of a
    likelihood ratio. Where the records' values are independent draws of which the adversary heard
    nothing, such a ratio has an expectation of at most 1 (the client's shares are the likeliest
    ones, which only makes it smaller: universal inference, Wasserman, Ramdas and Balakrishnan
    2020), so that it exceeds 1/p with probability at most p.
    """
    by_hits = 1.0 if reference is None else float(binom.sf(hits - 1, n, min(reference, 1.0)))
    if evidence is None:
        return by_hits
    by_bits = float(2.0 ** -min(max(evidence, 0.0), 1000.0))
    return min(1.0, 2 * min(by_hits, by_bits))


def pooled_evidence(gains: Sequence[float | None]) -> float:
    """Bits of all clients together, on which a test may rest; None: the client's probabilities were
    set aside because the truth contradicts them.

    To leave such clients out would be to choose by the truth. Ratios whose expectations are at most
    1 may be multiplied, and averaged with a stake that is not bet: here most is bet on the product
    of all, lost if a client's probabilities fail, and the rest on the product of (1 + ratio) / 2,
    of which a client that fails takes half.
    """
    known = [gain for gain in gains if gain is not None]
    failed = len(gains) - len(known)
    hedged = float(sum(np.logaddexp2(0.0, gain) - 1 for gain in known)) - failed
    whole = -np.inf if failed else float(sum(known))
    return float(np.logaddexp2(whole + np.log2(1 - HEDGE), hedged + np.log2(HEDGE)))


def smaller_p_value(values: Array, than: Array | float) -> float:
    """That the mean of ``values`` is below that of ``than`` (paired, or a constant): Student's t,
    one-sided. With fewer than two values nothing is known of the spread, and it is 1."""
    difference = np.asarray(values - than, dtype=np.float64)
    n, mean = len(difference), float(difference.mean())
    spread = float(difference.std(ddof=1)) if n > 1 else np.inf
    if spread == 0.0:
        return 0.0 if mean < 0 else 1.0
    return float(student_t.cdf(mean / spread * np.sqrt(n), n - 1)) if n > 1 else 1.0


def found_p_value(found: int, accused: int, positives: int, clients: int) -> float:
    """That accusing so many clients at random finds so many of those that have the property:
    Fisher's exact test."""
    return float(hypergeom.sf(found - 1, clients, positives, accused))
