"""The audit: run every attack whose needs are met, score it, compare it with not listening."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks import all_attacks, attack_named, equation, is_slow, listens, words
from overheard.errors import FixConfig, FixData, ListenLonger
from overheard.evaluation import properties
from overheard.evaluation.attempt import NOT_RUN, attempt, check_budget
from overheard.evaluation.decision import CLOSE, Topic, topic_of
from overheard.evaluation.evidence import pooled_evidence, share_p_value, smaller_p_value
from overheard.evaluation.intervals import clustered_interval
from overheard.evaluation.kept import NOTHING_KEPT, Kept
from overheard.evaluation.notes import notes_of
from overheard.evaluation.pace import Pace, scope
from overheard.evaluation.record import (
    SHARES,
    AttackInfo,
    Audit,
    Failed,
    Finding,
    Pooled,
    Run,
    Skipped,
)
from overheard.evaluation.replay import replays
from overheard.evaluation.scoring import Scored, Scorer, scorer_of
from overheard.evaluation.sureness import joined, sureness
from overheard.foreign.limits import check
from overheard.learning.recipe import Recipe
from overheard.transcript.knowledge import Sums
from overheard.transcript.observe import EVERYBODY, observe, recipe_of
from overheard.transcript.store import Recording
from overheard.transcript.target import LOCAL_MODEL, Target
from overheard.transcript.threat import Threat
from overheard.transcript.view import Attack, View, launch

Array = NDArray[np.float64]
Progress = Callable[[str, int, int], None]
UNSCORED = "truth/ has no records of this client, so a guess about it cannot be scored"
SLOW = "a slow search, not run by default; name it with --attack, or run all with --slow"


def audit(
    recording: Recording,
    threat: Threat,
    attacks: Iterable[str | Attack] = (),
    clients: Iterable[str] = (),
    targets: Iterable[str] = (),
    seed: int = 0,
    slow: bool = False,
    progress: Progress = lambda what, done, total: None,
    rows: bool = False,
    kept: Kept = NOTHING_KEPT,
    budget: float | None = None,
) -> Audit:
    """Audit a recording under a threat model; empty selections mean everything there is.

    ``attacks``: names, or attacks with settings of their own (``LearnedMap(epochs=50)``).
    Attacks that search for minutes (``slow``) run when named or with ``slow=True``; otherwise they
    are listed as skipped. One that ends in an error is listed as failed, and the others run.
    ``budget``: seconds for each attack on each client, after which it is ended and listed as
    skipped (`evaluation.attempt.within` says how). ``rows``: put the row numbers of the records
    known beyond 99% into the record, a few per client; by default it holds nothing about single
    records. ``progress``: told what begins, how many steps are done and how many there are.

    ``kept``: what an audit with the same arguments found before it was stopped, and where this one
    keeps what it finds.

    Same recording, selection and seed: the same record, the measured seconds aside, and what a
    budget ends.
    """
    check_budget(budget)
    if not recording.rounds:
        raise FixConfig(f"{recording.path}: no round was recorded; there is nothing to audit")
    recipe = recipe_of(recording)
    if recipe is None:
        raise FixConfig(
            f"{recording.path}: has no training recipe, without which nothing is scored"
        )
    truth = recording.truth()
    given = tuple(attacks)
    chosen = chosen_attacks(given)
    named = {a.name for a in chosen} if given else set()
    names = _clients(recording, tuple(clients))
    asked = _targets(recording, tuple(targets))
    whole = {t for t in asked if t.question == "property"}
    scored: list[Scored] = []
    skipped: list[Skipped] = []
    failed: list[Failed] = []
    steps = [(t, c) for t in asked for c in ((EVERYBODY,) if t in whole else names)]
    about = {t: [a for a in chosen if a.question == t.question] for t in asked}
    sizes = {c: len(truth[c]) for c in names if c in truth}
    pace, left = Pace(), _work(steps, about, sizes)
    check("outcomes", sum(len(about[t]) for t, _ in steps), recording.path, FixConfig)
    asking = {a.name for of in about.values() for a in of}
    progress(scope([*sizes.values()], len(recording.rounds), len(asking)), 0, len(steps))
    for done, (target, client) in enumerate(steps):
        step, matching = f"{target.key} of {client or properties.EVERYBODY}", about[target]
        progress(step + pace.left(left), done, len(steps))
        records = sizes.get(client, 0)
        left.subtract(dict.fromkeys((a.name for a in matching), records))
        if not matching:
            continue
        known = {a.name: kept.outcome(target.key, client, key_of(a)) for a in matching}
        if all(known.values()):
            _sort([known[a.name] for a in matching], scored, skipped, failed)
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
                run = slow or attack.name in named or not is_slow(attack)
                if run and pace.worth_saying(attack.name, records):
                    progress(f"{step}: {attack.name}", done, len(steps))
                begin = time.perf_counter()
                outcome = _outcome(attack, view, scorer, target, seed, run, budget)
                pace.note(attack.name, records, time.perf_counter() - begin)
                kept.keep(outcome, target.key, client, key_of(attack))
                known[attack.name] = outcome
            _sort([outcome], scored, skipped, failed)
    progress("done", len(steps), len(steps))
    heard_of = {s.finding.attack for s in scored} | {s.attack for s in (*skipped, *failed)}
    used = [a for a in chosen if a.name in heard_of]
    listening = frozenset(a.name for a in used if listens(a))
    findings, pooled = together(scored, listening)
    return Audit(
        run=_run(recording, threat, recipe, seed),
        attacks=tuple(_info(a) for a in used),
        findings=findings,
        pooled=pooled,
        skipped=tuple(skipped),
        failed=tuple(failed),
        replays=replays(recording, recipe, truth, names, seed, kept) if whole < {*asked} else (),
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

    client, column = view.client or properties.EVERYBODY, target.column or None
    try:
        return attempt(run, attack.name, client, column, budget=budget)
    except NOT_RUN as error:
        return _skip(attack, view.client, target, str(error))


def _work(
    steps: Iterable[tuple[Target, str]],
    about: Mapping[Target, Sequence[Attack]],
    sizes: Mapping[str, int],
) -> Counter[str]:
    """How many records each attack is going to be asked about."""
    work: Counter[str] = Counter()
    for target, client in steps:
        work.update(dict.fromkeys((a.name for a in about[target]), sizes.get(client, 0)))
    return work


def _sort(
    outcomes: Iterable[Scored | Skipped | Failed | None],
    scored: list[Scored],
    skipped: list[Skipped],
    failed: list[Failed],
) -> None:
    for outcome in outcomes:
        if isinstance(outcome, Scored):
            scored.append(outcome)
        elif isinstance(outcome, Failed):
            failed.append(outcome)
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
    if not recording.holds_truth("Property", target.key):
        raise FixData(
            f"truth/ does not say which clients have {target.column!r}, so a guess cannot be "
            "scored; `overheard detect` lists the suspects"
        )
    return properties.property_scorer(recording.truth("Property", target.key), target, view, seed)


def _clients(recording: Recording, names: tuple[str, ...]) -> tuple[str, ...]:
    if unknown := [name for name in names if name not in recording.clients]:
        raise FixConfig(f"no client {unknown[0]!r}; the clients are {', '.join(recording.clients)}")
    return names or recording.clients


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
    free: dict[tuple[Topic, str], list[Array]] = {}
    for s in scored:
        if s.finding.attack not in listening:
            free.setdefault((topic_of(s.finding), s.finding.client), []).append(s.units)
    return [_with_p_value(s, free.get((topic_of(s.finding), s.finding.client), [])) for s in scored]


def _with_p_value(scored: Scored, free: Sequence[Array]) -> Scored:
    found = scored.finding
    if found.metric in SHARES or found.flag:
        return scored
    against = _rivals(found.metric, scored.imputed, free)
    if not against:
        return scored
    p = max(smaller_p_value(scored.units, than) for than in against)
    return replace(scored, finding=found.model_copy(update={"p_value": p}))


def _rivals(metric: str, imputed: Array | None, free: Sequence[Array]) -> list[Array | float]:
    close: list[Array | float] = [CLOSE] if metric == "excess_loss" else []
    return [*close, *free, *([] if imputed is None else [imputed])]


def _pool(scored: Sequence[Scored], listening: frozenset[str]) -> Iterable[Pooled]:
    groups: dict[tuple[Topic, str], list[Scored]] = {}
    for s in scored:
        groups.setdefault((topic_of(s.finding), s.finding.attack), []).append(s)
    free: dict[Topic, list[dict[str, Array]]] = {}
    for (topic, attack), members in groups.items():
        if attack not in listening:
            units = {m.finding.client: m.units for m in members}
            free.setdefault(topic, []).append(units)
    for (topic, attack), members in groups.items():
        reliable = [m for m in members if not m.finding.flag]
        pooled = _pooled(attack, reliable or members, free.get(topic, []))
        flag = "" if reliable else members[0].finding.flag
        yield pooled.model_copy(update={"flagged": len(members) - len(reliable), "flag": flag})


def _pooled(attack: str, members: Sequence[Scored], free: Sequence[Mapping[str, Array]]) -> Pooled:
    """One attack's findings about several clients as one."""
    first = members[0].finding
    if first.metric == "f1":  # asked of all clients together: there is nothing to pool
        own = first.model_dump(include=set(Pooled.model_fields) - {"flag", "oversure"})
        return Pooled(**own, clients=first.n)
    units = np.concatenate([m.units for m in members])
    value, share = float(units.mean()), first.metric == "accuracy"
    low, high = clustered_interval([m.units for m in members], share=share)
    posteriors = [m.posterior for m in members if m.posterior is not None]
    imputed = [m.imputed for m in members if m.imputed is not None]
    stranger = np.concatenate(imputed) if len(imputed) == len(members) else None
    told: dict[str, Any] = {
        "imputation": None if stranger is None else float(stranger.mean()),
        "oversure": next((m.finding.oversure for m in members if m.finding.oversure), ""),
        "sure": sureness(joined(posteriors), bins=True) if posteriors else None,
    }
    if share:
        sizes = np.array([m.finding.n for m in members])
        majority = float(np.average([m.finding.majority or 0.0 for m in members], weights=sizes))
        told |= {"majority": majority, "lift": value - max(majority, told["imputation"] or 0.0)}
        gains = [m.finding.evidence for m in members]
        whole = [gain for gain in gains if gain is not None]
        told["evidence"] = sum(whole) if len(whole) == len(gains) else None
        # of many chances the binomial of their mean has the longest tail (Hoeffding 1956)
        chances = [max(m.finding.majority or 0.0, m.finding.imputation or 0.0) for m in members]
        chance = float(np.average(chances, weights=sizes))
        claims = bool(whole) or any(m.finding.oversure for m in members)
        bits = pooled_evidence(gains) if claims else None
        told["p_value"] = share_p_value(int(units.sum()), len(units), chance, bits)
    else:
        low = max(low, 0.0)  # neither an error nor an excess over the optimum is negative
        if first.metric == "mean_absolute_error":
            told["lift"] = None if stranger is None else told["imputation"] - value
        clients = [m.finding.client for m in members]
        guesses = [
            np.concatenate([units[c] for c in clients])
            for units in free
            if set(clients) <= set(units)
        ]
        against = _rivals(first.metric, stranger, guesses)
        if against:
            told["p_value"] = max(smaller_p_value(units, than) for than in against)
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
