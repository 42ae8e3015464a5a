"""From a guess and the truth to a finding, and from the clients' findings to one over all of them.

What does not depend on the attack (the optimum, the baselines) is computed once per client and
target, when its scorer is made. Each question's own scorer stands in its file in `questions`.

How sure the adversary is, and whether it is right to be, is counted from its posteriors: a guess is
sorted by the probability that the attack gives to the value it chose. In each bin the share that is
right belongs beside that probability: an attack whose two numbers agree may be taken at its word.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainSerializer, PlainValidator

from overheard.errors import FixData
from overheard.evaluation.baselines import Imputer
from overheard.evaluation.decision import (
    clustered_interval,
    mean_interval,
    pooled_evidence,
    share_interval,
    share_p_value,
    smaller_p_value,
)
from overheard.evaluation.record import Bin, Calibration, Finding
from overheard.programs.program import Terms
from overheard.programs.records import Records
from overheard.questions.question import Question, Topic, grouped, question_named
from overheard.randomness import stream
from overheard.transcript.knowledge import Messages, Sums
from overheard.transcript.store import Recording
from overheard.transcript.target import Target, joined
from overheard.transcript.view import Attack, View

Array = NDArray[np.float64]
ByClient = Mapping[str | None, Array]
ALL_CLIENTS = "all clients"
"""The client of a finding about all of them together."""
EDGES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)
"""Narrow where it matters: what is known for certain is the last bin."""
BEYOND = 0.99
OVERCONFIDENT = 0.05
"""Claims beyond what is right by more than this mislead whoever relies on them."""


Scores = Annotated[
    Array,
    PlainValidator(lambda text: np.frombuffer(bytes.fromhex(text)).copy()),
    PlainSerializer(lambda array: array.tobytes().hex()),
]
"""One number a record; written down and read back bit for bit where an audit is kept."""


@dataclass(frozen=True)
class Posterior:
    """Per record: probability of the chosen value, whether it is right, bits over the client's own
    shares and, where there is one, over imputation (``beyond``)."""

    confidence: Scores
    hits: Scores
    bits: Scores
    beyond: Scores | None = None

    @property
    def evidence(self) -> float:
        """Bits over the better guess without listening, over all records."""
        return float(min(gains.sum() for gains in self._gains))

    @property
    def known(self) -> int:
        """Records whose value is rightly given more than 99%, and by no guess without listening:
        a guess gives the true value as much less as the attack gained bits."""
        right = (self.confidence > BEYOND) & (self.hits > 0)
        for gain in self._gains:
            right &= self.confidence * np.exp2(np.minimum(-gain, 1.0)) <= BEYOND
        return int(right.sum())

    @property
    def _gains(self) -> list[Array]:
        return [self.bits] if self.beyond is None else [self.bits, self.beyond]


def overconfident(found: Posterior) -> str:
    """In words, by how much an attack is surer than right; empty where that may be random.

    More than 5 points, and beyond three standard errors of what it claims or of what it got.
    """
    claimed, right = float(found.confidence.mean()), float(found.hits.mean())
    n = len(found.hits)
    promised = float((found.confidence * (1 - found.confidence)).sum()) / n**2
    error = np.sqrt(max(promised, right * (1 - right) / n))
    if claimed - right <= OVERCONFIDENT or claimed - right <= 3 * error:
        return ""
    return f"{claimed:.0%} sure on average, and right for {right:.0%}"


def calibration(found: Posterior, bins: bool = False) -> Calibration:
    """What goes into the audit's record."""
    known = found.confidence > BEYOND
    return Calibration(
        bits=float(found.bits.mean()),
        certain=int(known.sum()),
        certain_right=int(found.hits[known].sum()),
        known=found.known,
        bins=_bins(found) if bins else (),
    )


def _bins(found: Posterior) -> tuple[Bin, ...]:
    # a coin flip is in the bin that begins at one half; 99% itself is not beyond 99%
    inner = np.array([np.nextafter(e, 1.0) if e == BEYOND else e for e in EDGES[1:-1]])
    place = np.searchsorted(inner, found.confidence, side="right")
    counted = []
    for which, (least, most) in enumerate(pairwise(EDGES)):
        here = place == which
        if not here.any():
            continue
        low, high = share_interval(found.hits[here])
        counted.append(
            Bin(
                least=least,
                most=most,
                n=int(here.sum()),
                confidence=float(found.confidence[here].mean()),
                right=float(found.hits[here].mean()),
                low=low,
                high=high,
            )
        )
    return tuple(counted)


# ---------------------------------------- one client


@dataclass(frozen=True)
class Scored:
    """A finding and the scores behind it, one per unit (kept to pool over clients)."""

    finding: Finding
    units: Scores
    imputed: Scores | None
    posterior: Posterior | None = None


