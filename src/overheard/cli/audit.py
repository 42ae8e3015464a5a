"""``overheard audit``: let an adversary loose on a recording, and go on where one was stopped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from overheard import terminal
from overheard.cli.import_ import described
from overheard.cli.options import Describing, Grant, Run, Seed, TrustCode, option, taking

if TYPE_CHECKING:
    from overheard.evaluation.audit import AuditOptions
    from overheard.evaluation.checkpoint import Checkpoint
    from overheard.evaluation.record import Audit
    from overheard.transcript.store import Recording
    from overheard.transcript.threat import Threat

SHARES = 8
"""Parts of an audit for each worker, so that one that was given little helps the others."""
CLUSTER = 16
"""Workers for which an audit is cut up for a cluster, whose size is its own business."""
PAGE = "report.html"
"""The report, beside the audit that it shows."""
ATTACK_FAILED = 3
"""The command's exit code when everything was written and an attack had ended in an error."""


@dataclass(frozen=True)
class Options:
    run: Run
    out: Path = option("Where to write; must not exist yet, but an unfinished audit goes on.")
    threat: str = option(
        "Threat model: eavesdropper, server, isolating-server, secure-server.", "eavesdropper"
    )
    attack: list[str] = option("Attack to run (repeat); default: all that apply.", list)
    client: list[str] = option("Client to attack (repeat); default: all.", list)
    target: list[str] = option("Secret to ask about (repeat); default: all.", list)
    grant: Grant = field(default_factory=list)
    slow: bool = option("Run slow searches as well.", False, "--slow")
    rounds: bool = option("Ask also what the first rounds alone would have told.", True)
    ladder: bool = option(
        "Ask also what adversaries learn who know less and less of the clients.", False, "--ladder"
    )
    demographics: list[str] = option(
        "Public column that registers have (repeat), for --ladder; default: by their names.", list
    )
    budget: float | None = option(
        "Seconds for each attack on each client; what takes longer is ended and listed as skipped.",
        None,
        show_default="no limit",
    )
    show_records: bool = option(
        "Note the row numbers of records known beyond 99%.", False, "--show-records"
    )
    keep_hits: bool = option(
        "Keep in OUT/hits.json which records were guessed right, so that `compare` can pair them; "
        "as secret as truth/.",
        False,
        "--keep-hits",
    )
    ignore_damage: bool = option(
        "Audit what is left of a damaged recording; the report says what is missing.",
        False,
        "--ignore-damage",
    )
    workers: int = option(
        "Processes of this machine that attack clients at once; the audit is the same.", 1, min=1
    )
    ray: str = option(
        "Address of a Ray cluster to attack clients on instead; its nodes must see RUN and OUT "
        "under the same paths.",
        "",
    )
    description: Describing = None
    trust_code: TrustCode = False
    seed: Seed = None


@taking(Options)
def audit(options: Options) -> None:
    """Let an adversary loose on a recording, score what it learns, and write the report.

    OUT/report.html opens offline; `overheard report` makes others. Stopped at any moment, the
    same command goes on and ends the same. Exits 3 where an attack failed: the others are
    written, and the report lists which one and how.
    """
    from overheard.evaluation.audit import PIECE
    from overheard.evaluation.checkpoint import asking, finish, unfinished
    from overheard.evaluation.compare import HITS, hits_json
    from overheard.evaluation.record import AUDIT, read_audit
    from overheard.files import replace_durably
    from overheard.report.html import render

    run, out = options.run, options.out
    with unfinished(out) as work, _sound(run, options.ignore_damage, work) as (left, damage):
        with described(left, options.description, options.trust_code, work, run) as recording:
            kept = asking(work, _asked(options, recording, damage), PIECE)
            if (out / AUDIT).exists():  # it was stopped at its very end
                record = read_audit(out / AUDIT)
            else:
                if options.workers > 1 or options.ray:
                    _share_out(recording, options, kept)
                record = run_audit(recording, options, kept)
                about = record.run.model_copy(update={"damage": damage})
                record = record.model_copy(update={"run": about})
        page = out / PAGE
        replace_durably(page, render(record, show_records=options.show_records).encode())
        private = {HITS: hits_json(kept.everything())} if options.keep_hits else {}
        finish(work, AUDIT, record.to_json(), private)
    summary(record)
    terminal.wrote("audit", out / AUDIT)
    terminal.wrote("report", page)
    if options.keep_hits:
        terminal.say(f"secret     {out / HITS}: which records were guessed right")
    if terminal.wants_json():
        from overheard.report.digest import digest

        terminal.emit({"audit": str(out / AUDIT)} | digest(record, options.show_records))
    if record.failed:
        raise typer.Exit(ATTACK_FAILED)


def _asked(options: Options, recording: Recording, damage: tuple[str, ...]) -> dict[str, object]:
    """What the answer depends on: an unfinished audit goes on if it was asked the same."""
    from importlib.metadata import version

    from overheard.evaluation.checkpoint import fingerprint

    given = asdict(options) | {"seed": options.seed or 0}
    for name in ("run", "out", "ignore_damage", "workers", "ray", "description", "trust_code"):
        del given[name]
    asked: dict[str, object] = {"recording": fingerprint(recording), "damage": list(damage)}
    return asked | given | {"version of overheard": version("overheard")}


