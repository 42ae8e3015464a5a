"""``overheard audit``, its short form ``detect`` and ``demo``: inference attacks on recordings."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from importlib import resources
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Exit, Option

import overheard
from overheard import terminal
from overheard.cli.describe import described
from overheard.cli.options import THREATS, Describing, Grant, Out, Run, Seed, TrustCode, Workers
from overheard.cli.recording import record
from overheard.errors import ChooseAnotherAttack, FixRecording
from overheard.files import refuse_existing, replace_durably, write_durably
from overheard.foreign.shown import command

if TYPE_CHECKING:
    from overheard.evaluation.policy import Policy
    from overheard.evaluation.record import Finding

PAGE = "report.html"
"""The report, beside the audit that it shows."""
ATTACK_FAILED = 3
"""The command's exit code when everything was written and an attack had ended in an error."""
DECIDED = {"release": 0, "refuse": 4, "refer": 5}
"""The exit code that a policy ends in."""
DEMO = {
    "linear": "exact_linear last_returned global_model majority model_based_linear max_entropy",
    "network": "majority model_based_global model_based_last_returned max_entropy",
}
"""The demo's federations and the attacks it runs on each: those that take seconds."""


def audit(
    run: Run,
    out: Annotated[Path, Option(help="Where to write; an unfinished audit there goes on.")],
    threat: Annotated[
        str, Option(help=THREATS, show_default="those of the policy, or eavesdropper")
    ] = "",
    attack: Annotated[
        list[str], Option(help="Attack to run (repeat); default: all that apply.")
    ] = [],
    client: Annotated[list[str], Option(help="Client to attack (repeat); default: all.")] = [],
    target: Annotated[list[str], Option(help="Secret to ask about (repeat); default: all.")] = [],
    grant: Grant = [],
    slow: Annotated[bool, Option("--slow", help="Run slow searches as well.")] = False,
    rounds: Annotated[bool, Option(help="Ask also what the first rounds alone reveal.")] = True,
    ladder: Annotated[
        bool | None,
        Option(
            help="Ask also what adversaries with less knowledge learn (knowledge ladder), or not.",
            show_default="two rungs, one client, where that takes seconds",
        ),
    ] = None,
    demographics: Annotated[
        list[str], Option(help="Public column of registers (repeat), for --ladder.")
    ] = [],
    policy: Annotated[
        Path | None, Option(help="TOML file with a [policy]: ends in release, refuse or refer.")
    ] = None,
    workers: Workers = "",
    description: Describing = None,
    trust_code: TrustCode = False,
    seed: Seed = None,
) -> None:
    """Run inference attacks on a recording under a threat model, score them, write the report.

    OUT/report.html opens offline; `overheard report` makes others. The same command continues
    an audit that was stopped, with the same result. Exits 3 where an attack failed: the others are
    written, and the report lists which one and how. With --policy it exits 0 (release), 4 (refuse)
    or 5 (refer: somebody has to decide); several threat models are audited in turn, each into a
    folder of its own in OUT.
    """
    from overheard.evaluation.policy import read_policy
    from overheard.evaluation.record import AUDIT
    from overheard.report.digest import digest

    settings: dict[str, Any] = {"slow": slow, "rounds": rounds, "seed": seed or 0}
    settings |= {"ladder": "brief" if ladder is None else ladder}
    settings |= {"demographics": tuple(demographics)}
    asked = read_policy(policy) if policy else None
    threats = [threat] if threat else list(asked.listeners if asked else ()) or ["eavesdropper"]
    chosen: dict[str, Any] = {"attack": attack, "client": client, "target": target}
    described_by = partial(described, run, description, trust_code)
    _refuse_damaged(run)
    found, digests = [], []
    for name in threats:
        who = overheard.threat_named(name, grant)
        folder = out / name if len(threats) > 1 else out
        about = chosen | {"threat": name, "grant": grant}
        found.append(_audited(folder, described_by, who, about, settings, workers, asked))
        digests.append({"audit": str(folder / AUDIT)} | digest(found[-1]))
    content = digests[0] if len(digests) == 1 else {"audits": digests}
    if asked is not None:
        decision = asked.decide(found)
        terminal.emit(content | {"decision": asdict(decision)})
        terminal.say(f"{decision.answer}: {asked.words}", *(f"- {r}" for r in decision.reasons))
        raise Exit(DECIDED[decision.answer])
    terminal.emit(content)
    if any(one.failed for one in found):
        raise Exit(ATTACK_FAILED)


