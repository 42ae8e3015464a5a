"""The audit: run every attack whose needs are met, score it, compare it with not listening."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version

import numpy as np

from overheard.attacks import all_attacks, attack_named, equation, is_slow, words
from overheard.errors import ChooseAnotherAttack, FixConfig, FixData, GrantKnowledge, ListenLonger
from overheard.evaluation import properties
from overheard.evaluation.intervals import clustered_interval
from overheard.evaluation.kept import NOTHING_KEPT, Kept
from overheard.evaluation.promised import promise_notes
from overheard.evaluation.record import AttackInfo, Audit, Finding, Pooled, Run, Skipped
from overheard.evaluation.scoring import Scored, Scorer, scorer_of
from overheard.evaluation.sureness import sureness, together
from overheard.foreign.limits import check
from overheard.learning.recipe import Recipe
from overheard.transcript.clear import clear_notes
from overheard.transcript.knowledge import Sums
from overheard.transcript.observe import EVERYBODY, observe, recipe_of
from overheard.transcript.store import Recording
from overheard.transcript.target import LOCAL_MODEL, Target
from overheard.transcript.threat import Threat
from overheard.transcript.view import Attack, View, launch

Progress = Callable[[str, int, int], None]
# an attack that raises one of these was not applicable; anything else is an error of the audit
NOT_RUN = (ChooseAnotherAttack, GrantKnowledge, ListenLonger, FixData)


UNSCORED = "truth/ has no records of this client, so a guess about it cannot be scored"
SLOW = "a slow search, not run by default; name it with --attack, or run all with --slow"


def audit(
    recording: Recording,
    threat: Threat,
    attacks: Iterable[str] = (),
    clients: Iterable[str] = (),
    targets: Iterable[str] = (),
    seed: int = 0,
    slow: bool = False,
    progress: Progress = lambda what, done, total: None,
    rows: bool = False,
    kept: Kept = NOTHING_KEPT,
) -> Audit:
    """Audit a recording under a threat model; empty selections mean everything there is.

    Attacks that search for minutes (``slow``) run when named or with ``slow=True``; otherwise they
    are listed as skipped. ``rows``: put the row numbers of the records known beyond 99% into the
    record, a few per client; by default it holds nothing about single records.

    ``kept``: what an audit with the same arguments found before it was stopped, and where this one
    keeps what it finds.

    Same recording, selection and seed: the same record, the measured seconds aside.
    """
    if not recording.rounds:
        raise FixConfig(f"{recording.path}: no round was recorded; there is nothing to audit")
    recipe = recipe_of(recording)
    if recipe is None:
        raise FixConfig(
            f"{recording.path}: has no training recipe, without which nothing is scored"
        )
    truth = recording.truth()
    named = tuple(attacks)
    chosen = [attack_named(name) for name in (named or all_attacks())]
    names = tuple(clients) or recording.clients
    asked = _targets(recording, tuple(targets))
    whole = {t for t in asked if t.question == "property"}
    scored: list[Scored] = []
    skipped: list[Skipped] = []
    steps = [(t, c) for t in asked for c in ((EVERYBODY,) if t in whole else names)]
    asking = Counter(attack.question for attack in chosen)
    check("outcomes", sum(asking[t.question] for t, _ in steps), recording.path, FixConfig)
    for done, (target, client) in enumerate(steps):
        progress(f"{target.key} of {client or properties.EVERYBODY}", done, len(steps))
        matching = [a for a in chosen if a.question == target.question]
        if not matching:
            continue
        known = {a.name: kept.outcome(target.key, client, a.name) for a in matching}
        if all(known.values()):
            _sort([known[a.name] for a in matching], scored, skipped)
            continue
        if client in recording.clients and client not in truth:
            skipped += [_skip(a, client, target, UNSCORED) for a in matching]
            continue
        try:
            view = observe(recording, threat, target, client)
            pools = None
            if target.question == "membership":
                pools = recording.truth("Membership", target.key)
            if target in whole:
                scorer = _property_scorer(recording, target, view, seed)
            else:
                scorer = scorer_of(recipe, truth, target, view, seed, pools, rows)
        except (ListenLonger, FixData) as error:
            skipped += [_skip(a, client, target, str(error)) for a in matching]
            continue
        for attack in matching:
            outcome = known[attack.name]
            if outcome is None:
                outcome = _outcome(attack, view, scorer, target, seed, slow or attack.name in named)
                kept.keep(outcome, target.key, client, attack.name)
                known[attack.name] = outcome
            _sort([outcome], scored, skipped)
    progress("done", len(steps), len(steps))
    heard_of = {s.finding.attack for s in scored} | {s.attack for s in skipped}
    used = [a for a in chosen if a.name in heard_of]
    return Audit(
        run=_run(recording, threat, recipe, seed),
        attacks=tuple(_info(a) for a in used),
        findings=tuple(s.finding for s in scored),
        pooled=tuple(_pool(scored)),
        skipped=tuple(skipped),
        notes=(
            *_notes(recording),
            *rank_notes([s.finding for s in scored]),
            *flag_notes([s.finding for s in scored]),
        ),
    )


def _outcome(
    attack: Attack, view: View, scorer: Scorer, target: Target, seed: int, slow: bool
) -> Scored | Skipped:
    if is_slow(attack) and not slow:
        return _skip(attack, view.client, target, SLOW)
    begin = time.perf_counter()
    try:
        guess = launch(attack, view, seed)
    except NOT_RUN as error:
        return _skip(attack, view.client, target, str(error))
    return scorer(attack, guess, time.perf_counter() - begin)


def _sort(
    outcomes: Iterable[Scored | Skipped | None], scored: list[Scored], skipped: list[Skipped]
) -> None:
    for outcome in outcomes:
        if isinstance(outcome, Scored):
            scored.append(outcome)
        elif outcome is not None:
            skipped.append(outcome)


def _property_scorer(recording: Recording, target: Target, view: View, seed: int) -> Scorer:
    """What scores guesses about all clients; what nobody could guess from is refused here."""
    if Sums not in view.kinds:
        raise ListenLonger(
            f"{target.key!r} is asked of the sums of updates, which the threat model "
            f"{view.threat!r} does not hear; audit as 'secure-server'"
        )
    properties.check_heard(view)
    return properties.property_scorer(recording.truth("Property", target.key), target, view, seed)


def _notes(recording: Recording) -> tuple[str, ...]:
    stopped = "The recording was not closed: its recorder was stopped."
    said = (*clear_notes(recording), *promise_notes(recording))
    return (*said, *(() if recording.closed else (stopped,)))


def rank_notes(findings: Sequence[Finding]) -> tuple[str, ...]:
    """In words, once per secret: where there were fewer equations than unknown values."""
    groups: dict[str, list[Finding]] = {}
    for found in findings:
        rank, unknowns = found.details.get("rank"), found.details.get("unknowns")
        if isinstance(rank, int) and isinstance(unknowns, int) and rank < unknowns:
            groups.setdefault(found.attribute or found.question, []).append(found)
    notes = []
    for secret, members in groups.items():
        fewest = min(members, key=lambda f: f.details["rank"] / f.details["unknowns"])  # type: ignore[operator]
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
    groups: dict[tuple[str, str | None, str], list[Finding]] = {}
    for found in findings:
        flag = found.details.get("flag")
        if isinstance(flag, str):
            kind = flag.partition(":")[0]
            groups.setdefault((found.attack, found.attribute, kind), []).append(found)
    notes = []
    for (attack, about, _), members in groups.items():
        clients = ", ".join(f.client for f in members[:5])
        more = f" and {len(members) - 5} more" if len(members) > 5 else ""
        secret = f" on {about}" if about else ""
        notes.append(
            f"{attack}{secret} flags its own answer for {clients}{more}: "
            f"{members[0].details['flag']}."
        )
    return tuple(notes)


def _targets(recording: Recording, keys: tuple[str, ...]) -> list[Target]:
    there = [LOCAL_MODEL, *(Target.parse(key) for key in recording.targets)]
    if not keys:
        return there
    known = {t.column: t for t in there if t.question == "attribute"} | {t.key: t for t in there}
    for key in keys:
        if key not in known:
            raise FixConfig(
                f"the recording has no target {key!r}; it has {', '.join(t.key for t in there)}"
            )
    return [known[key] for key in keys]


def _pool(scored: list[Scored]) -> Iterable[Pooled]:
    groups: dict[tuple[str, str | None], list[Scored]] = {}
    for s in scored:
        groups.setdefault((s.finding.attack, s.finding.attribute), []).append(s)
    for (attack, attribute), members in groups.items():
        units = [m.units for m in members]
        n = sum(map(len, units))
        first = members[0].finding
        if first.metric == "f1":  # asked of all clients together: there is nothing to pool
            yield Pooled(**first.model_dump(include=set(Pooled.model_fields)), clients=first.n)
            continue
        value = float(np.concatenate(units).mean())
        low, high = clustered_interval(units, share=first.metric == "accuracy")
        posteriors = [m.posterior for m in members if m.posterior is not None]
        shared: dict[str, float | None] = {"majority": None, "imputation": None, "lift": None}
        if first.metric == "accuracy":
            sizes = np.array([m.finding.n for m in members])
            guess = float(np.average([m.finding.majority or 0.0 for m in members], weights=sizes))
            shared["majority"] = guess
            imputed = [m.imputed for m in members if m.imputed is not None]
            if len(imputed) == len(members):
                shared["imputation"] = float(np.concatenate(imputed).mean())
            shared["lift"] = value - max(guess, shared["imputation"] or 0.0)
        elif first.metric == "mean_absolute_error":
            low = max(low, 0.0)
            imputed = [m.imputed for m in members if m.imputed is not None]
            if len(imputed) == len(members):
                stranger = float(np.concatenate(imputed).mean())
                shared |= {"imputation": stranger, "lift": stranger - value}
        yield Pooled(
            attack=attack,
            question=first.question,
            attribute=attribute,
            metric=first.metric,
            value=value,
            low=min(low, value),
            high=max(high, value),
            clients=len(members),
            n=n,
            sure=sureness(together(posteriors), bins=True) if posteriors else None,
            **shared,
        )


def _run(recording: Recording, threat: Threat, recipe: Recipe, seed: int) -> Run:
    about = recording.about
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
        recipe=recipe.model_dump(mode="json"),
        seed=seed,
        software={name: version(name) for name in ("overheard", "numpy", "scipy", "scikit-learn")},
    )


def _info(attack: Attack) -> AttackInfo:
    needs = tuple(sorted(kind.name for kind in attack.needs))
    return AttackInfo(
        name=attack.name,
        question=attack.question,
        paper=attack.paper,
        needs=needs,
        words=words(attack),
        equation=equation(attack),
    )


def _skip(attack: Attack, client: str, target: Target, reason: str) -> Skipped:
    return Skipped(
        attack=attack.name,
        client=client or properties.EVERYBODY,
        attribute=target.column or None,
        reason=reason,
    )
