"""The audit: run every attack whose needs are met, score it, compare it with not listening."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache, partial
from importlib.metadata import version
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from overheard.attacks import all_attacks, attack_named, equation, is_slow, listens, words
from overheard.errors import FixConfig, FixRecording
from overheard.evaluation.checkpoint import Checkpoint
from overheard.evaluation.ladder import by_knowledge, by_rounds
from overheard.evaluation.parts import Asked, AuditOptions, Part
from overheard.evaluation.record import (
    AttackInfo,
    Audit,
    Failed,
    Finding,
    Promise,
    Replay,
    Run,
    Skipped,
    few,
)
from overheard.evaluation.replay import replayed, together
from overheard.evaluation.scoring import ALL_CLIENTS, Scored, pooled
from overheard.foreign.limits import check
from overheard.foreign.shown import first_error
from overheard.questions.question import by_question, grouped
from overheard.transcript.kind import EVERYBODY, program_in
from overheard.transcript.store import Recording
from overheard.transcript.target import Target, chosen_targets, targets_in
from overheard.transcript.threat import Threat
from overheard.transcript.view import Attack, in_the_clear

LEFT_OUT = (
    "This epsilon does not count what the recipe publishes, the means and scales of columns and "
    "the lists of values: it holds only where these were chosen without looking at the records."
)
PIECE = Scored | Skipped | Failed | Finding | Replay
"""What an audit keeps while it is not finished."""


def audit(
    recording: Recording,
    threat: Threat,
    attacks: Iterable[str | Attack] | None = None,
    clients: Iterable[str] | None = None,
    targets: Iterable[str] | None = None,
    options: AuditOptions | None = None,
    kept: Checkpoint | None = None,
) -> Audit:
    """Audit a recording under a threat model; None, or nothing selected, means all there are.

    ``attacks``: names, or attacks with settings of their own (``LearnedMap(epochs=50)``). One that
    ends in an error is listed as failed, and the others run. ``kept``: what an audit with the same
    arguments found before it was stopped, and where this one keeps what it finds.

    Same recording, selection and seed: the same record, the measured seconds aside.

        recording = overheard.Recording.open("run")
        record = overheard.audit(recording, overheard.threat_named("eavesdropper"), targets=["sex"])
        record.level, record.secrets
    """
    recipe, there, path = program_in(recording), targets_in(recording.targets), recording.path
    if not recording.rounds:
        raise FixConfig(f"{path}: no round was recorded; there is nothing to audit")
    if recipe is None:
        raise FixConfig(f"{path}: has no training recipe, without which nothing is scored")
    if unknown := set(names := tuple(clients or recording.clients)) - set(recording.clients):
        raise FixConfig(f"no client {min(unknown)!r}; there are {', '.join(recording.clients)}")
    given, keys, options = tuple(attacks or ()), tuple(targets or ()), options or AuditOptions()
    asked = Asked(
        recording,
        threat,
        tuple(chosen_attacks(given)),
        bool(given),
        names,
        tuple(chosen_targets(there, keys, "the recording") if keys else there),
        options,
        kept or Checkpoint(),
        recipe,
    )
    asked.truth  # noqa: B018  # read before anything is attacked, as it may be missing
    pieces = asked.found_by(_parts(asked))
    scored = of(Scored, pieces)
    used = [a for a in asked.attacks if a.question in {t.question for t in asked.targets}]
    findings, over_all = pooled(scored, frozenset(a.name for a in used if listens(a)))
    record = Audit(
        run=_run(asked),
        attacks=tuple(map(info_of, used)),
        findings=findings,
        pooled=over_all,
        skipped=of(Skipped, pieces),
        failed=of(Failed, pieces),
        replays=together(of(Replay, pieces)),
        notes=notes_of(recording, findings),
        promise=least_promise(recording),
    )
    curves = by_rounds(asked, record) if options.rounds else []
    ladder = by_knowledge(asked, record, scored) if options.ladder else []
    pieces += [*curves, *ladder]
    more: dict[str, Any] = {"curves": of(Finding, curves), "ladder": of(Finding, ladder)}
    more |= {"skipped": of(Skipped, pieces), "failed": of(Failed, pieces)}
    return record.model_copy(update=more)


Kind = TypeVar("Kind")


def of(kind: type[Kind], pieces: Iterable[Any]) -> tuple[Kind, ...]:
    """The pieces of a kind."""
    return tuple(one for one in pieces if isinstance(one, kind))


def chosen_attacks(attacks: Iterable[str | Attack]) -> list[Attack]:
    """The attacks meant, each once; all there are where none is given."""
    chosen = [attack_named(a) if isinstance(a, str) else a for a in (attacks or all_attacks())]
    names = Counter(a.name for a in chosen)
    if twice := [name for name, times in names.items() if times > 1]:
        raise FixConfig(f"attack {twice[0]!r} is given twice; an audit runs each of a name once")
    return chosen


def _parts(asked: Asked) -> list[Part]:
    """The attacks on every target and client that they are about, slow searches last and each by
    itself, and then the replay of every client."""
    recording, attacking = asked.recording, by_question(asked.attacks)
    whom = {t: (EVERYBODY,) if t.asked.together else asked.clients for t in asked.targets}
    steps = [(t, c) for t in asked.targets for c in whom[t]]
    count = sum(len(attacking.get(t.question, [])) for t, _ in steps)
    check("outcomes", count, recording.path, FixConfig)
    parts = []
    for slow in (False, True):
        for target, client in steps:
            these = [a for a in attacking.get(target.question, ()) if is_slow(a) == slow]
            name = f"{target.key} of {client or ALL_CLIENTS}"
            for some in [[one] for one in these] if slow else [these] * bool(these):
                key = ("outcome", target.key, client, *map(asked.key_of, some))
                parts.append(Part(name, partial(_attacked, target, client, some), key))
    if any(not t.asked.together for t in asked.targets):
        replay = "replay of"
        parts += [Part(f"{replay} {c}", partial(_replay, c), (replay, c)) for c in asked.clients]
    return parts


def _replay(client: str, asked: Asked) -> list[Replay]:
    these = (asked.recording, asked.recipe, asked.truth, client, len(asked.clients))
    return [replayed(*these, asked.options.seed)]


def _attacked(
    target: Target, client: str, attacks: Sequence[Attack], asked: Asked
) -> list[Scored | Skipped | Failed]:
    """Attacks on one target of one client."""
    case = cache(partial(asked.case, target, client))
    return [asked.tried(attack, target, client, case) for attack in attacks]


def _run(asked: Asked) -> Run:
    recording, threat, about = asked.recording, asked.threat, asked.recording.about
    return Run(
        recording=named_from_here(recording.path),
        data=str(about.get("data", "")),
        origin=str(about.get("origin", "")),
        clients=recording.clients,
        rounds=len(recording.rounds),
        closed=recording.closed,
        threat=threat.name,
        threat_words=threat.words,
        knows=tuple(sorted(kind.name for kind in threat.grants)),
        recipe=asked.recipe.model_dump(mode="json"),
        seed=asked.options.seed,
        software={name: version(name) for name in ("overheard", "numpy", "scipy", "scikit-learn")},
    )


def named_from_here(path: Path) -> str:
    """A path as commands in a report may name it: from the folder in which the audit runs or, of
    one that is elsewhere, its last part, which says nothing about this machine."""
    return os.path.relpath(path) if path.resolve().is_relative_to(Path.cwd()) else path.name


def info_of(attack: Attack) -> AttackInfo:
    """What there is to say of an attack: for reports, and for whoever chooses one."""
    needs = tuple(sorted(kind.name for kind in attack.needs))
    shared = {name: getattr(attack, name) for name in ("name", "question", "paper")}
    return AttackInfo(**shared, needs=needs, words=words(attack), equation=equation(attack))


# ------------------------------ what must be known to read the numbers


def notes_of(recording: Recording, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Of the recording first, then of what was found."""
    return (
        *in_the_clear(recording).sentences(),
        *promise_notes(recording),
        *(["The recording was not closed: its recorder was stopped."] * (not recording.closed)),
        *range_notes(findings),
        *flag_notes(findings),
    )


