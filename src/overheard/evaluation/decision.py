"""Which secrets are exposed, and of whom? Decided once, for the whole audit, at 5% error.

An audit looks at every secret of every client with every attack; the worst of many looks is nearly
always "significant". So the looks are paid for. The whole audit says "exposed" of something that is
not with a probability of at most 5%, however many clients and attacks there are:

- the 5% are shared by the secrets;
- a secret is asked of all clients together first, with its attacks by Bonferroni. Only if that test
  finds something are its clients tested, by Holm's method with the same share of the 5% (clients
  inherit what their secret had; Bretz, Maurer, Brannath and Posch 2009);
- what is left over, once all clients of a secret are exposed, goes to the other secrets.

"Unclear" is what the same rule would call exposed at an error of 15%: of audits in which there is
nothing to learn, at most about one in seven says so of anything. A client's own model is unclear,
too, where the copy beats every guess, at 5% over the whole audit (Bonferroni; normal, by its
interval), but may not be as close as counts. What cannot be tested is not measured. Only what
listened counts, and only where it may be relied on: an answer that flags itself supports nothing,
and neither does one about a client whose messages the declared recipe does not reproduce. What it
got right shows that something leaks, but how much is not known before the recipe is, and where
records were taken for others' it was held against the wrong truth. Simulated audits in which there
is nothing to learn: ``experiments/robustness/null_audits.py``.

Intervals are 95% ones. Shares of one client's records: Wilson's score interval, which keeps its
coverage near 0 and 1 where a bootstrap collapses to a point. Other means: bootstrap over records.
Several clients: a random effect per client, because records of one client err together. How often
each contains the truth is measured by ``experiments/robustness/simulations.py``.

Each look has one p-value (`share_p_value` and the three after it). The null hypothesis is always
that the answer is no better than guessing without listening.

`decided` writes the outcome into the audit: a level for every finding, and for every secret its
level and its strongest finding, which is that of the highest level and of these the one with the
largest margin over guessing. Reports, comparisons, curves and ladders read it there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, ndtri
from scipy.stats import binom, hypergeom
from scipy.stats import t as student_t

from overheard.questions.question import SKIPPED, Topic, grouped

if TYPE_CHECKING:
    from overheard.evaluation.record import Audit, Finding

Level = Literal["for comparison", "not measured", "no sign", "unclear", "exposed"]
COMPARISON: Level = "for comparison"
"""Of what does not listen, and is what attacks are compared with."""
NOT_MEASURED: Level = "not measured"
NO_SIGN: Level = "no sign"
UNCLEAR: Level = "unclear"
EXPOSED: Level = "exposed"
LEVELS = (COMPARISON, NOT_MEASURED, NO_SIGN, UNCLEAR, EXPOSED)
"""From the lowest to the highest."""
ERROR = 0.05
"""Probability that an audit calls anything exposed that is not."""
UNCLEAR_ERROR = 0.15
"""Probability that an audit calls anything unclear or exposed of which nothing was learned."""
Decision = Mapping[tuple[Topic, str | None], float]
TINY = 1e-300
UNFIT = "the declared recipe does not reproduce what the client sent"


def strongest(found: Iterable[Finding]) -> Finding | None:
    return max(found, key=lambda f: f.strength, default=None)


def best_of(found: Iterable[Finding]) -> dict[tuple[str | None, Topic], Finding]:
    """By client and secret what leaks most, in order of appearance."""
    groups = grouped(found, lambda f: (f.client, f.topic))
    return {key: max(group, key=lambda f: f.strength) for key, group in groups.items()}


def decided(audit: Audit) -> dict[str, Any]:
    """The audit's fields that follow from its others: findings and pooled ones with their levels,
    the secrets, and the level of the whole."""
    decisions = decide(audit, ERROR), decide(audit, UNCLEAR_ERROR)
    levelled = _levelled(audit, decisions)
    pooled, findings = levelled[: len(audit.pooled)], levelled[len(audit.pooled) :]
    secrets = [_secret(t, findings, pooled) for t in _topics(audit)]
    highest = max((s["level"] for s in secrets), key=LEVELS.index, default=NOT_MEASURED)
    lacking = any(s["level"] == NOT_MEASURED for s in secrets)
    level = NOT_MEASURED if highest == NO_SIGN and lacking else highest
    return {"findings": findings, "pooled": pooled, "secrets": secrets, "level": level}


def _topics(audit: Audit) -> list[Topic]:
    """What was asked, in order; what was only skipped, or failed, comes last."""
    infos = {info.name: info for info in audit.attacks}
    seen = [f.topic for f in audit.everything]
    measured = {(t.question, t.attribute) for t in seen}
    for skip in (*audit.skipped, *audit.failed):
        info = infos.get(skip.attack)
        key = (info.question if info else skip.attack, skip.attribute)
        # a rung or a number of rounds that could not be asked is no question of its own
        if not skip.doing and key not in measured and (info is None or info.listens):
            seen.append(Topic(*key, SKIPPED))
    return sorted(dict.fromkeys(seen), key=lambda t: t.skipped)


def _secret(topic: Topic, findings: Sequence[Finding], pooled: Sequence[Finding]) -> dict[str, Any]:
    """A `record.Secret`: about the strongest client or, where only they show more, about all
    clients together. "No sign" holds of all clients or of none."""
    about, over_all = ([f for f in rows if f.topic == topic] for rows in (findings, pooled))
    best = {f.client: f for f in best_of(about).values()}
    worst: Finding | None = strongest(about)
    together = strongest(over_all)
    if together is not None and together.level in (UNCLEAR, EXPOSED):
        worst = max(worst or together, together, key=lambda f: f.strength[0])
    doubts = {c: f.why for c, f in best.items() if f.level in (NOT_MEASURED, COMPARISON)}
    level = NOT_MEASURED if worst is None or worst.level == COMPARISON else worst.level
    return {
        **topic._asdict(),
        "level": NOT_MEASURED if level == NO_SIGN and doubts else level,
        "attack": worst.attack if worst else "",
        "client": worst.client if worst else None,
        "pooled": together.attack if together else "",
        "clients": len(best),
        "exposed": sum(f.level == EXPOSED for f in best.values()),
        "doubts": doubts,
    }


def _levelled(audit: Audit, decisions: tuple[Decision, Decision]) -> tuple[Finding, ...]:
    """Everything that was found, each with its level."""
    listening = audit.listening
    looks = sum(f.attack in listening for f in audit.everything)
    guessed = (f for f in audit.everything if f.attack not in listening)
    free = grouped(guessed, lambda f: (f.topic, f.client))
    first: list[Finding] = []
    for f in audit.everything:
        others = [g.value for g in free.get((f.topic, f.client), [])]
        guesses = [*([f.majority] if f.measure.share else others), f.imputation]
        reference = f.measure.best(g for g in guesses if g is not None)
        level, why = _level(f, reference, f.attack in listening, decisions, looks)
        first.append(f.model_copy(update={"reference": reference, "level": level, "why": why}))
    lacking, unfit = _lacking(audit, first), audit.unfit
    all_unfit = bool(unfit) and unfit >= {f.client for f in audit.findings}
    levelled: list[Finding] = []
    for f in first:
        strange = all_unfit if f.client is None else f.client in unfit
        why = UNFIT if strange and f.level in (NO_SIGN, UNCLEAR) else ""
        if f.level == NO_SIGN:
            why = lacking.get(_asked(f), why)
        doubt = {"level": NOT_MEASURED, "why": why}
        levelled.append(f.model_copy(update=doubt) if why else f)
    return tuple(levelled)


def _level(
    found: Finding,
    reference: float | None,
    listens: bool,
    decisions: tuple[Decision, Decision],
    looks: int,
) -> tuple[Level, str]:
    """What a finding shows by itself, and why it is no measurement where it is none."""
    if not listens:
        return COMPARISON, ""
    if found.flag:
        return NOT_MEASURED, f"{found.attack} flags its own answer: {found.flag}"
    if _passes(found, decisions[0]):
        return EXPOSED, ""
    if reference is None or found.p_value is None:
        return NOT_MEASURED, f"there is no guess to compare {found.attack} with"
    # close to the client's own model, but maybe not as close as counts for it
    sds = (reference - found.value) / max((found.high - found.value) / ndtri(0.975), TINY)
    nearer = found.measure.limit is not None and sds >= -ndtri(ERROR / looks)
    if _passes(found, decisions[1]) or nearer:
        return UNCLEAR, ""
    if found.overconfident:
        return NOT_MEASURED, f"{found.attack} does not fit: {found.overconfident}"
    return NO_SIGN, ""


def _passes(found: Finding, bars: Decision) -> bool:
    """Is this finding one of those that show exposure?"""
    bar = bars.get((found.topic, found.client))
    return bar is not None and found.p_value is not None and found.p_value <= bar


_Asked = tuple[str, str | None, str | None]


def _lacking(audit: Audit, levelled: Sequence[Finding]) -> dict[_Asked, str]:
    """Where one attack could not read a client, and why: what the others did not find there is left
    open, and what none found over all clients (None) too."""
    found = {_asked(f): f.why for f in levelled if f.why}
    questions = {info.name: info.question for info in audit.attacks if info.listens}
    for broken in audit.failed:
        if broken.attack in questions and not broken.doing:
            key = (questions[broken.attack], broken.attribute, broken.client)
            found.setdefault(key, f"{broken.attack} failed ({broken.error})")
    for client in sorted(audit.unfit):
        for f in audit.findings:
            found.setdefault((f.question, f.attribute, client), UNFIT)
    for (question, attribute, where), why in list(found.items()):
        at = "" if where is None else f"at {where} "
        found.setdefault((question, attribute, None), at + why)
    return found


def _asked(found: Finding) -> _Asked:
    return found.question, found.attribute, found.client


def decide(audit: Audit, error: float = ERROR) -> Decision:
    """What the audit's findings show together, if it may err with this probability: by topic and
    client (None: all together) the p-value below which an attack's test shows exposure; absent
    where nothing is exposed."""
    listening = audit.listening
    doubted: Counter[tuple[Topic, str]] = Counter()
    leaves: dict[Topic, dict[str | None, list[float]]] = {}
    for found in audit.findings:
        if found.attack not in listening or found.flag or found.client in audit.unfit:
            doubted[found.topic, found.attack] += 1
        elif found.p_value is not None:
            leaves.setdefault(found.topic, {}).setdefault(found.client, []).append(found.p_value)
    attacks: dict[Topic, list[float]] = {topic: [] for topic in leaves}
    for row in audit.pooled:
        topic, p = row.topic, row.p_value
        whole = row.attack in listening and doubted[topic, row.attack] <= row.flagged
        if whole and not row.flag and p is not None and topic in attacks:
            attacks[topic].append(p)
    level = dict.fromkeys(leaves, error / max(len(leaves), 1))
    bars: dict[tuple[Topic, str | None], float] = {}
    waiting = list(leaves)
    while True:
        found_one = next((t for t in waiting if _whole(leaves[t], attacks[t]) <= level[t]), None)
        if found_one is None:
            return bars
        waiting.remove(found_one)
        bars[found_one, None] = level[found_one] / max(len(attacks[found_one]), 1)
        rejected = _holm(leaves[found_one], level[found_one])
        bars |= {(found_one, client): bar for client, bar in rejected.items()}
        if len(rejected) == len(leaves[found_one]):
            for other in waiting:
                level[other] += level[found_one] / len(waiting)


def _whole(leaves: Mapping[str | None, list[float]], pooled: list[float]) -> float:
    """The test of a secret over all clients: of its pooled findings or, without any, of the
    clients one by one."""
    if pooled:
        return min(pooled) * len(pooled)
    return min(min(ps) * len(ps) for ps in leaves.values()) * len(leaves)


def _holm(leaves: Mapping[str | None, list[float]], level: float) -> dict[str | None, float]:
    """The clients rejected by Holm's method, each with the bar that one of its attacks passed."""
    rejected: dict[str | None, float] = {}
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
    probability ``reference``, the better of the client's commonest value and imputation (exact).
    Accuracy is blind to rare values: finding the only positive among 300 moves it by a third of a
    per cent. The second therefore asks the probabilities. ``evidence`` bits are by how much they
    beat the better of the client's own shares and of imputation, as log2 of a likelihood ratio.
    Where the records' values are independent draws of which the adversary observed nothing, such a
    ratio has an expectation of at most 1 (the client's shares are the likeliest ones, which only
    makes it smaller: universal inference, Wasserman, Ramdas and Balakrishnan 2020), so that it
    exceeds 1/p with probability at most p.
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