Scorer = Callable[[Attack, Any, float], Scored]


@dataclass(frozen=True)
class Case:
    """One client (or all of them) under one target: what every finding about it shares.

    ``truth``: the clients' records. ``answers``: what ``truth/`` says beside them, by client, where
    the question needs it. ``imputer``: the imputation baselines.
    """

    recipe: Terms
    truth: Mapping[str, Records]
    target: Target
    view: View
    seed: int
    answers: Mapping[str, Records] | None = None
    imputer: Imputer = field(default_factory=Imputer)

    def scorer(self) -> Scorer:
        """What scores guesses about it."""
        if not self.question.together and self.view.client not in self.truth:
            raise FixData(
                f"truth/ has no records of client {self.view.client!r}, so nothing is scored"
            )
        scorer: Scorer = self.question.score(self)
        return scorer

    @property
    def question(self) -> Question:
        return question_named(self.target.question)

    @property
    def records(self) -> Records:
        """The client's, with the secret as one column."""
        return joined(self.truth[self.view.client], self.target)

    def finding(self, attack: Attack, seconds: float, **scores: Any) -> Finding:
        had = attack.needs | getattr(attack, "uses", frozenset())
        shared = {
            "attack": attack.name,
            "paper": attack.paper,
            "question": self.target.question,
            "threat": self.view.threat,
            "client": self.view.client or ALL_CLIENTS,
            "attribute": self.target.column or None,
            "metric": self.question.metric.name,
            "seconds": seconds,
            "seed": self.seed,
            "knew": tuple(sorted(kind.name for kind in had & self.view.kinds)),
        }
        if "n" not in scores:
            shared["n"] = len(self.records)
        details = finite(scores.get("details", {}))
        for kind in attack.needs & {Messages, Sums}:
            details["rounds_observed"] = len(self.view.know(kind))
        return Finding(**(shared | scores | {"details": details}))

    def scored(
        self,
        attack: Attack,
        seconds: float,
        units: Array,
        details: Mapping[str, float | int | str],
        imputed: Array | None = None,
        claimed: Posterior | None = None,
        **more: Any,
    ) -> Scored:
        """The mean of what is scored, beside what needs no listening: ``majority``, and the same
        units of imputation, where there are any. ``claimed``: what the attack claims to know.

        What an answer that flags itself says of single records is not worth repeating, nor is what
        the truth contradicts.
        """
        metric, plain = self.question.metric, finite(details)
        if claimed is not None and "flag" not in plain and (gap := overconfident(claimed)):
            plain["overconfident"] = gap
        if "flag" in plain or "overconfident" in plain:
            claimed = None
        more |= self.mean_of(units, attack)
        more["imputation"] = None if imputed is None else float(imputed.mean())
        guesses = (more.get("majority") if metric.share else None, more["imputation"])
        reference = metric.best(guess for guess in guesses if guess is not None)
        if reference is not None:
            more["lift"] = metric.gain(more["value"], reference)
        if claimed is not None:
            more |= {"calibration": calibration(claimed), "evidence": claimed.evidence}
        if metric.hits and "flag" not in plain:
            # who claims something pays for two tests, also where the truth contradicts the claim
            tested = 0.0 if "overconfident" in plain else more.get("evidence")
            more["p_value"] = share_p_value(int(units.sum()), len(units), reference, tested)
        found = self.finding(attack, seconds, **more, details=plain)
        return Scored(found, units, imputed, claimed)

    def mean_of(self, units: Array, attack: Attack) -> dict[str, float]:
        rng = stream(self.seed, "interval", attack.name, self.view.client)
        hits, value = self.question.metric.hits, float(units.mean())
        low, high = share_interval(units) if hits else mean_interval(units, rng)
        low = max(low, 0.0)  # neither an error nor an excess over an optimum is negative
        return {"value": value, "low": min(low, value), "high": max(high, value)}


def answers_in(recording: Recording, target: Target) -> Mapping[str, Records] | None:
    """What ``truth/`` says of a target beside the clients' records; None if nothing."""
    kind = question_named(target.question).truth
    held = bool(kind) and recording.holds_truth(kind, target.key)
    return recording.truth(kind, target.key) if held else None


def finite(details: Mapping[str, float | int | str]) -> dict[str, float | int | str]:
    """Details as plain JSON values; NaN and infinity are left out."""
    plain: dict[str, float | int | str] = {}
    for key, value in details.items():
        if isinstance(value, str):
            plain[key] = value
        elif np.isfinite(value):
            plain[key] = int(value) if isinstance(value, int | np.integer) else float(value)
    return plain


# ---------------------------------------- all clients


