"""May the updates be sent? What audits found, held against what somebody allows.

A policy is the table ``[policy]`` of a TOML file. Its answer is one of three:

- *release*: every threat model asked for was audited, every secret was measured, none is exposed
  or unclear, and every limit is kept;
- *refuse*: a limit is passed, or something that the policy asks for was not measured, which counts
  as not allowed;
- *refer*: somebody has to decide, because the audit says "unclear", or "exposed" within the limits.

What an audit calls exposed is never released. The levels are those of `evaluation.decision`, which
are corrected for multiple testing; a policy tests nothing by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, field_validator

from overheard.errors import FixConfig
from overheard.evaluation.decision import (
    EXPOSED,
    NO_SIGN,
    NOT_MEASURED,
    UNCLEAR,
    best_of,
    clustered_interval,
)
from overheard.federation.reading import checked
from overheard.foreign.files import read_toml
from overheard.programs.records import Spec
from overheard.transcript.threat import threat_named

if TYPE_CHECKING:
    from overheard.evaluation.record import Audit, Secret

Answer = Literal["release", "refer", "refuse"]
ANSWERS: tuple[Answer, ...] = ("release", "refer", "refuse")
"""From what may be sent to what may not."""
SAME_MESSAGES = {"eavesdropper": "server", "server": "eavesdropper"}
"""Of a threat model, another one that holds the same messages of each client."""


class Policy(Spec):
    """What an audit may find for the updates to be sent."""

    people_known: int = Field(default=0, ge=0)
    """How many people's values may be known beyond 99% because of the updates, of any one secret.
    Example: `people_known = 0`"""
    lift: float = Field(default=0.05, ge=0, le=1)
    """By how much an attack may be right more often than the better baseline, as a share of the
    records of all clients. Example: `lift = 0.05`"""
    epsilon: float | None = Field(default=None, ge=0)
    """The most epsilon that differential privacy may promise to the values of a record, over the
    whole recording; left out, none is asked for. Example: `epsilon = 8.0`"""
    listeners: tuple[str, ...] = ()
    """The threat models that must have been audited; left out, the one that was. Example:
    `listeners = ["eavesdropper", "secure-server"]`"""

    @field_validator("listeners")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            threat_named(name)
        return names

    @property
    def words(self) -> str:
        """What it allows, in a sentence."""
        people = "nobody" if not self.people_known else f"at most {self.people_known:,} people"
        allowed = f"{people} known beyond 99%, a lift of at most {100 * self.lift:g} points"
        if self.epsilon is not None:
            allowed += f", epsilon at most {self.epsilon:g} for a record's values"
        return allowed

    def decide(self, audits: Sequence[Audit]) -> Decision:
        """The answer to audits of one recording under different threat models, with its reasons."""
        found: list[tuple[Answer, str]] = []
        for name in self.lacking(audits):
            found.append(("refuse", f"{name}: not audited, which counts as not allowed"))
        for audit in audits:
            found += self._of(audit)
        found.sort(key=lambda one: -ANSWERS.index(one[0]))
        worst: Answer = found[0][0] if found else "release"
        return Decision(worst, tuple(dict.fromkeys(reason for _, reason in found)))

    def lacking(self, audits: Iterable[Audit]) -> list[str]:
        """The threat models that it asks for and that no audit is about."""
        seen = {audit.run.threat for audit in audits}
        seen |= {SAME_MESSAGES[name] for name in seen if name in SAME_MESSAGES}
        return [name for name in self.listeners if name not in seen]

    def _of(self, audit: Audit) -> Iterable[tuple[Answer, str]]:
        if self.epsilon is not None:
            promised = audit.promise.changed if audit.promise is not None else None
            if promised is None:
                yield "refuse", "epsilon: no differential privacy is promised to a record's values"
            elif promised > self.epsilon:
                passed = f"epsilon {promised:.3g} for a record's values"
                yield "refuse", f"{passed}, above the {self.epsilon:g} allowed"
        asked = [s for s in audit.secrets if not unasked(s)]
        if not asked:
            yield "refuse", "nothing was measured, which counts as not allowed"
        for secret in asked:
            name = secret.attribute or secret.question.replace("_", " ")
            yield from ((answer, f"{name}: {why}") for answer, why in self._about(audit, secret))

    def _about(self, audit: Audit, secret: Secret) -> Iterable[tuple[Answer, str]]:
        """What is not allowed of a secret."""
        over_all, people = audit.over_all(secret), known(audit, secret).get(None)
        lift = over_all.lift if over_all is not None and over_all.measure.hits else None
        passed = []
        more = f"lift of {100 * (lift or 0.0):.1f} points, above the {100 * self.lift:g} allowed"
        if people is not None and people.people > self.people_known:
            many = f"{people.people:,} of {people.records:,} people known beyond 99%"
            passed.append(f"{many}, above the {self.people_known:,} allowed")
        high = lift is not None and lift > self.lift
        if high and secret.level in (EXPOSED, UNCLEAR):
            passed.append(more)
        if secret.level == NOT_MEASURED:
            yield "refuse", "not measured, which counts as not allowed"
        elif passed or (secret.level == EXPOSED and lift is None):
            yield "refuse", "; ".join(passed) or "exposed"
        elif secret.level != NO_SIGN:
            yield "refer", f"{secret.level}, within the limits: somebody has to decide"
        elif high:
            yield "refer", f"{more}, which may be chance: audit more records"


USUAL = Policy()
"""Where nobody gave one."""


@dataclass(frozen=True)
class Decision:
    """The answer to a policy's question, and a line a reason."""

    answer: Answer
    reasons: tuple[str, ...]


@dataclass(frozen=True)
class Known:
    """Whose value the updates gave away: so many ``people`` of so many ``records``, with the 95%
    interval of that share."""

    people: int
    records: int
    low: float
    high: float


def unasked(secret: Secret) -> bool:
    """Whether nobody chose this question, which every recording is asked, and nothing answers it
    here: no attack applies."""
    topic = secret.topic
    return topic.skipped and topic.asked is not None and bool(topic.asked.keys(()))


def known(audit: Audit, secret: Secret) -> dict[str | None, Known]:
    """By client (None: all of them), whose value is known beyond 99% because of the updates.

    Of each client by the attack that learned most there. Left out are clients where no attack says
    how certain it is, or none may be relied on. Nobody is known where the audit gives no sign: what
    happens to be right then was right by chance or by a guess.
    """
    about = (f for f in audit.findings if f.topic == secret.topic and f.reliable)
    best = [f for f in best_of(about).values() if f.calibration and f.level != NOT_MEASURED]
    if not best or secret.level == NOT_MEASURED:
        return {}
    shown = secret.level in (EXPOSED, UNCLEAR)
    people = [f.calibration.known if shown and f.calibration else 0 for f in best]
    scores = [(np.arange(f.n) < k).astype(np.float64) for f, k in zip(best, people, strict=True)]
    found: dict[str | None, Known] = {None: _share(scores)}
    return found | {f.client: _share([one]) for f, one in zip(best, scores, strict=True)}


def _share(scores: Sequence[NDArray[np.float64]]) -> Known:
    people, records = (int(sum(part)) for part in (map(np.sum, scores), map(len, scores)))
    return Known(people, records, *clustered_interval(scores, share=True))


def read_policy(path: str | Path) -> Policy:
    """The ``[policy]`` of a TOML file, which may have other tables."""
    content = read_toml(path)
    if "policy" not in content:
        raise FixConfig(f"{path}: has no table [policy]; one may say people_known = 0")
    return checked(Policy, content["policy"], str(path), "policy.")