def range_notes(findings: Sequence[Finding]) -> tuple[str, ...]:
    """In words, once per secret that is a number cut into ranges: which, and what is right."""
    stated = dict.fromkeys((f.attribute, f.details.get("right_is")) for f in findings)
    return tuple(
        f"{secret} is a number: a guess counts as right if it names {right}."
        for secret, right in stated
        if right
    )


def flag_notes(findings: Sequence[Finding]) -> tuple[str, ...]:
    """In words, once per attack, secret and reason: whose findings flag themselves."""
    flagged = (found for found in findings if found.flag)
    groups = grouped(flagged, lambda f: (f.attack, f.attribute, f.flag.partition(":")[0]))
    notes = []
    for (attack, about, _), members in groups.items():
        secret = f" on {about}" if about else ""
        notes.append(
            f"{attack}{secret} flags its own answer for {few([str(f.client) for f in members])}: "
            f"{members[0].flag}."
        )
    return tuple(notes)


def least_promise(recording: Recording) -> Promise | None:
    """What is promised to the records of the client that is promised least; None if nothing is."""
    content = recording.side("PrivacyBudget") or {}
    try:
        found = [Promise(client=client, **about) for client, about in content.items()]
    except (ValidationError, TypeError, AttributeError) as error:
        wrong = first_error(error) if isinstance(error, ValidationError) else str(error)
        raise FixRecording(
            f"{recording.side_folder}: PrivacyBudget is not what the format says ({wrong}); "
            "record again"
        ) from error
    unbounded = [tuple(inf if e is None else e for e in (p.changed, p.epsilon)) for p in found]
    return max(zip(unbounded, found, strict=True), key=itemgetter(0), default=(None, None))[1]


def promise_notes(recording: Recording) -> tuple[str, ...]:
    """The promise in words, and what it leaves out; none if there is none."""
    if (worst := least_promise(recording)) is None:
        return ()
    every = (recording.side("PrivacyBudget") or {}).values()
    how = f"{worst.words}; client {worst.client}"
    how += f", promised the least of {len(every)}" * (len(every) > 1)
    note = f"Differential privacy: none is promised to a record ({how})."
    if worst.epsilon is not None:
        values = "" if worst.changed is None else f" and {worst.changed:.3g} for its values"
        note = f"Differential privacy promised to a record: epsilon {worst.epsilon:.3g} for its "
        note += f"presence{values}, at delta {worst.delta:.3g} ({how})."
    return (note, *([LEFT_OUT] * any(about["epsilon"] is not None for about in every)))
