"""What stands on page one? Who is at risk, from whom, who knows what, how sure that is, what to do.

Everything else is the annex. Nothing is decided here: the answer is the policy's
(`overheard.evaluation.policy`), levels are the audit's.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from overheard.evaluation.policy import SAME_MESSAGES, USUAL, Decision, Known, known, unasked
from overheard.evaluation.record import Audit, Secret
from overheard.foreign.shown import command
from overheard.questions.question import grouped
from overheard.report import advice, words
from overheard.report.advice import Advice, Point
from overheard.transcript.threat import THREATS

ROWS, COLUMNS = 4, 3
"""Clients and secrets in the table of page one: those where most people are known."""


class Risk(NamedTuple):
    """A secret whose people are counted, by client (None: all of them)."""

    secret: Secret
    people: dict[str | None, Known]


class First:
    """What the templates show of page one."""

    def __init__(self, audit: Audit, measured: Sequence[Point] = ()) -> None:
        self.audit, self.measured = audit, measured
        self.policy, self.given = audit.policy or USUAL, audit.policy is not None
        alone = self.policy.model_copy(update={"listeners": ()})
        self.decision: Decision = alone.decide([audit])
        self.elsewhere = [words.actor(name) for name in self.policy.lacking([audit])]
        self.asked = [s for s in audit.secrets if not unasked(s)]
        risks = [Risk(s, people) for s in self.asked if (people := known(audit, s))]
        self.counted = sorted(risks, key=lambda r: -r.people[None].people)
        self.risks, self.hidden = self.counted[:COLUMNS], max(len(self.counted) - COLUMNS, 0)
        self.uncounted = [s for s in self.asked if s not in [r.secret for r in self.counted]]
        of = ((client, one.people) for r in self.risks for client, one in r.people.items())
        most = {c: max(n for _, n in each) for c, each in grouped(of, itemgetter(0)).items()}
        most.pop(None, None)
        self.clients = sorted(most, key=lambda c: -most[c])[:ROWS]
        self.more = len(most) - len(self.clients)
        self.over_all = [f for s in self.asked if (f := audit.over_all(s))]
        ran = {f.attack for f in audit.findings if f.client is not None}
        self.used = [i.name for i in audit.attacks if i.listens and i.name in ran]
        self.here, others = audit.run.threat, (t.name for t in THREATS.values() if not t.isolates)
        self.threats = words.unique([self.here, *others])
        self.alike = SAME_MESSAGES.get(self.here)

    def knowledge(self) -> str:
        """What the strongest attack had in its view, in a sentence."""
        best = next((f for s in self.asked if (f := self.audit.strongest(s)) and f.knew), None)
        if best is None:
            return ""
        phrases: dict[str, str] = words.WORDS["knows"]
        held = [phrases[kind] for kind in phrases if kind in best.knew]
        held += [kind for kind in best.knew if kind not in phrases]
        return f"The strongest attack ({best.attack}) was given {words.joined(held, len(held))}."

    def too_slow(self) -> bool:
        """Whether rungs were left out because they take minutes."""
        return any("--ladder" in one.reason for one in self.audit.skipped)

    def advice(self) -> list[Advice]:
        """What to do next: the cheapest change measured or the command that measures it."""
        if self.measured:
            return [advice.recommended(self.measured)]
        if self.decision.answer == "release":
            return [Advice("Nothing more is asked for", words.WORDS["release"], "")]
        found = [a for a in advice.ranked(self.audit) if a.command][:1]
        return [*found, Advice(**words.WORDS["measure"], command=self.command("sweep", "sweep"))]

    def command(self, verb: str, what: str, *more: str) -> str:
        """A command on this recording, with a name for what is made of it."""
        run = self.audit.run.recording
        return command(verb, run, *more, "--out", f"{run}-{what}")
