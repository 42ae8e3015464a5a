"""The audit, let loose on one client's rehearsal: what it found of each secret, against limits."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from overheard.evaluation.audit import audit
from overheard.evaluation.decision import decide
from overheard.evaluation.record import Audit, Finding
from overheard.evaluation.resume import Kept
from overheard.evaluation.scoring import Scored
from overheard.federation.plan import Plan
from overheard.federation.pool import known_count
from overheard.guard.limits import (
    MISLED,
    WRONG,
    Exposure,
    entropy_of,
    found_by,
    made_certain,
    share_of,
    shares_of,
)
from overheard.guard.rehearsal import Messages, record_client
from overheard.questions.question import SKIPPED, Topic, question_named
from overheard.transcript.store import Recording
from overheard.transcript.target import Target
from overheard.transcript.threat import EAVESDROPPER

Array = NDArray[np.float64]
NEAR = 5
"""Up to so many times what counts as the secret itself, a copy of the client's own model may be as
good as it in a federation whose other clients differ more than those of the rehearsal."""


def measured(
    ready: Plan,
    client: str,
    messages: Messages,
    attacks: Sequence[str] = (),
    targets: Sequence[str] = (),
) -> tuple[tuple[Exposure, ...], float]:
    """What the audit of this client alone finds, and the typical size of an update's coordinate.

    Empty selections: all that the audit of this config would ask and try.
    """
    with tempfile.TemporaryDirectory(prefix="overheard-") as name:
        folder = Path(name)
        typical = record_client(ready, client, messages, folder / "run")
        pieces = folder / "pieces"
        pieces.mkdir()
        kept = Kept(pieces)
        recording = Recording.open(folder / "run")
        found = audit(recording, EAVESDROPPER, attacks, (), targets, kept=kept)
        asked = [Target.parse(key) for key in recording.targets]
        return tuple(_exposures(ready, client, found, asked, kept)), typical


def _exposures(
    ready: Plan, client: str, found: Audit, asked: Sequence[Target], kept: Kept
) -> Iterable[Exposure]:
    decision = decide(found)
    for topic in _topics(found):
        about = [f for f in found.findings if f.topic == topic]
        heard = [f for f in about if f.attack in found.listening]
        if not heard or _unseen(ready, topic):
            yield from _unheard(ready, client, found, topic)
            continue
        free = [f.value for f in about if f.attack not in found.listening]
        scores = [_scored(kept, f, asked) for f in heard]
        exposed = topic in decision.topics or (topic, client) in decision.clients
        yield _exposure(ready, client, exposed, heard, free, scores)


def _topics(found: Audit) -> list[Topic]:
    """What was asked, whether or not anything could run."""
    heard = [f.topic for f in found.findings if f.attack in found.listening]
    known = {(t.question, t.attribute) for t in heard}
    skipped = [
        Topic(found.questions[s.attack], s.attribute, SKIPPED)
        for s in found.skipped
        if s.attack in found.listening
    ]
    missing = [t for t in skipped if (t.question, t.attribute) not in known]
    return list(dict.fromkeys([*heard, *missing]))


def _unheard(ready: Plan, client: str, found: Audit, topic: Topic) -> Iterable[Exposure]:
    """No attack could run: what leaks is not known. But an own model that is not unique is scored
    in no audit, and an attribute that the model does not see is in no update."""
    records, asked = ready.clients[client], topic.asked
    if asked is not None and asked.refuses(ready.recipe, records):
        return
    secret, questions = (topic.question, topic.attribute), found.questions
    reasons = [s.reason for s in found.skipped if (questions[s.attack], s.attribute) == secret]
    doubt = f"no attack could run: {'; '.join(dict.fromkeys(reasons)) or 'none fits'}"
    column, value = topic.attribute or "", float("nan")
    bits = None
    if _unseen(ready, topic):
        value = float(shares_of(*_own(ready, client, column)).max())
        bits, doubt = 0.0, ""
    told: dict[str, Any] = {"bits": bits, "share": bits, "doubt": doubt}
    yield Exposure(column, len(records), value, value, value, None, question=topic.question, **told)


def _unseen(ready: Plan, topic: Topic) -> bool:
    if topic.asked is None or not topic.asked.removable:
        return False
    return not ready.recipe.encoding.inputs_of_all(ready.attributes[topic.attribute or ""].columns)


def _own(ready: Plan, client: str, column: str) -> tuple[NDArray[np.int64], int]:
    """Which of its values each record has that the audit asks of; and how many values there are."""
    domain, records = ready.attributes[column], ready.clients[client]
    known = known_count(len(records), ready.config.audit.coverage)
    return domain.positions(records)[:known], len(domain.values)


def _scored(kept: Kept, finding: Finding, asked: Sequence[Target]) -> Scored | None:
    for target in asked:
        scored = kept.outcome(target.key, finding.client, finding.attack)
        if isinstance(scored, Scored) and scored.finding.attribute == finding.attribute:
            return scored
    return None


def _exposure(
    ready: Plan,
    client: str,
    exposed: bool,
    heard: Sequence[Finding],
    free: Sequence[float],
    scores: Sequence[Scored | None],
) -> Exposure:
    best = max(heard, key=lambda f: (f.measure.sign * f.value, f.evidence or 0.0))
    guess = _guess(ready, client, best, free)
    posteriors = [s.posterior for s in scores if s is not None and s.posterior is not None]
    bits = max((float(p.listened.mean()) for p in posteriors), default=None)
    certain = max((made_certain(p.confidence, p.hits, p.listened) for p in posteriors), default=0)
    doubts = [f"{f.attack}: {f.flag}" for f in heard if f.flag]
    told = "exposed, by the audit's own rule" if exposed else ""
    metric = best.measure
    if metric.limit is not None:
        if best.value <= metric.limit and not told:
            told = f"{metric.reached}, {best.value:.2%} worse than it"
        elif best.value <= NEAR * metric.limit:
            doubts.append(f"nearly {metric.reached}")
    if bits is not None and bits < _prior_bits(ready, client, best) + MISLED:
        doubts.append(WRONG)
    return found_by(
        best,
        guess=guess,
        certain=certain,
        bits=bits,
        share=_share(ready, client, best, bits, guess),
        exposed=told,
        doubt="; ".join(doubts),
        p_values=_chances(heard, guess),
        evidence={f.attack: f.evidence for f in heard if f.evidence is not None},
    )


def _chances(heard: Sequence[Finding], guess: float | None) -> dict[str, float]:
    """Of each attack that it told nothing; of the client's own model there is a stricter rule.

    What the audit does not test (an answer that flags itself, errors of labels without a guess to
    compare with): against the guess, which for labels is the client's own median.
    """
    found = {}
    for finding in heard:
        p = finding.p_value
        if p is None and guess is not None:
            sd = max((finding.high - finding.value) / norm.ppf(0.975), 1e-300)
            p = float(norm.sf(finding.measure.gain(finding.value, guess) / sd))
        if finding.measure.limit is None:
            found[finding.attack] = 0.0 if p is None else p
    return found


def _guess(ready: Plan, client: str, finding: Finding, free: Sequence[float]) -> float | None:
    asked, metric = question_named(finding.question), finding.measure
    alone = asked.alone(ready.recipe, ready.clients[client], finding.attribute)
    there = [finding.majority, finding.imputation, alone, *([] if metric.share else free)]
    return metric.best(g for g in there if g is not None)


def _share(
    ready: Plan, client: str, finding: Finding, bits: float | None, guess: float | None
) -> float | None:
    if finding.measure.relative:
        return None if not guess else max(0.0, 1 - finding.value / guess)
    return None if bits is None else share_of(bits, _shares(ready, client, finding))


def _shares(ready: Plan, client: str, finding: Finding) -> Array:
    chances = question_named(finding.question).chances(finding)
    return shares_of(*_own(ready, client, finding.attribute or "")) if chances is None else chances


def _prior_bits(ready: Plan, client: str, finding: Finding) -> float:
    """What who knows the pooled shares alone gains over who knows the client's own: not above 0."""
    if question_named(finding.question).chances(finding) is not None:
        return 0.0
    shares = _shares(ready, client, finding)
    domain = ready.attributes[finding.attribute or ""]
    pooled = shares_of(domain.positions(ready.dataset.records), len(domain.values))
    return entropy_of(shares) - entropy_of(shares, pooled)