# ------------------------------------------------------------ intervals

RESAMPLES = 2000
FEW = 10


def share_interval(hits: Array, level: float = 0.95) -> tuple[float, float]:
    """Wilson interval of the mean of zeros and ones."""
    n, right, z = len(hits), int(hits.sum()), float(ndtri((1 + level) / 2))
    share = right / n
    width = 2 * (n + z**2)
    centre = (2 * n * share + z**2) / width
    reach = z / width * float(np.sqrt(4 * n * share * (1 - share) + z**2))
    return 0.0 if right == 0 else centre - reach, 1.0 if right == n else centre + reach


def mean_interval(
    values: Array, rng: np.random.Generator, level: float = 0.95
) -> tuple[float, float]:
    """Bootstrap-t interval of a mean: resampled means studentised by their own spread.

    It keeps its coverage on skewed scores, where the plain percentile interval is too short.
    With no spread at all it is a point. Below ten values resampling says too little, and it is
    Student's interval.
    """
    n, mean, spread = len(values), values.mean(), values.std(ddof=1) if len(values) > 1 else 0.0
    if spread == 0.0:
        return float(mean), float(mean)
    if n < FEW:
        reach = float(student_t.ppf((1 + level) / 2, n - 1) * spread / np.sqrt(n))
        return float(mean - reach), float(mean + reach)
    draws = values[rng.integers(0, n, (RESAMPLES, n))]
    spreads = draws.std(axis=1, ddof=1)
    usable = spreads > 0
    t = (draws.mean(axis=1)[usable] - mean) / spreads[usable]
    low, high = np.quantile(t, [(1 - level) / 2, (1 + level) / 2])
    return float(mean - high * spread), float(mean - low * spread)


