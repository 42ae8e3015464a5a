"""What is on the page? The audit's fields, picked and put in order for the templates.

Page one (`First`) says who is at risk, from whom, who knows what, how sure that is and what to do;
everything else (`Page`) is the annex. Nothing is decided here: levels and strongest findings are
the audit's own, the answer on page one is the policy's (`overheard.evaluation.policy`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import NamedTuple

from overheard.evaluation.decision import COMPARISON, best_of, strongest
from overheard.evaluation.policy import SAME_MESSAGES, USUAL, Decision, Known, known, unasked
from overheard.evaluation.record import Audit, Failed, Finding, Secret, Skipped
from overheard.foreign.shown import command
from overheard.questions.question import Topic, by_question, grouped
from overheard.report import advice, svg, verdict, words
from overheard.report.advice import Advice, Point
from overheard.transcript.threat import THREATS

CHART_CLIENTS = 30
"""Up to this many clients a chart shows them all; beyond, the pooled row and the worst ones."""
CHART_WORST = 20
OUTCOMES = ("does not fit", "cannot be checked", "fits")
"""Of replays, the first first."""
OPEN_CLIENTS = 12
"""Up to this many clients their tables are unfolded from the start."""


class Page:
    """What the templates ask for; tables of at most so many rows."""

    def __init__(self, audit: Audit, most_rows: int) -> None:
        self.audit = audit
        self.replays = sorted(audit.replays, key=lambda r: OUTCOMES.index(r.outcome))[:most_rows]
        self.guessed_orders = verdict.guessed_orders(audit)
        self.topics = [secret.topic for secret in audit.secrets]
        self.topic_number = {topic: i for i, topic in enumerate(self.topics)}
        unanswered: tuple[Skipped | Failed, ...] = (*audit.skipped, *audit.failed)
        named = [f.attack for f in audit.everything]
        named += [one.attack for one in unanswered]
        self.attacks = words.unique([*(info.name for info in audit.attacks), *named])
        self.number = {name: i for i, name in enumerate(self.attacks)}
        # a look an attack, distinct among those on the same question; attacks before guesses
        infos = sorted(audit.attacks, key=lambda info: not info.listens)
        looks = [enumerate(of) for of in by_question(infos).values()]
        self.look = {info.name: look for of in looks for look, info in of}
        self.clients = words.unique([*audit.run.clients, *(str(f.client) for f in audit.findings)])
        self.client_number = {name: i for i, name in enumerate(self.clients)}
        self.best = best_of(audit.findings)
        self.alone = [f for f in audit.findings if not f.topic.together]
        self.together = sorted(
            (f for f in audit.findings if f.topic.together),
            key=lambda f: (self.topic_number[f.topic], f.level == COMPARISON, -f.value),
        )
        self.population = len(audit.run.clients) if self.together else len(self.clients)
        self.audited = len({f.client for f in audit.findings}) or len(self.clients)
        self.audited = self.population if self.together else self.audited
        self.charts = [self._chart(topic) for topic in self.topics if not topic.skipped]
        self.tables = self._tables(most_rows)
        self.rows_hidden = len(self.alone) - sum(len(of) for of in self.tables.values())
        self.open = len(self.tables) <= OPEN_CLIENTS
        known = {f.client for f in audit.findings} | {one.client for one in unanswered}
        self.listed = [c for c in self.clients if c in known]
        if len(self.clients) > most_rows // 4:  # then those where most was learned
            self.listed = _by_strength(audit.findings)[: most_rows // 4]
        self.failures = verdict.failures(audit)
        self.reasons = words.unique(f"{s.attack}: {s.reason}" for s in audit.skipped)
        skipped = grouped(audit.skipped, lambda s: (s.attack, s.reason))
        self.skipped = list(skipped.values())[:most_rows]
        self.skipped_hidden = len(skipped) - len(self.skipped)
        self.calibrated = [c for t in self.topics if (c := self._calibrated(t))]
        self.calibrated_most = most_rows // 4
        lifts = [f for f in self.best.values() if f.lift is not None and f.measure.hits]
        self.lifts = sorted(lifts, key=lambda f: -(f.lift or 0.0))[: most_rows // 4]

    @property
    def measured(self) -> list[Topic]:
        """Questions asked of single clients with at least one finding."""
        return [topic for topic in self.topics if topic in {f.topic for f in self.alone}]

    def _tables(self, most: int) -> dict[str, list[Finding]]:
        """Clients with their findings; where not all fit, those of whom most was learned."""
        tables: dict[str, list[Finding]] = {}
        by_client, rows = grouped(self.alone, lambda f: f.client), 0
        order = [c for c in self.clients if c in by_client]
        for name in order if len(self.audit.findings) <= most else _by_strength(self.alone):
            rows += len(by_client[name])
            if rows > most:
                break
            tables[name] = sorted(by_client[name], key=lambda f: self.topic_number[f.topic])
        return tables

    def _chart(self, topic: Topic) -> svg.Chart:
        about = [f for f in self.audit.findings if f.topic == topic]
        pooled = [f for f in self.audit.pooled if f.topic == topic]
        order, by_client = _by_strength(about), grouped(about, lambda f: f.client)
        shown = order if len(order) <= CHART_CLIENTS else order[:CHART_WORST]
        shown = [] if topic.together and pooled else shown
        groups: list[list[Finding]] = [[*pooled]] if pooled else []
        groups += [[*by_client[c]] for c in shown]
        place = {f.attack: f.strength for f in [*sorted(about, key=lambda f: f.strength), *pooled]}
        for group in groups:  # the strongest attack on top, in the same order in every row
            group.sort(key=lambda f: place[f.attack], reverse=True)
        hidden = 0 if topic.together else len(order) - len(shown)
        rows = [self._row(group, topic) for group in groups]
        return svg.Chart(rows, self._scale(topic), topic, hidden)

    def _row(self, group: Sequence[Finding], topic: Topic) -> svg.Row:
        first, metric = group[0], topic.measure
        # always guessing the commonest value is a reference line already, not a lane as well
        lanes = [f for f in group if not metric.share or f.level != COMPARISON] or group
        note, client = words.count(first.n, words.unit(topic)), first.client
        if first.client is None and not topic.together:
            note += f" of {words.together(first)}"
        whole = "Clients together" if any(map(words.some, lanes)) else "All clients together"
        return svg.Row(
            label=whole if client is None else client,
            note=note,
            client=None if client is None else self.client_number[client],
            lanes=tuple(
                svg.Lane(self.number[f.attack], self.look.get(f.attack, 0), f, words.mark(f))
                for f in lanes
            ),
            majority=first.majority if metric.share else None,
            imputation=first.imputation if metric.share else None,
            # the dashed line: a model as good as the client's own, or the error of imputation
            limit=None if metric.share else metric.limit or first.imputation,
        )

    def _scale(self, topic: Topic) -> svg.Scale:
        """One axis for all charts of a metric, so that they can be compared."""
        # A bound may be far below; it must not squeeze what was measured.
        metric = topic.measure
        values: list[float] = [] if metric.limit is None else [metric.limit]
        for found in self.audit.everything:
            if found.metric == topic.metric:
                guesses = (found.majority if metric.share else None, found.imputation)
                values += [found.value, found.low, found.high]
                values += [g for g in guesses if g is not None]
        return svg.share_scale(values) if metric.share else svg.loss_scale(values)

    def _calibrated(self, topic: Topic) -> tuple[Finding, list[Finding]] | None:
        """Whose finding says how sure the strongest attack is, over all clients of which its
        probabilities hold; and the same of each, the surest first."""
        about = [f for f in self.audit.pooled if f.topic == topic and f.reliable and f.calibration]
        best = strongest(about)
        if best is None or best.calibration is None:
            return None
        asked = [f for f in self.audit.findings if (f.attack, f.topic) == (best.attack, topic)]
        certain = {f.client: f.calibration.certain / max(f.n, 1) for f in asked if f.calibration}
        clients = [f for f in asked if f.client in certain and not f.flag]
        return best, sorted(clients, key=lambda f: -certain[f.client])


def _by_strength(findings: Iterable[Finding]) -> list[str]:
    """The clients, the one of whom most was learned first."""
    by_client = grouped(findings, lambda f: str(f.client))
    best = {client: max(f.strength for f in of) for client, of in by_client.items()}
    return sorted(best, key=lambda c: best[c], reverse=True)


def curves(audit: Audit) -> list[list[Finding]]:
    """The secrets for which the record has more than one number of rounds: what the strongest
    attack learned from ever more."""
    lines = grouped(audit.curves, lambda f: f.key).values()
    return [sorted(line, key=lambda f: f.rounds) for line in lines if len(line) > 1]


def ladders(audit: Audit) -> dict[str | None, tuple[list[Finding], list[Finding]]]:
    """The knowledge ladder of every attribute: of all clients together, and client by client."""
    by_attribute = grouped(audit.ladder, lambda one: one.attribute).items()
    return {
        name: ([r for r in line if not r.client], [r for r in line if r.client])
        for name, line in by_attribute
    }


def ladder_chart(rungs: Sequence[Finding]) -> svg.Chart:
    """What is learned with less and less knowledge, a row a rung."""
    rows = []
    for rung in rungs:
        text = words.interval(rung.value, rung.low, rung.high, 1)
        lane = svg.Lane(0, 0, rung, "not measured" if rung.flag else text)
        about = words.rung(rung.rung) + words.some(rung)
        rows.append(svg.Row(rung.rung, about, None, (lane,), rung.majority, rung.imputation))
    return svg.Chart(rows, svg.share_scale([value for row in rows for value in row.values]))


# ------------------------------------------------------------------------------- page one

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
