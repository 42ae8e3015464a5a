"""How much of a secret may leak, and what was measured of one.

One number is not enough. Bits a record are few where a value is rare, however well it is known: so
the share of the secret's entropy is limited too. Both are means, behind which a few records may be
known for certain: so these are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from overheard.errors import FixConfig
from overheard.evaluation.record import Finding
from overheard.questions.question import question_named

SURE = 0.99
FEWER = 0.1
"""What listening made certain: it leaves at most this part of the doubt that there was before."""
MISLED = -0.05
"""Bits a record that a decoder may lose against the shares that it was given; one that loses more
was sure and wrong."""
HINT = 0.3
"""A p-value from which on a finding is no hint of a leak: half a standard deviation."""
EVIDENCE = 0.5
"""Bits over all records up to which probabilities that beat guessing are no hint of a leak."""
WRONG = "the decoder was sure and wrong"
Answer = Literal["ok", "not known", "too much"]
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Limits:
    """``bits`` learned a record; ``entropy``: the share of what there is to learn that may leak;
    ``certain``: the share of the records that listening may make certain (beyond 99%)."""

    bits: float = 0.1
    entropy: float = 0.1
    certain: float = 0.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value >= 0:
                raise FixConfig(f"the limit {name} = {value} must not be negative")


USUAL = Limits()


@dataclass(frozen=True)
class Exposure:
    """What the listener would know of one secret: of each figure the most that any attack got.

    ``question`` and ``attribute``: the secret. ``value`` with its interval: accuracy, or the error
    of labels, or the excess loss of the client's own model, of the ``attack`` that got furthest;
    ``guess``: what guessing without listening gets. ``bits``: learned per record beyond the shares
    of the values (below 0: the listener would be misled), ``share``: of the secret's entropy, or of
    the error of guessing, None where there is no such figure. ``certain``: records that it would
    call rightly beyond 99%, and that it could not call so well without listening. ``exposed``: why
    this is too much whatever the limits. ``doubt``: why what was measured proves no privacy.
    ``p_values``: of each attack, that it told nothing; ``evidence``: bits over all records by which
    its probabilities beat guessing.
    """

    attribute: str
    records: int
    value: float
    low: float
    high: float
    guess: float | None
    certain: int = 0
    bits: float | None = None
    share: float | None = None
    question: str = "attribute"
    attack: str = ""
    exposed: str = ""
    doubt: str = ""
    p_values: Mapping[str, float] = field(default_factory=dict)
    evidence: Mapping[str, float] = field(default_factory=dict)

    @property
    def hint(self) -> str:
        """In words, that an attack did a little better than guessing. With other mini-batches,
        noise or models the audit may well call that exposed, and over many clients it surely will.
        """
        if self.exposed:
            return ""
        low = min(self.p_values, key=lambda a: self.p_values[a], default="")
        if low and self.p_values[low] < HINT:
            return (
                f"a hint of a leak, within the play of chance ({low}, p {self.p_values[low]:.2g})"
            )
        loud = max(self.evidence, key=lambda a: self.evidence[a], default="")
        if loud and self.evidence[loud] > EVIDENCE:
            return (
                f"a hint of a leak: {loud} gains {self.evidence[loud]:.1f} bits over all records, "
                "and what many clients tell adds up"
            )
        return ""

    @property
    def name(self) -> str:
        noun = question_named(self.question).noun
        return f"{noun} ({self.attribute})" if noun and self.attribute else noun or self.attribute

    @property
    def target(self) -> str:
        asked = self.attribute if question_named(self.question).column != "no" else ""
        return f"{self.question}.{asked}" if asked else self.question

    def beyond(self, limits: Limits) -> list[str]:
        """In words, every limit that is passed."""
        found = [self.exposed] if self.exposed else []
        if self.bits is not None and self.bits > limits.bits:
            found.append(f"{self.bits:.3f} bits a record (limit {limits.bits:g})")
        if self.share is not None and self.share > limits.entropy:
            found.append(f"{self.share:.1%} of what there is to learn (limit {limits.entropy:.1%})")
        if self.certain > limits.certain * self.records:
            found.append(
                f"{self.certain} of {self.records} records certain (limit {limits.certain:.1%})"
            )
        return found

    def answer(self, limits: Limits) -> Answer:
        if self.beyond(limits):
            return "too much"
        return "not known" if self.doubt or self.hint else "ok"

    def severity(self, limits: Limits) -> float:
        """The largest figure in units of its limit: orders secrets, the one that leaks most last.

        A limit of nothing is taken as a thousandth.
        """
        parts = [0.0, float(bool(self.exposed))]
        parts.append(self.certain / max(self.records, 1) / max(limits.certain, 1e-3))
        for value, limit in ((self.bits, limits.bits), (self.share, limits.entropy)):
            parts.append(0.0 if value is None else value / max(limit, 1e-3))
        return max(parts)


def found_by(found: Finding, **more: Any) -> Exposure:
    """The exposure that a finding shows; ``more``: its other fields."""
    shared = {name: getattr(found, name) for name in ("value", "low", "high", "question", "attack")}
    return Exposure(attribute=found.attribute or "", records=found.n, **shared, **more)


def combined(p_values: Sequence[float]) -> float:
    """One p-value of several draws of the same thing: of the mean of their normal scores.

    Not the evidence of all of them together, which would be stronger the more there are.
    """
    scores = norm.isf(np.clip(p_values, 1e-9, 1 - 1e-3))
    return float(norm.sf(scores.mean()))


def worse(draws: Sequence[Exposure]) -> Exposure:
    """What several draws found of one secret: of each figure the most, and of the p-values one."""
    most = max(draws, key=lambda e: (bool(e.exposed), e.bits or 0.0, e.share or 0.0))
    attacks = dict.fromkeys(a for e in draws for a in e.p_values)
    gains = dict.fromkeys(a for e in draws for a in e.evidence)
    return replace(
        most,
        certain=max(e.certain for e in draws),
        exposed=next((e.exposed for e in draws if e.exposed), ""),
        doubt=next((e.doubt for e in draws if e.doubt), ""),
        p_values={a: combined([e.p_values[a] for e in draws if a in e.p_values]) for a in attacks},
        evidence={a: float(np.mean([e.evidence.get(a, 0.0) for e in draws])) for a in gains},
    )


def made_certain(confidence: Array, hits: Array, bits: Array) -> int:
    """Records called rightly beyond 99% whose doubt shrank to a tenth of what it was.

    ``bits``: gained on each record over the share of its value. Where 997 of 1000 have the same
    value, calling everybody so beyond 99% takes no listening. An attack that is wrong more than a
    tenth as often as the shares would be makes nothing certain, whatever it says of itself.
    """
    sure = confidence > SURE
    share = confidence / np.exp2(bits)  # of the value, where it was rightly chosen
    right = sure & (hits > 0) & (share < 1)
    wrong = int((sure & (hits == 0)).sum())
    if wrong > FEWER * float((1 - share[right]).sum()):
        return 0
    return int(((1 - confidence[right]) <= FEWER * (1 - share[right]) + 1e-12).sum())


def shares_of(which: NDArray[np.int64], values: int) -> Array:
    return np.bincount(which, minlength=values) / len(which)


def share_of(bits: float, shares: Array) -> float:
    """The share of the secret's entropy that these bits a record are."""
    entropy = entropy_of(shares)
    return max(0.0, bits / entropy) if entropy else 0.0


def entropy_of(shares: Array, told: Array | None = None) -> float:
    """Bits a record that there are to learn by who knows the shares; or who was ``told`` others.

    A share that is told as zero is taken as one in a million.
    """
    there = shares > 0
    known = shares if told is None else np.maximum(told, 1e-6)
    return float(-(shares[there] * np.log2(known[there])).sum())