def clustered_interval(
    clients: Sequence[Array], level: float = 0.95, share: bool = False
) -> tuple[float, float]:
    """Interval of the pooled mean, clustered by client: what clients like these would give.

    A client's mean is a common mean, plus what is its own, plus the noise of its records. The
    spread between clients, less what their records explain, is the variance of the middle part;
    Student's quantile on C - 1 degrees pays for having seen only C clients. It covers 93-97% from
    4 clients on, equal or unequal in size (a bootstrap over 4 clients covers 85%); more where the
    clients are alike, or two or three, who say little of others; and down to 90% where a few
    clients of very different sizes are nearly all alike but for a straggler.
    ``share``: the scores are zeros and ones; the interval is made on the scale of log-odds, where
    clients near 0 or 1 are not skewed, and is never shorter than that of the records alone.

    With one client this is the interval of its records, by Student or, for shares, Wilson.
    """
    records = np.concatenate(clients)
    facts = [(v.mean(), v.var(ddof=1) / len(v) if len(v) > 1 else 0.0, len(v)) for v in clients]
    _, reach = _random_effect(np.array(facts, dtype=np.float64), level)
    mean = float(records.mean())
    if not share:
        return mean - reach, mean + reach
    least, most = share_interval(records, level)
    if len(clients) == 1 or not 0 < mean < 1:
        return least, most
    low, high = expit(logit(mean) + np.array([-1, 1]) * reach / (mean * (1 - mean)))
    return float(min(low, least)), float(max(high, most))


