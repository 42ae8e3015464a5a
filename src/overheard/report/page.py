"""What is on the page? The record's fields, picked and put in order for the template."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from overheard.evaluation.judged import (
    EXPOSED,
    NOT_MEASURED,
    Judged,
    Level,
    best_of,
    judge,
    strongest,
)
from overheard.evaluation.record import Audit, Finding, Pooled, Skipped
from overheard.questions.question import Topic, grouped
from overheard.report import charts, sections, verdict, words

CHART_CLIENTS = 30
"""Up to this many clients a chart shows them all; beyond, the pooled row and the worst ones."""
CHART_WORST = 20
OPEN_CLIENTS = 12
"""Up to this many clients their tables are unfolded from the start."""


@dataclass(frozen=True)
class _Chart:
    """A question's chart, ready to be placed."""

    topic: Topic
    rows: tuple[tuple[charts.Row, Markup], ...]
    axis: Markup
    attacks: tuple[int, ...]
    hidden: int
    has_bound: bool


@dataclass(frozen=True)
class _Client:
    """A client's table."""

    number: int
    name: str
    rows: tuple[Judged, ...]
    worst: Judged | None


@dataclass(frozen=True)
class _SkippedGroup:
    """Attacks not run for the same reason."""

    attack: str
    reason: str
    attributes: str
    clients: tuple[str, ...]


