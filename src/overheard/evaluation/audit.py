"""The audit: run every attack whose needs are met, score it, compare it with not listening."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.metadata import version
from math import inf

from pydantic import BaseModel, TypeAdapter, ValidationError

from overheard.attacks import all_attacks, attack_named, equation, is_slow, listens, words
from overheard.errors import ChooseAnotherAttack, FixConfig, FixData, FixRecording, ListenLonger
from overheard.evaluation.baselines import Imputer
from overheard.evaluation.checkpoint import NOT_RUN, Checkpoint, Progress, attempt, silent
from overheard.evaluation.ladder import by_knowledge, by_rounds
from overheard.evaluation.record import (
    AttackInfo,
    Audit,
    Failed,
    Finding,
    Replay,
    Run,
    Skipped,
    few,
    first_wrong,
)
from overheard.evaluation.replay import replays
from overheard.evaluation.scoring import ALL_CLIENTS, Case, Scored, Scorer, answers_in, pooled
from overheard.foreign.limits import check
from overheard.programs.program import Told
from overheard.programs.records import Records
from overheard.questions.question import by_question, grouped
from overheard.transcript.kind import EVERYBODY, program_in
from overheard.transcript.store import Recording
from overheard.transcript.target import Target, chosen_targets, targets_in
from overheard.transcript.threat import Threat
from overheard.transcript.view import Attack, View, in_the_clear, launch, observe

LEFT_OUT = (
    "This epsilon does not count what the recipe publishes: the means and scales of columns, and "
    "the lists of their values. It holds only where these were chosen without looking at the "
    "records (data-independent); computed from the records they are exact, and with everybody "
    "else's records one person's values follow from them."
)
UNSCORED = "truth/ has no records of this client, so a guess about it cannot be scored"
SLOW = "a slow search, not run by default; name it with --attack, or run all with --slow"
PIECE = Scored | Skipped | Failed | Finding | Replay
"""What an audit keeps while it is not finished."""


@dataclass(frozen=True)
class AuditOptions:
    """How an audit is done.

    ``slow``: attacks that search for minutes run also when they are not named; otherwise they are
    listed as skipped. ``progress``: told what begins, how many steps are done and how many there
    are.

    ``rounds``: ask also what the first rounds alone would have told; ``ladder``: and what
    adversaries learn who know less and less of the clients (`evaluation.ladder`), of whose columns
    ``demographics`` are in registers (none named: those that are called so).

    ``share``: only every n-th (target, client) and every n-th replay, from the k-th on, as (k, n):
    several processes that keep what they find in one place do an audit together.
    """

    seed: int = 0
    slow: bool = False
    progress: Progress = field(default_factory=lambda: silent)
    rounds: bool = False
    ladder: bool = False
    demographics: tuple[str, ...] = ()
    share: tuple[int, int] = (0, 1)


@dataclass(frozen=True)
class Asked:
    """What an audit is asked, and what all of its parts share. ``named``: the attacks that were
    asked for by name, and hence run however slow they are."""

    recording: Recording
    threat: Threat
    attacks: tuple[Attack, ...]
    named: bool
    clients: tuple[str, ...]
    targets: tuple[Target, ...]
    options: AuditOptions
    kept: Checkpoint
    recipe: Told

    @cached_property
    def truth(self) -> Mapping[str, Records]:
        """The clients' records; a question about all of them at once may do without."""
        needed = any(not target.asked.together for target in self.targets)
        there = needed or self.recording.holds_truth("Records")
        return self.recording.truth() if there else {}

    @cached_property
    def imputer(self) -> Imputer:
        """The imputation baselines, each fitted once for the whole audit."""
        return Imputer(self.options.seed)

    def runs(self, attack: Attack) -> bool:
        return self.options.slow or self.named or not is_slow(attack)

    def case(self, target: Target, client: str) -> tuple[View, Scorer]:
        """What the adversary holds of a client, and what scores its guesses."""
        view = observe(self.recording, self.threat, target, client)
        this = (self.recipe, self.truth, target, view, self.options.seed)
        answers = answers_in(self.recording, target)
        return view, Case(*this, answers, self.imputer).scorer()

    def tried(
        self,
        attack: Attack,
        target: Target,
        client: str,
        case: Callable[[], tuple[View, Scorer]],
        doing: str = "",
    ) -> Scored | Skipped | Failed:
        """One attack on one client: its answer, scored, or why there is none. ``doing``: which part
        of the audit it is, where not that of the whole recording."""

        def run() -> Scored:
            view, scorer = case()
            begin = time.perf_counter()
            guess = launch(attack, view, self.options.seed)
            return scorer(attack, guess, time.perf_counter() - begin)

        about = (attack.name, client or ALL_CLIENTS, target.column or None)
        try:
            return attempt(run, *about, doing)
        except NOT_RUN as error:
            return self.skip(attack, client, target, f"{doing}: {error}" if doing else str(error))

    def target_of(self, found: Finding) -> Target:
        """What a finding is about."""
        about = (found.question, found.attribute)
        return next(t for t in self.targets if (t.question, t.column or None) == about)

    @staticmethod
    def key_of(attack: Attack) -> str:
        """What an attack's results are kept under: its name and, where they are its own,
        settings."""
        usual = all_attacks().get(attack.name)
        return attack.name if usual is not None and attack == usual() else repr(attack)

    @staticmethod
    def skip(attack: Attack, client: str, target: Target, reason: str) -> Skipped:
        whom, what = client or ALL_CLIENTS, target.column or None
        return Skipped(attack=attack.name, client=whom, attribute=what, reason=reason)


