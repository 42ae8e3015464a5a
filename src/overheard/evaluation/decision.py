"""Which secrets are exposed, and of whom? Decided once, for the whole audit, at 5% error.

An audit looks at every secret of every client with every attack; the worst of many looks is nearly
always "significant". So the looks are paid for. The whole audit says "exposed" of something that is
not with a probability of at most 5%, however many clients and attacks there are:

- the 5% are shared by the secrets;
- a secret is asked of all clients together first, with its attacks by Bonferroni. Only if that test
  finds something are its clients tested, by Holm's method with the same share of the 5% (clients
  inherit what their secret had; Bretz, Maurer, Brannath and Posch 2009);
- what is left over, once all clients of a secret are exposed, goes to the other secrets.

Only what listened counts, and only where it may be relied on: an answer that flags itself supports
nothing. A client whose messages the declared recipe does not reproduce may be exposed all the same:
answers are held against the truth, and a wrong recipe only makes them worse. Simulated audits in
which there is nothing to learn: ``reliability/null_audits.py``.

Each look has one p-value (`share_p_value` and the three after it). The null hypothesis is always
that the answer is no better than guessing without listening.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, hypergeom
from scipy.stats import t as student_t

from overheard.evaluation.record import Audit, Finding, Pooled
from overheard.questions.question import Topic

ERROR = 0.05
"""Probability that an audit calls anything exposed that is not."""


@dataclass(frozen=True)
class Decision:
    """``levels``: by topic, and by topic and client, the p-value below which an attack's test
    shows exposure; absent where nothing is exposed."""

    topics: Mapping[Topic, float]
    clients: Mapping[tuple[Topic, str], float]

    def exposed(self, found: Finding | Pooled) -> bool:
        """Is this finding one of those that show exposure?"""
        alone = self.clients.get((found.topic, found.client or ""))
        level = self.topics.get(found.topic) if found.client is None else alone
        return level is not None and found.p_value is not None and found.p_value <= level


def decide(audit: Audit) -> Decision:
    """What the audit's findings show together."""
    listening = audit.listening
    doubted: Counter[tuple[Topic, str]] = Counter()
    leaves: dict[Topic, dict[str, list[float]]] = {}
    for found in audit.findings:
        if found.attack not in listening or found.flag:
            doubted[found.topic, found.attack] += 1
        elif found.p_value is not None:
            leaves.setdefault(found.topic, {}).setdefault(found.client, []).append(found.p_value)
    attacks: dict[Topic, list[float]] = {topic: [] for topic in leaves}
    for row in audit.pooled:
        topic, p = row.topic, row.p_value
        whole = row.attack in listening and doubted[topic, row.attack] <= row.flagged
        if whole and not row.flag and p is not None and topic in attacks:
            attacks[topic].append(p)
    level = dict.fromkeys(leaves, ERROR / max(len(leaves), 1))
    topics: dict[Topic, float] = {}
    clients: dict[tuple[Topic, str], float] = {}
    waiting = list(leaves)
    while True:
        found_one = next((t for t in waiting if _whole(leaves[t], attacks[t]) <= level[t]), None)
        if found_one is None:
            return Decision(topics, clients)
        waiting.remove(found_one)
        topics[found_one] = level[found_one] / max(len(attacks[found_one]), 1)
        rejected = _holm(leaves[found_one], level[found_one])
        clients |= {(found_one, client): bar for client, bar in rejected.items()}
        if len(rejected) == len(leaves[found_one]):
            for other in waiting:
                level[other] += level[found_one] / len(waiting)


def _whole(leaves: Mapping[str, list[float]], pooled: list[float]) -> float:
    """The test of a secret over all clients: of its pooled findings or, without any, of the
    clients one by one."""
    if pooled:
        return min(pooled) * len(pooled)
    return min(min(ps) * len(ps) for ps in leaves.values()) * len(leaves)


def _holm(leaves: Mapping[str, list[float]], level: float) -> dict[str, float]:
    """The clients rejected by Holm's method, each with the bar that one of its attacks passed."""
    rejected: dict[str, float] = {}
    order = sorted(leaves.items(), key=lambda item: min(item[1]) * len(item[1]))
    for done, (client, ps) in enumerate(order):
        bar = level / (len(order) - done)
        if min(ps) * len(ps) > bar:
            break
        rejected[client] = bar / len(ps)
    return rejected


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