class Page:
    """What the template asks for: the record's fields, picked and put in order."""

    def __init__(self, audit: Audit, most_rows: int, show_records: bool = False) -> None:
        self.audit = audit
        judgement = judge(audit)
        self.judged, self.pooled = judgement.findings, judgement.pooled
        self.topics = verdict.topics(audit)
        self.verdicts = verdict.verdicts(audit, judgement)
        self.guessed_orders = verdict.guessed_orders(audit)
        self.attacks = words.unique(
            [i.name for i in audit.attacks]
            + [f.attack for f in verdict.everything(audit)]
            + [s.attack for s in (*audit.skipped, *audit.failed)]
        )
        self.number = {name: i for i, name in enumerate(self.attacks)}
        self.look = self._looks()
        self.clients = words.unique([*audit.run.clients, *(f.client for f in audit.findings)])
        self.client_number = {name: i for i, name in enumerate(self.clients)}
        self.best = best_of(self.judged)
        self.bounds: dict[tuple[str | None, Topic], float] = {}
        for j in self.judged:
            if isinstance(j.finding, Finding) and j.finding.bound is not None:
                known_bound = self.bounds.get((j.client, j.topic), 0.0)
                self.bounds[j.client, j.topic] = max(j.finding.bound, known_bound)
        self.topic_number = {topic: i for i, topic in enumerate(self.topics)}
        whole = any(j.topic.together for j in self.judged)
        self.population = len(audit.run.clients) if whole else len(self.clients)
        self.audited = len({j.client for j in self.judged}) or len(self.clients)
        self.audited = self.population if whole else self.audited
        self.charts = [c for c in map(self._chart, self.topics) if c.rows]
        self.tables = self._tables(most_rows)
        self.listed = self._listed(most_rows)
        asked = sum(not j.topic.together for j in self.judged)
        self.rows_hidden = asked - sum(len(t.rows) for t in self.tables)
        self.open = len(self.tables) <= OPEN_CLIENTS
        self.failures = words.failures(audit)
        self.reasons = words.unique(f"{s.attack}: {s.reason}" for s in audit.skipped)
        groups = _grouped(audit.skipped)
        self.skipped, self.skipped_hidden = groups[:most_rows], len(groups[most_rows:])
        self.sure = sections.sure(
            audit, self.pooled, self.client_number, show_records, most_rows // 4
        )
        self.lifts = self._lifts(most_rows // 4)

    def key(self, attack: str) -> Markup:
        """The attack's marker."""
        return charts.key(self.look[attack])

    def measured(self) -> list[Topic]:
        """Questions asked of single clients with at least one finding."""
        asked = {j.topic for j in self.judged}
        return [t for t in self.topics if t in asked and not t.together]

    def properties(self) -> list[Judged]:
        """Findings about all clients together, the strongest attack first."""

        def order(j: Judged) -> tuple[int, bool, float]:
            leaks = j.topic.measure.sign * j.finding.value
            return self.topics.index(j.topic), j.baseline, -leaks

        return sorted((j for j in self.judged if j.topic.together), key=order)

    def count(self, topic: Topic, level: Level) -> int:
        """Clients whose worst finding on the topic has this level."""
        return sum(j.level is level for (_, t), j in self.best.items() if t == topic)

    def asked(self, topic: Topic) -> int:
        return sum(t == topic for _, t in self.best)

    def rounds(self, attack: str) -> str:
        """In how many rounds the attack heard a client: 53 to 64 of 120."""
        told = (f.details.get("rounds_heard") for f in self.audit.findings if f.attack == attack)
        heard = [int(number) for number in told if isinstance(number, int | float)]
        if not heard:
            return ""
        least, most = min(heard), max(heard)
        span = words.count(least) if least == most else f"{least:,} to {most:,}"
        return f"{span} of {words.count(self.audit.run.rounds)}"

    def pooled_about(self, topic: Topic) -> Judged | None:
        return strongest(j for j in self.pooled if j.topic == topic)

    def value(self, found: Finding | Pooled) -> str:
        return found.measure.text(found.value, found.low, found.high, 1)

    def lead(self) -> str:
        """The answer of the whole page in one sentence."""
        who = words.capital(words.actor(self.audit.run.threat))
        asked = [v for v in self.verdicts if v.level is not NOT_MEASURED]
        if not asked:
            return "Nothing was measured: no attack ran whose answer may be relied on."
        exposed = sum(v.level is EXPOSED for v in asked)
        clients = len({j.client for j in self.judged if j.level is EXPOSED})
        unmeasured = len(self.verdicts) - len(asked)
        rest = f"; {unmeasured:,} more could not be measured" if unmeasured else ""
        if not exposed:
            which = "the one secret" if len(asked) == 1 else f"any of the {len(asked):,} secrets"
            tried = f"asked about, with the attacks tried{rest}"
            return f"{who} was not shown to learn {which} {tried}."
        some = f"{exposed} of the" if exposed < len(asked) else "all"
        many = {1: "the one secret", 2: "both secrets" if exposed == 2 else "one of the 2 secrets"}
        secrets = many.get(len(asked), f"{some} {len(asked)} secrets")
        if all(v.topic.together for v in asked if v.level is EXPOSED):
            together = f"of {self.population:,} clients together"
            return f"{who} learns {secrets} asked about, {together}{rest}."
        if not clients:
            alone = f"none of {words.count(self.audited, 'client')} is exposed by itself"
            return f"{who} learns {secrets} asked about for all clients together; {alone}{rest}."
        return (
            f"{who} learns {secrets} asked about for at least one client; "
            f"{clients} of {words.count(self.audited, 'client')} "
            f"{'is' if clients == 1 else 'are'} exposed{rest}."
        )

    def _looks(self) -> dict[str, int]:
        """A look per attack, distinct among those on the same question; attacks before guesses."""
        asked = {f.attack: f.question for f in verdict.everything(self.audit)}
        asked |= self.audit.questions
        taken: dict[str, int] = {}
        looks = {}
        for name in sorted(self.attacks, key=lambda name: name not in self.audit.listening):
            question = asked.get(name, "")
            looks[name] = taken.get(question, 0)
            taken[question] = looks[name] + 1
        return looks

    def _listed(self, most: int) -> list[str]:
        """Clients of the overview: all in the record's order, or those where most was learned."""
        audit = self.audit
        known = {f.client for f in audit.findings}
        known |= {u.client for u in (*audit.skipped, *audit.failed)}
        if len(self.clients) <= most // 4:
            return [c for c in self.clients if c in known]
        strength = {c: _strength(group) for c, group in _by_client(self.judged).items()}
        return sorted(strength, key=lambda c: strength[c], reverse=True)[: most // 4]

    def _lifts(self, most: int) -> list[Judged]:
        """The strongest attack per client and secret that has a lift, the largest first."""
        lifts = [j for j in self.best.values() if j.finding.lift is not None]
        shares = [j for j in lifts if j.topic.measure.hits]
        return sorted(shares, key=lambda j: j.finding.lift or 0.0, reverse=True)[:most]

    def bound(self, judged: Judged) -> float | None:
        """What theory promises an attack on this client and secret, whichever attack that is."""
        return self.bounds.get((judged.client, judged.topic))

    def _tables(self, most: int) -> list[_Client]:
        tables, rows = [], 0
        by_client = _by_client(j for j in self.judged if not j.topic.together)
        order = [c for c in self.clients if c in by_client]
        if len(self.judged) > most:
            order.sort(key=lambda c: _strength(by_client[c]), reverse=True)
        for name in order:
            rows += len(by_client[name])
            if rows > most:
                break
            about = sorted(by_client[name], key=lambda j: self.topics.index(j.topic))
            worst = strongest(about)
            tables.append(_Client(self.client_number[name], name, tuple(about), worst))
        return tables

    def _chart(self, topic: Topic) -> _Chart:
        about = [j for j in self.judged if j.topic == topic]
        pooled = [j for j in self.pooled if j.topic == topic]
        by_client = _by_client(about)
        order = sorted(by_client, key=lambda c: _strength(by_client[c]), reverse=True)
        shown = order if len(order) <= CHART_CLIENTS else order[:CHART_WORST]
        shown = [] if topic.together and pooled else shown
        groups = ([pooled] if pooled else []) + [by_client[c] for c in shown]
        order_of = {j.finding.attack: j.strength for j in sorted(about, key=lambda j: j.strength)}
        order_of |= {j.finding.attack: j.strength for j in pooled}
        for group in groups:  # the strongest attack on top, in the same order in every row
            group.sort(key=lambda j: order_of[j.finding.attack], reverse=True)
        rows = [self._row(group, topic) for group in groups]
        scale = self._scale(topic) if rows else charts.share_scale([])
        drawn = tuple((row, charts.row_figure(row, scale)) for row in rows if row.lanes)
        lanes = [lane for row, _ in drawn for lane in row.lanes]
        return _Chart(
            topic=topic,
            rows=drawn,
            axis=charts.axis(scale),
            attacks=tuple(dict.fromkeys(lane.attack for lane in lanes)),
            hidden=0 if topic.together else len(order) - len(shown),
            has_bound=any((lane.bound or -1) >= scale.least for lane in lanes),
        )

    def _row(self, group: list[Judged], topic: Topic) -> charts.Row:
        # always guessing the commonest value is a reference line already, not a lane as well
        share = topic.measure.share
        lanes = [j for j in group if not share or not j.baseline] or group
        first = group[0].finding
        client = group[0].client
        pooled = "" if client is not None else "All clients together"
        return charts.Row(
            label=pooled or str(client),
            note=words.count(first.n, topic.unit),
            client=None if client is None else self.client_number[client],
            lanes=tuple(self._lane(j.finding) for j in lanes),
            majority=first.majority if share else None,
            imputation=first.imputation if share else None,
            limit=None if share else _limit(topic, first),
        )

    def _lane(self, found: Finding | Pooled) -> charts.Lane:
        text = found.measure.mark(found) + (", flagged" if found.flag else "")
        return charts.Lane(self.number[found.attack], self.look[found.attack], found, text)

    def _scale(self, topic: Topic) -> charts.Scale:
        """One axis for all charts of a metric, so that they can be compared."""
        # A bound may be far below; it must not squeeze what was measured.
        metric = topic.measure
        values: list[float] = [] if metric.limit is None else [metric.limit]
        for found in verdict.everything(self.audit):
            if found.measure is metric:
                values += [found.value, found.low, found.high]
                values += [v for v in (found.majority, found.imputation) if v is not None]
        return charts.share_scale(values) if metric.share else charts.loss_scale(values)


def _limit(topic: Topic, found: Finding | Pooled) -> float | None:
    """The dashed line: a model as good as the client's own, or a stranger's error."""
    limit = topic.measure.limit
    return found.imputation if limit is None else limit


def _by_client(judged: Iterable[Judged]) -> dict[str, list[Judged]]:
    return grouped(judged, lambda j: j.client or "")


def _strength(group: Iterable[Judged]) -> tuple[bool, int, float]:
    return max(j.strength for j in group)


def _grouped(skipped: Iterable[Skipped]) -> list[_SkippedGroup]:
    """Skipped attacks by attack and reason; clients and attributes of a group are listed once."""
    return [
        _SkippedGroup(
            attack,
            reason,
            words.joined(words.unique(s.attribute for s in group if s.attribute is not None)),
            tuple(words.unique(s.client for s in group)),
        )
        for (attack, reason), group in grouped(skipped, lambda s: (s.attack, s.reason)).items()
    ]