def audit(
    recording: Recording,
    threat: Threat,
    attacks: Iterable[str | Attack] | None = None,
    clients: Iterable[str] | None = None,
    targets: Iterable[str] | None = None,
    options: AuditOptions = AuditOptions(),
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
    given, keys = tuple(attacks or ()), tuple(targets or ())
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
    outcomes = _attacked(asked)
    scored = [outcome for outcome in outcomes if isinstance(outcome, Scored)]
    unscored = [outcome for outcome in outcomes if not isinstance(outcome, Scored)]
    ran = {s.finding.attack for s in scored} | {u.attack for u in unscored}
    used = [a for a in asked.attacks if a.name in ran]
    findings, over_all = pooled(scored, frozenset(a.name for a in used if listens(a)))
    alone = any(not t.asked.together for t in asked.targets)
    these = (recording, asked.recipe, asked.truth, asked.clients, options.seed)
    record = Audit(
        run=_run(asked),
        attacks=tuple(map(info_of, used)),
        findings=findings,
        pooled=over_all,
        skipped=tuple(u for u in unscored if isinstance(u, Skipped)),
        failed=tuple(u for u in unscored if isinstance(u, Failed)),
        replays=replays(*these, asked.kept, options.share) if alone else (),
        notes=notes_of(recording, findings),
    )
    curves = by_rounds(asked, record) if options.rounds else []
    ladder = by_knowledge(asked, record, scored) if options.ladder else []
    parts = [*curves, *ladder]
    return record.model_copy(
        update={
            "curves": tuple(part for part in curves if isinstance(part, Finding)),
            "ladder": tuple(part for part in ladder if isinstance(part, Finding)),
            "skipped": (*record.skipped, *(p for p in parts if isinstance(p, Skipped))),
            "failed": (*record.failed, *(p for p in parts if isinstance(p, Failed))),
        }
    )


def chosen_attacks(attacks: Iterable[str | Attack]) -> list[Attack]:
    """The attacks meant, each once; all there are where none is given."""
    chosen = [attack_named(a) if isinstance(a, str) else a for a in (attacks or all_attacks())]
    names = Counter(a.name for a in chosen)
    if twice := [name for name, times in names.items() if times > 1]:
        raise FixConfig(f"attack {twice[0]!r} is given twice; an audit runs each of a name once")
    return chosen


def _attacked(asked: Asked) -> list[Scored | Skipped | Failed]:
    """Every attack on every target and client that it is about."""
    recording, options = asked.recording, asked.options
    whom = {t: (EVERYBODY,) if t.asked.together else asked.clients for t in asked.targets}
    first, every = options.share
    steps = [(t, c) for t in asked.targets for c in whom[t]][first::every]
    attacking = by_question(asked.attacks)
    count = sum(len(attacking.get(t.question, [])) for t, _ in steps)
    check("outcomes", count, recording.path, FixConfig)
    outcomes: list[Scored | Skipped | Failed] = []
    # read before anything is said, as it may be missing
    truth = asked.truth if any(c in recording.clients for _, c in steps) else {}
    for done, (target, client) in enumerate(steps):
        step, attacks = f"{target.key} of {client or ALL_CLIENTS}", attacking.get(target.question)
        options.progress(step, done, len(steps))
        keys = [(target.key, client, asked.key_of(a)) for a in attacks or ()]
        known = [asked.kept.read("outcome", *key) for key in keys]
        if not attacks or all(known):
            outcomes += [one for found in known if found for one in found]
            continue
        try:
            if client in recording.clients and client not in truth:
                raise FixData(UNSCORED)
            view, scorer = asked.case(target, client)
        except (ListenLonger, FixData) as error:
            outcomes += [asked.skip(a, client, target, str(error)) for a in attacks]
            continue
        for attack, key in zip(attacks, keys, strict=True):
            if listens(attack) and asked.runs(attack):  # guesses take no time
                options.progress(f"{step}: {attack.name}", done, len(steps))
            run = partial(_outcome, asked, attack, view, scorer)
            outcomes += asked.kept.made(lambda run=run: [run()], "outcome", *key)  # type: ignore[misc]
    options.progress("done", len(steps), len(steps))
    return outcomes


def _outcome(asked: Asked, attack: Attack, view: View, scorer: Scorer) -> Scored | Skipped | Failed:
    """One attack on one client."""
    if not asked.runs(attack):
        return asked.skip(attack, view.client, view.target, SLOW)

    def case() -> tuple[View, Scorer]:
        asks = getattr(attack, "same_as", None)
        same = "" if asks is None or view.lacks(attack.needs) else asks(view)
        if same in {a.name for a in asked.attacks}:
            raise ChooseAnotherAttack(f"answers here as {same} does, which is run as well")
        return view, scorer

    return asked.tried(attack, view.target, view.client, case)


def _run(asked: Asked) -> Run:
    recording, threat, about = asked.recording, asked.threat, asked.recording.about
    return Run(
        recording=recording.path.name,
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
        *rank_notes(findings),
        *flag_notes(findings),
    )


def range_notes(findings: Sequence[Finding]) -> tuple[str, ...]:
    """In words, once per secret that is a number cut into ranges: which, and what is right."""
    said = dict.fromkeys((f.attribute, f.details.get("right_is")) for f in findings)
    return tuple(
        f"{secret} is a number: a guess counts as right if it names {right}."
        for secret, right in said
        if right
    )


def rank_notes(findings: Sequence[Finding]) -> tuple[str, ...]:
    """In words, once per secret: where there were fewer equations than unknown values."""
    known = [f for f in findings if {"rank", "unknowns"} <= f.details.keys()]
    shares = {f.key: float(f.details["rank"]) / max(float(f.details["unknowns"]), 1) for f in known}
    too_few = (f for f in known if shares[f.key] < 1)
    notes = []
    for secret, members in grouped(too_few, lambda f: f.attribute or f.question).items():
        fewest = min(members, key=lambda f: shares[f.key])
        attacks = ", ".join(dict.fromkeys(f.attack for f in members))
        clients = len({f.client for f in members})
        notes.append(
            f"{secret}: fewer independent equations than unknown values were heard at {clients} "
            f"client(s) ({attacks}; {fewest.details['rank']} for {fewest.details['unknowns']} at "
            f"{fewest.client}). What is said of single records there is likely, not proven."
        )
    return tuple(notes)


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


class _Promise(BaseModel):
    """What a client promises its records: epsilon for their presence, and for their values
    (``changed``), where it is bounded at all."""

    epsilon: float | None
    delta: float
    changed: float | None = None
    words: str


def promise_notes(recording: Recording) -> tuple[str, ...]:
    """The promise to the records of the client that is promised least, and what it leaves out; none
    if there is none. Epsilons at different deltas are not compared: one promise for each delta."""
    content = recording.side("PrivacyBudget")
    if not content:
        return ()
    try:
        promises = TypeAdapter(dict[str, _Promise]).validate_python(content)
    except ValidationError as error:
        raise FixRecording(
            f"{recording.side_folder}: PrivacyBudget is not what the format says "
            f"({first_wrong(error)}); record again"
        ) from error
    by_delta = grouped(promises.items(), lambda item: item[1].delta).values()
    said = tuple(_least(same, len(promises)) for same in by_delta)
    bounded = any(promise.epsilon is not None for promise in promises.values())
    return (*said, *([LEFT_OUT] * bounded))


def _least(promises: Sequence[tuple[str, _Promise]], clients: int) -> str:
    """Of the promises at one delta the weakest, in a sentence."""
    client, worst = max(promises, key=lambda p: inf if p[1].epsilon is None else p[1].epsilon)
    among = f"of {len(promises)}" + (" at this delta" if len(promises) < clients else "")
    whose = f"client {client}, promised the least {among}" if clients > 1 else client
    if worst.epsilon is None:
        return f"Differential privacy: none is promised to a record ({worst.words}; {whose})."
    values = "" if worst.changed is None else f" and {worst.changed:.3g} for its values"
    return (
        f"Differential privacy promised to a record: epsilon {worst.epsilon:.3g} for its presence"
        f"{values}, at delta {worst.delta:.3g} ({worst.words}; {whose})."
    )
