"""What a client's audit says of each secret, held against the limits that the client set.

Everything here is read from an `Audit` of the client's own messages: its findings, its decision,
its check that the recipe reproduces what was sent. What the audit calls exposed is too much; what
it could not measure is not known; the rest is held against three limits, because one number is not
enough. Bits a record are few where a value is rare, however well it is known: so the share of the
secret's entropy is limited too. Both are means, behind which a few records may be known for
certain: so these are counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from scipy.stats import norm

from overheard.errors import FixConfig
from overheard.evaluation.decision import COMPARISON, EXPOSED, NOT_MEASURED, strongest
from overheard.evaluation.policy import unasked
from overheard.evaluation.record import Audit, Calibration, Failed, Finding, Replay, Skipped
from overheard.questions.question import Topic
from overheard.transcript.kind import program_in
from overheard.transcript.store import Recording
from overheard.transcript.target import targets_in

Answer = Literal["ok", "not known", "too much"]


@dataclass(frozen=True)
class Limits:
    """How much of a secret may leak, and what counts as a hint that more does.

    ``bits`` learned a record; ``entropy``: the share of what there is to learn that may leak;
    ``certain``: the share of the records that listening may make certain (beyond 99%).

    Hints: an attack that beats guessing with a ``p_value`` below this, or by more than ``evidence``
    bits over all records. The audit calls neither exposed; with other randomness, or over many such
    clients together, it may. Of the client's own model: a copy up to ``near`` times as far off as
    counts as the model itself. ``wrong``: who is certain may be wrong this part as often as a
    guess; otherwise nothing was made certain.
    """

    bits: float = 0.1
    entropy: float = 0.1
    certain: float = 0.0
    p_value: float = 0.3
    evidence: float = 0.5
    near: float = 5.0
    wrong: float = 0.1

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value >= 0:
                raise FixConfig(f"the limit {name} = {value} must not be negative")


@dataclass(frozen=True)
class Exposure:
    """What the adversary would know of one secret: of each figure the most that any attack got.

    ``question`` and ``attribute``: the secret. ``value`` with its interval: accuracy, or the error
    of labels, or the excess loss of the client's own model, of the ``attack`` that got furthest;
    ``guess``: what guessing without listening gets. ``bits``: learned per record beyond the shares
    of the values (below 0: the adversary would be misled), ``share``: of the secret's entropy, or
    of the error of guessing, None where there is no such figure. ``certain``: records that it would
    call rightly beyond 99%, and that it could not call so well without listening. ``exposed``: why
    this is too much whatever the limits. ``doubt``: why what was measured proves no privacy.
    ``p_values``: of each attack, that it learned nothing; ``evidence``: bits over all records by
    which its probabilities beat guessing. ``seconds``: what its attacks took.
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
    seconds: float = 0.0

    @property
    def name(self) -> str:
        noun = {"attribute": "", "local_model": "own model"}.get(self.question, self.question)
        return f"{noun} ({self.attribute})" if noun and self.attribute else noun or self.attribute

    def beyond(self, limits: Limits) -> list[str]:
        """In words, every limit that is passed."""
        over = [self.exposed] if self.exposed else []
        if self.bits is not None and self.bits > limits.bits:
            over.append(f"{self.bits:.3f} bits a record (limit {limits.bits:g})")
        if self.share is not None and self.share > limits.entropy:
            over.append(f"{self.share:.1%} of what there is to learn (limit {limits.entropy:.1%})")
        if self.certain > limits.certain * self.records:
            many = f"{self.certain} of {self.records} records certain"
            over.append(f"{many} (limit {limits.certain:.1%})")
        return over

    def unknown(self, limits: Limits) -> str:
        """Why nobody can say that it is below the limits: a doubt, or the hint of a leak."""
        if self.doubt:
            return self.doubt
        p, attack = min(((p, a) for a, p in self.p_values.items()), default=(1.0, ""))
        if p < limits.p_value:
            return f"a hint of a leak, within the play of chance ({attack}, p {p:.2g})"
        bits, attack = max(((b, a) for a, b in self.evidence.items()), default=(0.0, ""))
        if bits > limits.evidence:
            gains = f"a hint of a leak: {attack} gains {bits:.1f} bits over all records"
            return f"{gains}, and what many clients tell adds up"
        return ""

    def answer(self, limits: Limits) -> Answer:
        if self.beyond(limits):
            return "too much"
        return "not known" if self.unknown(limits) else "ok"


