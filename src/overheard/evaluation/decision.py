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
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from scipy.stats import norm

from overheard.evaluation.evidence import share_p_value
from overheard.evaluation.record import Audit, Finding, Heard, Pooled
from overheard.questions.question import Topic

ERROR = 0.05
"""Probability that an audit calls anything exposed that is not."""


def topic_of(found: Finding | Pooled | Heard) -> Topic:
    """What a finding is about."""
    return Topic(found.question, found.attribute, found.metric)


@dataclass(frozen=True)
class Decision:
    """``levels``: by topic, and by topic and client, the p-value below which an attack's test
    shows exposure; absent where nothing is exposed."""

    topics: Mapping[Topic, float]
    clients: Mapping[tuple[Topic, str], float]

    def exposed(self, found: Finding | Pooled, p_value: float | None) -> bool:
        """Is this finding one of those that show exposure?"""
        topic = topic_of(found)
        if isinstance(found, Pooled):
            level = self.topics.get(topic)
        else:
            level = self.clients.get((topic, found.client))
        return level is not None and p_value is not None and p_value <= level


def decide(audit: Audit) -> Decision:
    """What the audit's findings show together."""
    references, listening = references_of(audit), audit.listening
    doubted: Counter[tuple[Topic, str]] = Counter()
    leaves: dict[Topic, dict[str, list[float]]] = {}
    for found in audit.findings:
        if not supports(found, listening):
            doubted[topic_of(found), found.attack] += 1
            continue
        p = p_value_of(found, references)
        if p is not None:
            leaves.setdefault(topic_of(found), {}).setdefault(found.client, []).append(p)
    attacks: dict[Topic, list[float]] = {topic: [] for topic in leaves}
    for row in audit.pooled:
        topic, p = topic_of(row), p_value_of(row, references)
        whole = row.attack in listening and doubted[topic, row.attack] <= row.flagged
        if whole and not row.flag and p is not None and topic in attacks:
            attacks[topic].append(p)
    level = dict.fromkeys(leaves, ERROR / max(len(leaves), 1))
    topics: dict[Topic, float] = {}
    clients: dict[tuple[Topic, str], float] = {}
    waiting = list(leaves)
    while True:
        found_one = next(
            (t for t in waiting if _whole(leaves[t], attacks[t]) <= level[t]),
            None,
        )
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


def supports(found: Finding, listening: frozenset[str]) -> bool:
    """May a verdict rest on this finding? It listened, and its answer may be relied on."""
    return found.attack in listening and not found.flag


Key = tuple[Topic, str]


def references_of(audit: Audit) -> dict[Key, float]:
    """The best that somebody gets who does not listen, by topic and client ("" for all together);
    shares say so themselves."""
    best: dict[Key, float] = {}
    listening = audit.listening
    everything: list[Finding | Pooled] = [*audit.findings, *audit.pooled]
    for found in everything:
        if not found.measure.share and found.attack not in listening:
            key, metric = key_of(found), found.measure
            if key not in best or metric.gain(found.value, best[key]) > 0:
                best[key] = found.value
    return best


def key_of(found: Finding | Pooled) -> Key:
    return topic_of(found), found.client if isinstance(found, Finding) else ""


def reference_of(found: Finding | Pooled, references: Mapping[Key, float]) -> float | None:
    """What guessing without listening gets; None where there is no such guess."""
    free = found.majority if found.measure.share else references.get(key_of(found))
    return found.measure.best(g for g in (free, found.imputation) if g is not None)


def p_value_of(found: Finding | Pooled, references: Mapping[Key, float]) -> float | None:
    """The finding's own p-value; of audits that have none (versions 1 and 2) one made from its
    value and interval. None where there is nothing to compare with."""
    if found.p_value is not None:
        return found.p_value
    metric = found.measure
    bars = [b for b in (reference_of(found, references), metric.limit) if b is not None]
    reference = metric.best(bars)
    if reference is None:
        return None
    if metric.hits:
        return share_p_value(round(found.value * found.n), found.n, reference, None)
    margin = metric.gain(found.value, reference)
    reach = found.value - found.low if metric.larger_leaks else found.high - found.value
    return float(norm.sf(margin / max(reach / norm.ppf(0.975), 1e-300)))