def pooled(
    scored: Sequence[Scored], listening: frozenset[str]
) -> tuple[tuple[Finding, ...], tuple[Finding, ...]]:
    """The findings with their p-values, and every attack over all clients together.

    ``listening``: names of what listened; the others are what it is compared with.
    """
    groups = grouped(scored, lambda s: (s.finding.topic, s.finding.attack))
    free: dict[Topic, list[ByClient]] = {}
    for (topic, attack), of in groups.items():
        if attack not in listening:
            free.setdefault(topic, []).append({s.finding.client: s.units for s in of})
    findings = []
    for s in scored:
        found = s.finding
        if not found.measure.share and not found.flag:
            p = _p_value([s], free.get(found.topic, []))
            found = found.model_copy(update={"p_value": p})
        findings.append(found)
    over_all = [over_clients(of, free.get(topic, [])) for (topic, _), of in groups.items()]
    return tuple(findings), tuple(over_all)


def _imputed(members: Sequence[Scored]) -> Array | None:
    """What imputation scores of all of them; None if it is missing of one."""
    known = [m.imputed for m in members if m.imputed is not None]
    return np.concatenate(known) if len(known) == len(members) else None


def _p_value(members: Sequence[Scored], free: Sequence[ByClient]) -> float | None:
    """That losses or errors leak no more than the limit, imputation, and everybody who does not
    listen and answered of the same clients; None if there is nothing to compare with."""
    units, imputed = np.concatenate([m.units for m in members]), _imputed(members)
    metric, clients = members[0].finding.measure, [m.finding.client for m in members]
    known = [own for own in free if set(clients) <= set(own)]
    against: list[Array | float] = [np.concatenate([own[c] for c in clients]) for own in known]
    against += [] if imputed is None else [imputed]
    against += [] if metric.limit is None else [metric.limit]
    turned = -metric.sign
    return max((smaller_p_value(turned * units, turned * than) for than in against), default=None)


def over_clients(everybody: Sequence[Scored], free: Sequence[ByClient] = ()) -> Finding:
    """One attack over the clients whose answers it does not flag, the interval clustered by client.

    ``free``: of everybody who does not listen, the scores by client.
    """
    members = [m for m in everybody if not m.finding.flag] or everybody
    first, metric = members[0].finding, members[0].finding.measure
    made: dict[str, Any] = {"client": None, "details": {"flag": first.flag} if first.flag else {}}
    made["flagged"] = sum(bool(m.finding.flag) for m in everybody)
    if first.topic.together:  # there is nothing to pool
        return first.model_copy(
            update=made | {"clients": first.n, "details": first.details, "suspects": ()}
        )
    units = np.concatenate([m.units for m in members])
    value = float(units.mean())
    low, high = clustered_interval([m.units for m in members], share=metric.hits)
    posteriors = [m.posterior for m in members if m.posterior is not None]
    kinds = ["confidence", "hits", "bits"] if posteriors else []
    kinds += ["beyond"] if posteriors and all(p.beyond is not None for p in posteriors) else []
    joined = (np.concatenate([getattr(p, kind) for p in posteriors]) for kind in kinds)
    by_imputation = _imputed(members)
    contradicted = [m.finding.overconfident for m in members if m.finding.overconfident]
    if contradicted:
        made["details"] |= {"overconfident": contradicted[0]}
    made |= {
        "value": value,
        "low": min(max(low, 0.0), value),
        "high": max(high, value),
        "clients": len(members),
        "n": len(units),
        "imputation": None if by_imputation is None else float(by_imputation.mean()),
        "calibration": calibration(Posterior(*joined), True) if posteriors else None,
        "seconds": sum(m.finding.seconds for m in members),
        "p_value": None,
    }
    if metric.share:
        sizes = np.array([m.finding.n for m in members])
        majority = float(np.average([m.finding.majority or 0.0 for m in members], weights=sizes))
        made |= {"majority": majority, "lift": value - max(majority, made["imputation"] or 0.0)}
        gains = [m.finding.evidence for m in members]
        whole = [gain for gain in gains if gain is not None]
        made["evidence"] = sum(whole) if len(whole) == len(gains) else None
        # of many probabilities the binomial of their mean has the longest tail (Hoeffding 1956)
        shares = [max(m.finding.majority or 0.0, m.finding.imputation or 0.0) for m in members]
        share = float(np.average(shares, weights=sizes))
        bits = pooled_evidence(gains) if whole or contradicted else None
        if metric.hits:
            made["p_value"] = share_p_value(int(units.sum()), len(units), share, bits)
    else:
        made["lift"] = None if by_imputation is None else metric.gain(value, made["imputation"])
        made["p_value"] = _p_value(members, free)
    return first.model_copy(update=made)