def answer_of(result: Sequence[Exposure], limits: Limits) -> Answer:
    """That of the worst secret; of none it is not known."""
    answers = {e.answer(limits) for e in result}
    return "too much" if "too much" in answers else "ok" if answers == {"ok"} else "not known"


def worst_of(result: Sequence[Exposure], limits: Limits) -> Exposure:
    """The secret of which most leaks."""
    return max(result, key=lambda e: (bool(e.beyond(limits)), e.share or 0.0, e.certain))


def exposures(recording: Recording, audit: Audit, client: str, limits: Limits) -> list[Exposure]:
    """What an audit of one client's messages found, secret by secret.

    What no attack could read is not known. A question that nobody chose, because it is asked of
    every recording, is left out where not even a guess could be scored. What the model does not see
    is in no message.
    """
    program, records = program_in(recording), len(recording.truth()[client])
    assert program is not None  # without a recipe there is no audit
    unseen = {
        (t.question, t.column)
        for t in targets_in(recording.targets)
        if t.asked.removable and not program.encoding.inputs_of(t.columns)
    }
    doubts = [_why_unfit(replay) for replay in audit.replays if replay.outcome == "does not fit"]
    doubts += [f"{one.attack} failed" for one in audit.failed]
    result = []
    for secret in audit.secrets:
        topic, about = secret.topic, [f for f in audit.findings if f.topic == secret.topic]
        exposed = EXPOSED in (secret.level, *(f.level for f in about))
        if (topic.question, topic.attribute) in unseen:
            one = replace(_unread(audit, topic, records), bits=0.0, share=0.0, doubt="")
        elif any(f.level != COMPARISON for f in about):
            one = _exposure(about, exposed, limits)
        elif unasked(secret):
            continue
        else:
            one = _unread(audit, topic, records)
        result.append(replace(one, doubt="; ".join(filter(None, [*doubts, one.doubt]))))
    if not result:
        remedy = "set audit.attributes, audit.label or audit.membership"
        raise FixConfig(f"the audit of this config asks nothing that can be scored; {remedy}")
    return result


def _unread(audit: Audit, topic: Topic, records: int) -> Exposure:
    """Of a secret that no attack read, and why none did."""
    nan, asked = float("nan"), audit.questions
    unread: list[Skipped | Failed] = [*audit.skipped, *audit.failed]
    reasons = [one.reason for one in unread if (asked[one.attack], one.attribute) == topic[:2]]
    doubt = f"no attack could run: {'; '.join(dict.fromkeys(reasons)) or 'none fits'}"
    figures = (records, nan, nan, nan, None)
    return Exposure(topic.attribute or "", *figures, question=topic.question, doubt=doubt)


def worst_draw(draws: Sequence[Exposure]) -> Exposure:
    """What dry runs with different randomness found of one secret: of each figure the most; of the
    p-values one of a typical draw, that of the mean of their normal scores (not of all the evidence
    together, which is stronger the more draws there are); of the evidence the mean."""
    most = max(draws, key=lambda e: (bool(e.exposed), e.bits or 0.0, e.share or 0.0))
    attacks = dict.fromkeys(attack for e in draws for attack in (*e.p_values, *e.evidence))
    p_values = {a: [e.p_values[a] for e in draws if a in e.p_values] for a in attacks}
    scores = {a: norm.isf(np.clip(each, 1e-9, 0.999)) for a, each in p_values.items() if each}
    evidence = {a: [e.evidence[a] for e in draws if a in e.evidence] for a in attacks}
    return replace(
        most,
        certain=max(e.certain for e in draws),
        exposed=next((e.exposed for e in draws if e.exposed), ""),
        doubt=next((e.doubt for e in draws if e.doubt), ""),
        p_values={a: float(norm.sf(np.mean(each))) for a, each in scores.items()},
        evidence={a: sum(each) / len(draws) for a, each in evidence.items() if each},
        seconds=sum(e.seconds for e in draws),
    )


