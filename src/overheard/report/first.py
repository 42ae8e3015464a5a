"""What stands on page one? Who is at risk, from whom, who knows what, how sure that is, what to do.

Everything else is the annex. Nothing is decided here: the answer is the policy's
(`overheard.evaluation.policy`), levels are the audit's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from overheard.evaluation.policy import SAME_MESSAGES, USUAL, Decision, Known, known, unasked
from overheard.evaluation.record import Audit, Finding, Secret
from overheard.foreign.shown import command
from overheard.questions.question import grouped
from overheard.report import advice, verdict, words
from overheard.report.advice import Advice, Point
from overheard.transcript.threat import THREATS

ROWS, COLUMNS = 4, 3
"""Clients and secrets in the table of page one: those where most people are known."""


@dataclass(frozen=True)
class Risk:
    """A secret whose people are counted: of all clients, and of those named."""

    secret: Secret
    whole: Known
    clients: dict[str, Known]


@dataclass(frozen=True)
class Listener:
    """A threat model, and what it was tested with."""

    who: str
    tested: str
    command: str = ""


class First:
    """What the templates show of page one."""

    def __init__(self, audit: Audit, measured: Sequence[Point] = ()) -> None:
        self.audit, self.measured = audit, measured
        self.policy, self.given = audit.policy or USUAL, audit.policy is not None
        alone = self.policy.model_copy(update={"listeners": ()})
        self.decision: Decision = alone.decide([audit])
        self.elsewhere = [words.actor(name) for name in self.policy.lacking([audit])]
        self.asked = [s for s in audit.secrets if not unasked(s)]
        self.counted = sorted(self._counted(), key=lambda r: -r.whole.people)
        self.risks, self.hidden = self.counted[:COLUMNS], max(len(self.counted) - COLUMNS, 0)
        self.uncounted = [s for s in self.asked if s not in [r.secret for r in self.counted]]
        most: dict[str, int] = {}
        for risk in self.risks:
            for client, one in risk.clients.items():
                most[client] = max(most.get(client, 0), one.people)
        self.clients = sorted(most, key=lambda c: -most[c])[:ROWS]
        self.more = len(most) - len(self.clients)

    def _counted(self) -> Iterator[Risk]:
        for secret in self.asked:
            people = known(self.audit, secret)
            if people:
                by_client = {str(c): one for c, one in people.items() if c is not None}
                yield Risk(secret, people[None], by_client)

    def listeners(self) -> list[Listener]:
        """Every threat model there is: what this audit tested it with, or how to test it."""
        found = []
        listening = [i.name for i in self.audit.attacks if i.listens]
        ran = {f.attack for f in self.audit.findings if f.client is not None}
        used = [name for name in listening if name in ran]
        how = f"tested with {words.count(len(used), 'attack')}: {words.joined(used, 4)}"
        how = how if used else "asked, but no attack could run"
        here = self.audit.run.threat
        for name in dict.fromkeys([here, *THREATS]):
            who = words.capital(words.actor(name))
            if name == here:
                found.append(Listener(who, how))
            elif SAME_MESSAGES.get(name) == here:
                found.append(Listener(who, "holds the same messages of each client: as above"))
            elif not THREATS[name].isolates:
                how = self.command("audit", name, "--threat", name)
                found.append(Listener(who, "not tested here", how))
        return [*found, Listener("A holder of the final model alone", "no attack here tests it")]

    def knowledge(self) -> str:
        """What the strongest attack had in its view, in a sentence."""
        best = next((f for s in self.asked if (f := self.audit.strongest(s)) and f.knew), None)
        if best is None:
            return ""
        phrases: dict[str, str] = words.WORDS["knows"]
        held = [phrases[kind] for kind in phrases if kind in best.knew]
        held += [kind for kind in best.knew if kind not in phrases]
        return f"The strongest attack ({best.attack}) was given {words.joined(held, len(held))}."

    def rungs(self) -> list[tuple[str, Finding]]:
        """What adversaries learn who know less: the secret, and the rung's finding."""
        of = grouped((r for r in self.audit.ladder if r.client is None), lambda r: r.attribute)
        for secret in self.asked:
            if line := of.get(secret.attribute):
                return [(words.secret(secret.topic), rung) for rung in line]
        return []

    def too_slow(self) -> bool:
        """Whether rungs were left out because they take minutes."""
        return any("--ladder" in one.reason for one in self.audit.skipped)

    def sure(self) -> list[str]:
        """How far the figures above may be relied on."""
        best = [f for s in self.asked if (f := self.audit.over_all(s)) and f.calibration]
        claims = sum(f.calibration.certain for f in best if f.calibration)
        right = sum(f.calibration.certain_right for f in best if f.calibration)
        lines = []
        if claims:
            share = words.percent(right / claims, 1)
            lines.append(f"Of {claims:,} values that attacks claim beyond 99%, {share} are right.")
        flagged = sum(f.flagged for s in self.asked if (f := self.audit.over_all(s)))
        if flagged:
            lines.append(f"{words.count(flagged, 'answer')} that flag themselves are left out.")
        lines.append(
            "“Exposed” is corrected for multiple testing over all clients, secrets and attacks "
            "(family-wise error at most 5%)."
        )
        return [*lines, verdict.replay_words(self.audit)]

    def advice(self) -> list[Advice]:
        """What to do next: the cheapest change measured or the command that measures it."""
        if self.measured:
            return [advice.recommended(self.measured)]
        if self.decision.answer == "release":
            return [Advice("Nothing more is asked for", words.WORDS["release"], "")]
        found = [a for a in advice.ranked(self.audit) if a.command][:1]
        measure = words.WORDS["measure"]
        return [*found, Advice(measure["name"], measure["why"], self.command("sweep", "sweep"))]

    def command(self, verb: str, what: str, *more: str) -> str:
        """A command on this recording, with a name for what is made of it."""
        run = self.audit.run.recording
        return command(verb, run, *more, "--out", f"{run}-{what}")