def _audited(
    out: Path,
    described_by: Callable[[Path], overheard.Recording],
    who: overheard.Threat,
    chosen: dict[str, Any],
    settings: dict[str, Any],
    workers: str,
    policy: Policy | None,
) -> overheard.Audit:
    """The audit under one threat model, begun or continued, written and summed up."""
    from overheard.evaluation.audit import PIECE
    from overheard.evaluation.checkpoint import asking, fingerprint, finish, unfinished
    from overheard.evaluation.record import AUDIT
    from overheard.report.html import render

    page = out / PAGE
    with unfinished(out) as work:
        recording = described_by(work)
        whose = {"recording": fingerprint(recording), "version of overheard": version("overheard")}
        kept = asking(work, whose | chosen | settings, PIECE)
        if (out / AUDIT).exists():  # it was stopped at its very end
            result = overheard.read_audit(out / AUDIT)
        else:
            how = overheard.AuditOptions(**settings, workers=workers)
            asked = (chosen["attack"], chosen["client"], chosen["target"])
            result = run_audit(recording, who, *asked, how, kept)
        result = result.model_copy(update={"policy": policy})
        replace_durably(page, render(result).encode())
        finish(work, AUDIT, result.to_json())
    summary(result)
    terminal.wrote("audit", out / AUDIT)
    terminal.wrote("report", page)
    return result


def demo(out: Out = Path("overheard-demo"), seed: Seed = None) -> None:
    """Record and audit two federations of real people, and write the report.

    Six sites of the RAND Health Insurance Experiment train a linear regression together, then a
    small network; an eavesdropper of each site's link asks who is female, black or physically
    limited.
    """
    refuse_existing(out)
    how = overheard.AuditOptions(rounds=True)
    for name, attacks in DEMO.items():
        run, file = out / name / "run", out / name / "audit.json"
        with resources.as_file(resources.files("overheard") / f"demo-{name}.toml") as config:
            federation = record(overheard.read_config(config), run, seed)
        ladder: Any = "brief" if name == "network" else False  # its page is the one that is shown
        how = replace(how, seed=federation.seed, ladder=ladder)
        who, chosen = overheard.threat_named("eavesdropper"), attacks.split()
        result = run_audit(overheard.Recording.open(run), who, chosen, [], [], how)
        write_durably(file, [result.to_json().encode()])
        overheard.write_report(result, out / name / PAGE)
        summary(result, f"{name}: what the eavesdropper learns, all clients together")
    overheard.write_report(result, out / PAGE)
    terminal.say(f"recordings {out}/*/run", f"audits     {out}/*/audit.json")
    terminal.wrote("report", out / PAGE)
    written = [str(out / name / "audit.json") for name in DEMO]
    terminal.emit({"audits": written, "report": str(out / PAGE)})


def detect(
    run: Annotated[Path, Argument(help="A recording of sums, or of single updates.")],
    property_: Annotated[
        str, Option("--property", help="membership, poisoning or free-rider (membership-2, ...).")
    ],
    attack: Annotated[
        str, Option(help="Attack to use (see `overheard attacks`).")
    ] = "matched_filter",
    out: Annotated[Path | None, Option(help="Write the audit there; must not exist yet.")] = None,
    description: Describing = None,
    trust_code: TrustCode = False,
    seed: Annotated[int, Option(help="Seed of every random choice.")] = 0,
) -> None:
    """Rank the clients by the probability that they have a property, from sums of updates alone.

    A short form of `overheard audit --threat secure-server --target property.PROPERTY`: the server
    of a federation with secure aggregation knows who took part in each round and the sum of their
    updates, and has records like the clients'. Where the recording has
    the truth, the list is scored. If it does not say what to look for, [property] in the TOML file
    of --with does.
    """
    from overheard.report.digest import digest
    from overheard.transcript.target import client_property

    if out is not None:
        refuse_existing(out)
    target, how = client_property(property_), overheard.AuditOptions(seed=seed)
    with tempfile.TemporaryDirectory(prefix="overheard-") as work:
        recording = described(run, description, trust_code, Path(work))
        who = overheard.threat_named("secure-server")
        record = run_audit(recording, who, [attack], [], [target.key], how)
    summary(record)
    if out is not None:
        write_durably(out, [record.to_json().encode()])
        terminal.wrote("audit", out)
    listed = [suspect.model_dump() for found in record.findings for suspect in found.suspects]
    terminal.emit({"suspects": listed} | digest(record))
    if record.failed:
        raise Exit(ATTACK_FAILED)


