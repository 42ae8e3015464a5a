"""The audit: run every attack whose needs are met, score it, compare it with not listening."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks import all_attacks, attack_named, equation, is_slow, listens, words
from overheard.errors import FixConfig, FixData, ListenLonger
from overheard.evaluation.attempt import NOT_RUN, Progress, attempt, check_budget, scope, silent
from overheard.evaluation.baselines import Imputer
from overheard.evaluation.calibration import calibration, joined
from overheard.evaluation.decision import pooled_evidence, share_p_value, smaller_p_value
from overheard.evaluation.intervals import clustered_interval
from overheard.evaluation.notes import notes_of
from overheard.evaluation.record import AttackInfo, Audit, Failed, Finding, Pooled, Run, Skipped
from overheard.evaluation.replay import replays
from overheard.evaluation.resume import NOTHING_KEPT, Kept
from overheard.evaluation.scoring import ALL_CLIENTS, Scored, Scorer, Scoring, answers_in, scorer_of
from overheard.foreign.limits import check
from overheard.programs.program import Told
from overheard.questions.question import Metric, by_question, grouped
from overheard.transcript.kind import EVERYBODY, told_of
from overheard.transcript.store import Recording
from overheard.transcript.target import Target, chosen_targets, targets_in
from overheard.transcript.threat import Threat
from overheard.transcript.view import Attack, View, launch, observe

Array = NDArray[np.float64]
UNSCORED = "truth/ has no records of this client, so a guess about it cannot be scored"
SLOW = "a slow search, not run by default; name it with --attack, or run all with --slow"


@dataclass(frozen=True)
class AuditOptions:
    """How an audit is done.

    ``slow``: attacks that search for minutes run also when they are not named; otherwise they are
    listed as skipped. ``budget``: seconds for each attack on each client, after which it is ended
    and listed as skipped (`evaluation.attempt.within` says how). ``rows``: put the row numbers of
    the records known beyond 99% into the record, a few per client; by default it holds nothing
    about single records. ``progress``: told what begins, how many steps are done and how many there
    are.

    ``share``: only every n-th (target, client) and every n-th replay, from the k-th on, as (k, n):
    several processes that keep what they find in one place do an audit together. ``imputer``: what
    was fitted for the imputation baselines already, of the same recording and seed.

    Of the whole audit only (`evaluation.complete`): ``rounds``, what the first rounds alone would
    have told; ``ladder``, what adversaries learn who know less and less of the clients
    (`evaluation.rungs`), of whose columns ``demographics`` are in registers (none named: those that
    are called so).
    """

    seed: int = 0
    slow: bool = False
    budget: float | None = None
    rows: bool = False
    progress: Progress = field(default_factory=lambda: silent)
    rounds: bool = True
    ladder: bool = False
    demographics: tuple[str, ...] = ()
    share: tuple[int, int] = (0, 1)
    imputer: Imputer | None = None


def audit(
    recording: Recording,
    threat: Threat,
    attacks: Iterable[str | Attack] = (),
    clients: Iterable[str] = (),
    targets: Iterable[str] = (),
    options: AuditOptions = AuditOptions(),
    kept: Kept = NOTHING_KEPT,
) -> Audit:
    """Audit a recording under a threat model; empty selections mean everything there is.

    ``attacks``: names, or attacks with settings of their own (``LearnedMap(epochs=50)``). One that
    ends in an error is listed as failed, and the others run. ``kept``: what an audit with the same
    arguments found before it was stopped, and where this one keeps what it finds.

    Same recording, selection and seed: the same record, the measured seconds aside, and what a
    budget ends.
    """
    seed, budget, progress = options.seed, options.budget, options.progress
    check_budget(budget)
    if not recording.rounds:
        raise FixConfig(f"{recording.path}: no round was recorded; there is nothing to audit")
    recipe = told_of(recording)
    if recipe is None:
        raise FixConfig(
            f"{recording.path}: has no training recipe, without which nothing is scored"
        )
    truth = recording.truth()
    given = tuple(attacks)
    chosen = chosen_attacks(given)
    named = {a.name for a in chosen} if given else set()
    names, asked = tuple(clients) or recording.clients, targets_in(recording.targets)
    if unknown := set(names) - set(recording.clients):
        them = ", ".join(recording.clients)
        raise FixConfig(f"no client {min(unknown)!r}; the clients are {them}")
    if keys := tuple(targets):
        asked = chosen_targets(asked, keys, "the recording")
    whole = {t for t in asked if t.asked.together}
    how = Scoring(options.rows, options.imputer or Imputer(seed))
    outcomes: list[Scored | Skipped | Failed] = []
    steps = [(t, c) for t in asked for c in ((EVERYBODY,) if t in whole else names)]
    first, every = options.share
    steps = steps[first::every]
    attacking = by_question(chosen)
    about = {t: attacking.get(t.question, []) for t in asked}
    sizes = {c: len(truth[c]) for c in names if c in truth}
    check("outcomes", sum(len(about[t]) for t, _ in steps), recording.path, FixConfig)
    asking = {a.name for of in about.values() for a in of}
    progress(scope([*sizes.values()], len(recording.rounds), len(asking)), 0, len(steps))
    for done, (target, client) in enumerate(steps):
        step, matching = f"{target.key} of {client or ALL_CLIENTS}", about[target]
        progress(step, done, len(steps))
        if not matching:
            continue
        known = [kept.outcome(target.key, client, key_of(a)) for a in matching]
        there = [outcome for outcome in known if outcome]
        if len(there) == len(known):
            outcomes += there
            continue
        if client in recording.clients and client not in truth:
            outcomes += [_skip(a, client, target, UNSCORED) for a in matching]
            continue
        try:
            view = observe(recording, threat, target, client)
            answers = answers_in(recording, target)
            scorer = scorer_of(recipe, truth, target, view, seed, answers, how)
        except (ListenLonger, FixData) as error:
            outcomes += [_skip(a, client, target, str(error)) for a in matching]
            continue
        for attack, outcome in zip(matching, known, strict=True):
            if outcome is None:
                run = options.slow or attack.name in named or not is_slow(attack)
                if run and listens(attack):  # guesses take no time
                    progress(f"{step}: {attack.name}", done, len(steps))
                outcome = _outcome(attack, view, scorer, target, seed, run, budget)
                kept.keep(outcome, target.key, client, key_of(attack))
            outcomes.append(outcome)
    progress("done", len(steps), len(steps))
    scored = [outcome for outcome in outcomes if isinstance(outcome, Scored)]
    unscored = [outcome for outcome in outcomes if not isinstance(outcome, Scored)]
    asked_of = {s.finding.attack for s in scored} | {u.attack for u in unscored}
    used = [a for a in chosen if a.name in asked_of]
    listening = frozenset(a.name for a in used if listens(a))
    findings, pooled = together(scored, listening)
    these = (recording, recipe, truth, names, seed, kept, options.share)
    replayed = replays(*these) if whole < {*asked} else ()
    return Audit(
        run=_run(recording, threat, recipe, seed),
        attacks=tuple(_info(a) for a in used),
        findings=findings,
        pooled=pooled,
        skipped=tuple(u for u in unscored if isinstance(u, Skipped)),
        failed=tuple(u for u in unscored if isinstance(u, Failed)),
        replays=replayed,
        notes=notes_of(recording, findings),
    )


def key_of(attack: Attack) -> str:
    """What an attack's results are kept under: its name and, where they are its own, settings."""
    return attack.name if attack == all_attacks().get(attack.name, object)() else repr(attack)