def _exposure(about: Sequence[Finding], exposed: bool, limits: Limits) -> Exposure:
    """Of one secret, by all attacks that listened, beside those that did not."""
    findings, free = (
        [f for f in about if (f.level == COMPARISON) is baseline] for baseline in (False, True)
    )
    metric, top = findings[0].measure, strongest(findings)
    best = max(findings, key=lambda f: (metric.sign * f.value, f.evidence or 0.0))
    guess = metric.best(g for g in (best.majority, best.reference) if g is not None)
    rated, before = ([f.calibration for f in of if f.calibration] for of in (findings, free))
    bits = share = None
    if rated:
        bits = max(s.bits for s in rated) - max([0.0, *(s.bits for s in before)])
        share = max(0.0, bits) / _entropy(best.majority or 1.0)
    known, already = (max([0, *(_certain(s, best, limits) for s in of)]) for of in (rated, before))
    why = "exposed, by the audit's own rule" if exposed else ""
    doubts = [f"{f.attack}: {f.flag}" for f in findings if f.flag]
    if not doubts and top is not None and top.level == NOT_MEASURED:
        doubts.append(top.why)
    if metric.limit is not None:
        worse = f"as good as the secret itself, {best.value:.2%} worse than it"
        if best.value <= metric.limit:
            why = why or worse
        elif best.value <= limits.near * metric.limit:
            doubts.append(f"nearly {worse}")
    elif not metric.share:
        share = None if not guess else max(0.0, 1 - best.value / guess)
    tested = [f for f in findings if not f.flag and metric.limit is None]
    figures = (best.n, best.value, best.low, best.high, guess, max(0, known - already), bits, share)
    return Exposure(
        best.attribute or "",
        *figures,
        question=best.question,
        attack=best.attack,
        exposed=why,
        doubt="; ".join(doubts),
        p_values={f.attack: _p_value(f, guess) for f in tested},
        evidence={f.attack: f.evidence for f in tested if f.evidence is not None},
        seconds=sum(f.seconds for f in findings),
    )


def _certain(rated: Calibration, audited: Finding, limits: Limits) -> int:
    """Records called rightly beyond 99%; none by an attack that is wrong nearly as often as naming
    the commonest value would be, or where everybody has that."""
    right, often = rated.certain_right, 1 - (audited.majority or 0.0)
    return right if often > 0 and rated.certain - right <= limits.wrong * often * right else 0


def _entropy(majority: float) -> float:
    """Bits a record that there are to learn at least, where the commonest value has this share: as
    many values as there is room for have it too. Of two values that is the entropy itself."""
    count = int(1 / majority + 1e-9)
    shares = np.array([*[majority] * count, max(0.0, 1 - count * majority)])
    shares = shares[shares > 0]
    return max(float(-(shares * np.log2(shares)).sum()), 1e-9)


def _p_value(finding: Finding, guess: float | None) -> float:
    """That an attack learned nothing; where the audit has no guess to test against, of the normal
    distribution around its score, and 0 where there is nothing to compare it with."""
    if finding.p_value is not None or guess is None:
        return finding.p_value or 0.0
    sd = max((finding.high - finding.value) / norm.ppf(0.975), 1e-300)
    return float(norm.sf(finding.measure.gain(finding.value, guess) / sd))


def _why_unfit(replay: Replay) -> str:
    off, how = replay.off or 0.0, "not how this config says that you train: replayed on your own"
    far = f"{off:.1%} of the update" if off < 10 else "more than ten times the update"
    expected = replay.by_chance or 0.0
    return f"{how} records, it is off by {far}, and chance explains {expected:.1%}"