def _refuse_damaged(run: Path) -> None:
    with terminal.waiting("checking every byte"):
        problems = overheard.verify(run).problems
    if problems:
        more = f" (and {len(problems) - 1} more: {command('verify', run)})" if problems[1:] else ""
        raise FixRecording(f"{problems[0]}{more}")


def run_audit(
    recording: overheard.Recording,
    threat: Any,
    attacks: list[str],
    clients: list[str],
    targets: list[str],
    how: overheard.AuditOptions,
    kept: Any = None,
) -> overheard.Audit:
    """The audit itself, behind a bar."""
    with terminal.steps("auditing") as show:
        how = replace(how, progress=show)
        result = overheard.audit(recording, threat, attacks, clients, targets, how, kept)
    if not result.findings and not result.failed:
        reasons = "; ".join(dict.fromkeys(s.reason for s in result.skipped))
        raise ChooseAnotherAttack(
            f"{recording.path}: no attack could run: {reasons or 'none fits'}"
        )
    return result


def summary(record: overheard.Audit, title: str = "") -> None:
    """Who has a property, where that was asked, and the pooled findings as tables, then the
    verdicts in words."""
    from overheard.report import words
    from overheard.report.verdict import failures, headline, replay_words, sentences

    listed = [found for found in record.findings if found.suspects]
    for found in [f for f in listed if f.attack in record.listening] or listed:
        _suspects(found, record.run.rounds)
    rows = []
    for row in record.pooled:
        measured = words.value(row) + (", flagged" if row.flag else "")
        others = [words.number(row.measure, one) for one in (row.majority, row.imputation)]
        lift = words.points(row.lift) if row.measure.share else words.number(row.measure, row.lift)
        secret = row.attribute or row.question
        rows.append((secret, row.attack, measured, words.together(row), *others, lift))
    numbers = ["measured (95% interval)", "of", "majority baseline", "imputation baseline", "lift"]
    usual = f"what the {record.run.threat} learns, all clients together"
    terminal.table(["question", "attack", *numbers], rows, title or usual, right=numbers)
    terminal.say(*(f"- {line}" for line in (*headline(record), *record.notes)))
    (terminal.complain if record.unfit else terminal.say)(f"- {replay_words(record)}")
    if record.skipped:
        reasons = dict.fromkeys(s.reason for s in record.skipped)
        terminal.say(
            f"{len(record.skipped)} attack runs were skipped:", *(f"- {r}" for r in reasons)
        )
    for group in failures(record):
        terminal.complain(f"failed: {sentences().failure(group)}")


def _suspects(found: Finding, rounds: int) -> None:
    """Every client, and who is accused."""
    from overheard.report import words

    numbers, rows = ["probability", "rounds", "contribution"], []
    for s in found.suspects:
        helped = "" if s.contribution is None else f"{s.contribution:.3g}"
        shares = f"{s.probability:.3f}", f"{s.rounds} of {rounds}", helped
        rows.append((s.client, "yes" if s.accused else "", *shares, s.remark))
    title = f"who {words.what_of(found.attribute or '')}, by {found.attack}"
    terminal.table(["client", "accused", *numbers, "remark"], rows, title, right=numbers)
    accused = ", ".join(s.client for s in found.suspects if s.accused)
    terminal.say(f"- accused: {accused or 'nobody'}")