def chosen_attacks(attacks: Iterable[str | Attack]) -> list[Attack]:
    """The attacks meant, each once; all there are where none is given."""
    chosen = [attack_named(a) if isinstance(a, str) else a for a in (attacks or all_attacks())]
    names = Counter(a.name for a in chosen)
    if twice := [name for name, times in names.items() if times > 1]:
        raise FixConfig(f"attack {twice[0]!r} is given twice; an audit runs each of a name once")
    return chosen


def _outcome(
    attack: Attack,
    view: View,
    scorer: Scorer,
    target: Target,
    seed: int,
    wanted: bool,
    budget: float | None,
) -> Scored | Skipped | Failed:
    if not wanted:
        return _skip(attack, view.client, target, SLOW)

    def run() -> Scored:
        begin = time.perf_counter()
        guess = launch(attack, view, seed)
        return scorer(attack, guess, time.perf_counter() - begin)

    client, column = view.client or ALL_CLIENTS, target.column or None
    try:
        return attempt(run, attack.name, client, column, budget=budget)
    except NOT_RUN as error:
        return _skip(attack, view.client, target, str(error))


def together(
    scored: Sequence[Scored], listening: frozenset[str]
) -> tuple[tuple[Finding, ...], tuple[Pooled, ...]]:
    """The findings with their p-values, and every attack over all clients together.

    ``listening``: names of what listened; the others are what it is compared with.
    """
    tested = _tested(scored, listening)
    return tuple(s.finding for s in tested), tuple(_pool(tested, listening))