def _random_effect(facts: Array, level: float) -> tuple[float, float]:
    """Of clients' values, the variances that their records explain and their sizes (C, 3): the mean
    by size, and how far its interval reaches."""
    values, inside, sizes = np.ascontiguousarray(facts.T)
    weights = sizes / sizes.sum()
    between, freedom = 0.0, int(sizes.sum()) - 1
    if len(values) > 1:
        between = max(float(values.var(ddof=1)) - float(inside.mean()), 0.0)
        freedom = len(values) - 1
    sd = float(np.sqrt(weights**2 @ (between + inside)))
    return float(weights @ values), float(student_t.ppf((1 + level) / 2, max(freedom, 1))) * sd


def mean_change(before: Array, after: Array, sizes: Array, level: float) -> tuple[float, ...]:
    """The mean over all records of how much more leaks after, with its interval, from what leaks
    of each client: (value, low, high), whose 95% intervals tell the variance (C, 3).

    Clustered as in `clustered_interval`. With one client there is no telling what is its own, and
    the interval is about its records alone.
    """
    sds = [(side[:, 2] - side[:, 1]) / (2 * ndtri(0.975)) for side in (before, after)]
    facts = np.column_stack([after[:, 0] - before[:, 0], np.square(sds).sum(axis=0), sizes])
    mean, reach = _random_effect(facts, level)
    return mean, mean - reach, mean + reach
