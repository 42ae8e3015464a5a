"""The report as Markdown: for a pull request, a wiki, a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from overheard.evaluation.record import Audit, Finding, Pooled
from overheard.foreign.shown import visible
from overheard.report import advice, references, sections, verdict, words
from overheard.report.advice import Measured
from overheard.report.ladder import ladders
from overheard.report.replayed import replay_words

_BY_ITSELF = re.compile(
    r":(?=/)|(?<=mailto):|(?<=xmpp):|(?<=javascript):|(?<=www)\.|@", re.IGNORECASE
)
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&])")


def render_markdown(
    audit: Audit, measured: Sequence[Measured] = (), show_records: bool = False
) -> str:
    """The same six sections as the page, shorter. Names are escaped: a column called ``<script>``
    stays text."""
    run = audit.run
    who, many = _text(words.actor(run.threat)), words.count(len(run.clients), "client")
    lines = [f"# What {who} learns about {many}"]
    lines += ["", f"{_text(run.data)}, {words.count(run.rounds, 'round')}, seed {run.seed}.", ""]
    if run.damage:
        lines += ["## What is missing", "", f"**{words.damaged(run.damage)}**", ""]
        lines += [*(f"- {_text(line)}" for line in run.damage), ""]
    if audit.failed:
        lines += ["## What failed", "", f"**{words.failed(audit)}**", ""]
        lines += [*(f"- {_text(line)}" for line in words.failures(audit)), ""]
    lines += ["## Verdict", ""]
    answers = verdict.verdicts(audit)
    lines += [f"- **{v.level.sign} {v.level.name}**: {_sentence(v)}" for v in answers]
    if not answers:
        lines += ["Nothing was measured: no attack was run."]
    lines += [f"- {_text(note)}" for note in verdict.guessed_orders(audit)]
    lines += ["", _text(replay_words(audit))]
    rules = verdict.rules().items()
    lines += ["", *(f"> {level.sign} {level.name}: {rule}" for level, rule in rules), ""]
    lines += [*_ladders(audit), *_exposed(audit), *_sure(audit, show_records), *_learned(audit)]
    lines += [*_helps(audit, measured), *_method(audit)]
    return "\n".join(lines).rstrip() + "\n"


def _ladders(audit: Audit) -> list[str]:
    lines: list[str] = []
    for one in ladders(audit):
        rows = [
            (
                _text(f"{rung.rung}: {rung.words}"),
                "not measured" if rung.flag else words.interval(rung.value, rung.low, rung.high, 1),
                words.share(rung.stranger),
                words.count(rung.certain),
            )
            for rung in one.rungs
        ]
        heads = ["Adversary", "Guessed right", "Stranger", "Known beyond 99%"]
        lines += [f"**{_text(one.name)}**", "", *_table(heads, rows), ""]
    return ["## How much must one know?", "", *lines] if lines else []


def _exposed(audit: Audit) -> list[str]:
    best = verdict.best_of(verdict.judge(audit))
    order = sorted(best.values(), key=lambda j: j.strength, reverse=True)
    rows = [
        (
            _text(j.client or ""),
            _text(j.topic.name),
            words.points(j.finding.lift) if j.topic.measure.share else words.NOTHING,
            _value(j.finding),
            j.topic.measure.number(j.finding.majority),
            j.topic.measure.number(j.finding.imputation),
            _text(j.finding.attack),
            f"{j.level.sign} {j.level.name}",
        )
        for j in order
    ]
    if not rows:
        return []
    heads = "Client|Secret|Lift, points|Attack got|Commonest value|Stranger|Attack|Verdict"
    return ["## Who is exposed", "", *_table(heads.split("|"), rows), ""]


def _sure(audit: Audit, show_records: bool) -> list[str]:
    numbers = {name: i for i, name in enumerate({f.client: None for f in audit.findings})}
    found = sections.sure(audit, verdict.judge_pooled(audit), numbers, show_records, 10**6)
    lines: list[str] = []
    for one in found:
        lines += [
            f"**{_text(one.topic.name)}**, by {_text(one.pooled.attack)}: "
            f"{words.count(one.sure.certain)} of {words.count(one.n, 'record')} known "
            f"beyond 99% ({words.count(one.sure.certain_right)} of them right); "
            f"{words.bits(one.sure.bits)} bits leaked per record.",
            "",
        ]
        rows = [
            (label, words.count(b.n), words.interval(b.right, b.low, b.high))
            for label, b, _ in one.bars
        ]
        lines += [*_table(["Probability", "Records", "Right"], rows), ""]
        for c in one.clients if show_records else ():
            if c.rows:
                lines += [f"- {_text(c.name)}, rows known beyond 99%: {c.rows}"]
        lines += [""] if show_records else []
    return ["## How sure is the adversary", "", *lines] if lines else []


def _learned(audit: Audit) -> list[str]:
    run = audit.run
    lines = ["## How it was learned", ""]
    lines += [f"{_text(words.capital(words.actor(run.threat)))} {_text(run.threat_words)}", ""]
    lines += [f"It knows: {_text(', '.join(run.knows)) or 'nothing beyond the messages'}.", ""]
    for info in audit.attacks:
        equation = f" `{_code(info.equation)}`" if info.equation else ""
        source = references.title(info.paper)
        lines += [f"- **{_text(info.name)}** ({_text(source)}). {_text(info.words)}{equation}"]
    for one in sections.listened(audit):
        rows = [(words.count(h.rounds), sections.text(h)) for h, _ in one.line]
        lines += [
            "",
            f"{_text(one.topic.name)} of {_text(one.client)}, by {_text(one.attack)}:",
            "",
        ]
        lines += _table(["Rounds heard", "Learned"], rows)
    return [*lines, ""]


def _helps(audit: Audit, measured: Sequence[Measured]) -> list[str]:
    lines = ["## What would help", ""]
    for one in advice.frontiers(measured):
        rows = [
            (_text(p.name), words.points(p.leakage), words.scientific(p.utility),
             "yes" if p.best else "no") for p in one.points
        ]  # fmt: skip
        lines += [f"{_text(one.secret)}, measured by a sweep:", ""]
        heads = ["Setting", "Leakage, points", _text(one.utility_is), "On the frontier"]
        lines += [*_table(heads, rows), ""]
    if not measured:
        lines += ["Not measured. To try, in this order:", ""]
        for number, a in enumerate(advice.ranked(audit), 1):
            how = f" `{_code(a.command)}`" if a.command else ""
            lines += [f"{number}. **{a.name}.** {_text(a.why)}{how}"]
    return [*lines, ""]


def _method(audit: Audit) -> list[str]:
    run = audit.run
    software = ", ".join(f"{name} {version}" for name, version in sorted(run.software.items()))
    lines = ["## Method", "", f"- Data: {_text(run.data)}. {_text(run.origin)}"]
    lines += [f"- Seed {run.seed}; {_text(software)}."]
    lines += ["- Intervals are 95% confidence intervals; over all clients clustered by client."]
    reasons = words.unique(f"{s.attack}: {s.reason}" for s in audit.skipped)
    lines += [f"- Skipped {_text(reason)}" for reason in reasons]
    lines += [f"- {_text(note)}" for note in audit.notes]
    lines += [
        "- Passing is not a proof of privacy: these attacks, with this knowledge, learned this"
    ]
    lines[-1] += " much."
    return [*lines, "", "```bibtex", references.bibtex(audit), "```"]


def _sentence(answer: verdict.Verdict) -> str:
    safe = {k: _text(v) for k, v in answer.names.items()}
    return answer.pattern.format(**{k: f"**{v}**" if k == "secret" else v for k, v in safe.items()})


def _text(words_: str) -> str:
    """Everything that Markdown or HTML would read as markup is escaped, lines are joined, and what
    would be made a link or a mention of somebody by itself is not."""
    escaped = _SPECIAL.sub(r"\\\1", visible(" ".join(words_.split())))
    return _BY_ITSELF.sub(r"\\\g<0>", escaped)


def _code(words_: str) -> str:
    """The same between backquotes."""
    return visible(" ".join(words_.replace("`", "").split()))


def _value(found: Finding | Pooled) -> str:
    metric = found.measure
    return metric.prefix + metric.text(found.value, found.low, found.high, 1)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]