def _tested(scored: Sequence[Scored], listening: frozenset[str]) -> list[Scored]:
    """Losses and errors with their p-values: against everybody on the same client who does not
    listen, and, for the client's own model, against what still counts as it."""
    guesses = (s for s in scored if s.finding.attack not in listening)
    free = grouped(guesses, lambda s: (s.finding.topic, s.finding.client))
    tested = []
    for s in scored:
        found = s.finding
        if not found.measure.share and not found.flag:
            against = [guess.units for guess in free.get((found.topic, found.client), [])]
            p = _p_value(found.measure, s.units, s.imputed, against)
            s = replace(s, finding=found.model_copy(update={"p_value": p}))
        tested.append(s)
    return tested


def _p_value(
    metric: Metric, units: Array, imputed: Array | None, free: Sequence[Array]
) -> float | None:
    """That the scores leak no more than the limit, and those of everybody who does not listen."""
    against: list[Array | float] = [*free, *([] if imputed is None else [imputed])]
    against += [] if metric.limit is None else [metric.limit]
    turned = -metric.sign
    return max((smaller_p_value(turned * units, turned * than) for than in against), default=None)


def _pool(scored: Sequence[Scored], listening: frozenset[str]) -> Iterable[Pooled]:
    groups = grouped(scored, lambda s: (s.finding.topic, s.finding.attack))
    guessed = [(key[0], of) for key, of in groups.items() if key[1] not in listening]
    free = [(topic, {m.finding.client: m.units for m in of}) for topic, of in guessed]
    for (topic, attack), members in groups.items():
        reliable = [m for m in members if not m.finding.flag]
        pooled = _pooled(attack, reliable or members, [own for t, own in free if t == topic])
        flag = "" if reliable else members[0].finding.flag
        yield pooled.model_copy(update={"flagged": len(members) - len(reliable), "flag": flag})


def _pooled(attack: str, members: Sequence[Scored], free: Sequence[Mapping[str, Array]]) -> Pooled:
    first, metric = members[0].finding, members[0].finding.measure
    if first.topic.together:  # there is nothing to pool
        own = first.model_dump(include=set(Pooled.model_fields) - {"flag", "overconfident"})
        return Pooled(**own, clients=first.n)
    units = np.concatenate([m.units for m in members])
    value = float(units.mean())
    low, high = clustered_interval([m.units for m in members], share=metric.hits)
    low = max(low, 0.0)
    posteriors = [m.posterior for m in members if m.posterior is not None]
    imputed = [m.imputed for m in members if m.imputed is not None]
    by_imputation = np.concatenate(imputed) if len(imputed) == len(members) else None
    contradicted = [m.finding.overconfident for m in members if m.finding.overconfident]
    told: dict[str, Any] = {
        "imputation": None if by_imputation is None else float(by_imputation.mean()),
        "overconfident": next(iter(contradicted), ""),
        "calibration": calibration(joined(posteriors), bins=True) if posteriors else None,
    }
    if metric.share:
        sizes = np.array([m.finding.n for m in members])
        majority = float(np.average([m.finding.majority or 0.0 for m in members], weights=sizes))
        told |= {"majority": majority, "lift": value - max(majority, told["imputation"] or 0.0)}
        gains = [m.finding.evidence for m in members]
        whole = [gain for gain in gains if gain is not None]
        told["evidence"] = sum(whole) if len(whole) == len(gains) else None
        # of many chances the binomial of their mean has the longest tail (Hoeffding 1956)
        chances = [max(m.finding.majority or 0.0, m.finding.imputation or 0.0) for m in members]
        chance = float(np.average(chances, weights=sizes))
        claims = bool(whole) or bool(contradicted)
        bits = pooled_evidence(gains) if claims else None
        if metric.hits:
            told["p_value"] = share_p_value(int(units.sum()), len(units), chance, bits)
    else:
        told["lift"] = None if by_imputation is None else metric.gain(value, told["imputation"])
        clients = [m.finding.client for m in members]
        guesses = [
            np.concatenate([own[c] for c in clients]) for own in free if set(clients) <= set(own)
        ]
        told["p_value"] = _p_value(metric, units, by_imputation, guesses)
    return Pooled(
        attack=attack,
        question=first.question,
        attribute=first.attribute,
        metric=first.metric,
        value=value,
        low=min(low, value),
        high=max(high, value),
        clients=len(members),
        n=len(units),
        **told,
    )


def _run(recording: Recording, threat: Threat, recipe: Told, seed: int) -> Run:
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
    shared = {name: getattr(attack, name) for name in ("name", "question", "paper")}
    return AttackInfo(**shared, needs=needs, words=words(attack), equation=equation(attack))


def _skip(attack: Attack, client: str, target: Target, reason: str) -> Skipped:
    whom, what = client or ALL_CLIENTS, target.column or None
    return Skipped(attack=attack.name, client=whom, attribute=what, reason=reason)