@contextmanager
def _sound(run: Path, ignore_damage: bool, work: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """The recording, or what is left of a damaged one, and what is missing from it."""
    import shutil

    from overheard.errors import FixRecording
    from overheard.transcript.verify import salvage, verify

    with terminal.waiting("checking every byte"):
        problems = verify(run).problems
    if not problems:
        yield run, ()
        return
    if not ignore_damage:
        more = f" (and {len(problems) - 1} more: overheard verify {run})" if problems[1:] else ""
        raise FixRecording(
            f"{problems[0]}{more}; --ignore-damage audits what is left of a damaged recording"
        )
    folder = work / "left"
    shutil.rmtree(folder, ignore_errors=True)
    missing = salvage(run, folder / run.resolve().name)
    for line in missing:
        terminal.complain(f"damaged: {line}")
    yield folder / run.resolve().name, missing


def _share_out(recording: Recording, options: Options, kept: Checkpoint) -> None:
    """Let workers do what can be done of the audit client by client; what they find is kept."""
    from overheard.programs.trusted import trusted
    from overheard.workers import in_processes, on_cluster

    known, total = trusted(), SHARES * max(options.workers, CLUSTER if options.ray else 1)
    calls = [(recording, options, kept, known, (k, total)) for k in range(total)]
    where = options.ray or f"{options.workers} workers"
    with terminal.steps(f"auditing on {where}") as show:
        if options.ray:
            shares = on_cluster(_one_share, calls, options.ray)
        else:
            shares = in_processes(_one_share, calls, options.workers, "part of the audit")
        for done, _ in enumerate(shares, 1):
            show(f"part {done}", done, total)


def _one_share(
    recording: Recording,
    options: Options,
    kept: Checkpoint,
    known: tuple[str, ...],
    share: tuple[int, int],
) -> None:
    """What one worker does: its part of the attacks and replays, without the curves."""
    from overheard.evaluation.audit import audit as part
    from overheard.programs.trusted import trust

    for factory in known:
        trust(factory)
    adversary, chosen, how = _chosen(options)
    part(recording, adversary, *chosen, replace(how, share=share, rounds=False, ladder=False), kept)


def _chosen(
    options: Options,
) -> tuple[Threat, tuple[list[str], list[str], list[str]], AuditOptions]:
    """Who listens, what is asked of whom, and how."""
    from overheard.evaluation.audit import AuditOptions
    from overheard.transcript.threat import granting_named, threat_named

    how = AuditOptions(
        seed=options.seed or 0,
        slow=options.slow,
        budget=options.budget,
        rows=options.show_records,
        rounds=options.rounds,
        ladder=options.ladder,
        demographics=tuple(options.demographics),
    )
    adversary = granting_named(threat_named(options.threat), options.grant)
    return adversary, (options.attack, options.client, options.target), how


def run_audit(recording: Recording, options: Options, kept: Checkpoint | None = None) -> Audit:
    """The audit itself, behind a bar."""
    from overheard.errors import ChooseAnotherAttack
    from overheard.evaluation.audit import audit as whole_audit

    adversary, chosen, how = _chosen(options)
    with terminal.steps("auditing") as show:
        record = whole_audit(recording, adversary, *chosen, replace(how, progress=show), kept)
    if not record.findings and not record.failed:
        reasons = "; ".join(dict.fromkeys(s.reason for s in record.skipped))
        raise ChooseAnotherAttack(
            f"{recording.path}: no attack could run: {reasons or 'none fits'}"
        )
    return record


def summary(record: Audit, title: str = "") -> None:
    """The pooled findings as a table, then the verdicts in words."""
    from overheard.report.model import ladders
    from overheard.report.verdict import headline, replay_words
    from overheard.report.words import failures, of, rung, together

    def percent(share: float | None) -> str:
        return "" if share is None else f"{share:.1%}"

    rows = []
    for row in record.pooled:
        share, unit = row.measure.share, of(row.measure)["suffix"]
        number = percent if share else (lambda x: "" if x is None else f"{x:.1e}")
        rows.append(
            (
                row.attribute or row.question,
                row.attack,
                number(row.value) + unit + (", flagged" if row.flag else ""),
                f"{number(row.low)} - {number(row.high)}",
                together(row),
                number(row.majority),
                number(row.imputation),
                "" if row.lift is None else f"{row.lift:+.1%}" if share else f"{row.lift:+.1e}",
            )
        )
    numbers = ["measured", "95% interval", "of", "commonest value", "imputation", "lift"]
    usual = f"what the {record.run.threat} learns, all clients together"
    terminal.table(["question", "attack", *numbers], rows, title or usual, right=numbers)
    for one in ladders(record):
        rungs = [
            (
                r.rung,
                "not measured" if r.flag else percent(r.value),
                percent(r.imputation),
                str(r.calibration.certain) if r.calibration else "",
                rung(r.rung),
            )
            for r in one.rungs
        ]
        heads = ["adversary", "guessed right", "imputation", "certain", "what it knows"]
        terminal.table(heads, rungs, f"{one.chart.name}, by what is known", right=heads[1:4])
    for sentence in headline(record):
        terminal.say(f"- {sentence}")
    say = terminal.complain if record.unfit else terminal.say
    say(f"- {replay_words(record)}")
    if left := len(record.run.damage):
        terminal.say(f"- The recording is damaged; {left} part(s) of it were left out.")
    for note in record.notes:
        terminal.say(f"- {note}")
    if record.skipped:
        terminal.say(f"{len(record.skipped)} attack runs were skipped:")
        for reason in dict.fromkeys(s.reason for s in record.skipped):
            terminal.say(f"- {reason}")
    for line in failures(record):
        terminal.complain(f"failed: {line}")
