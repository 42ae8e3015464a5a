"""How often does an audit call something exposed where there is nothing to learn?

Real attacks listen to simulated federations, with and without noise that drowns every message.
What they answer is then scored against coin flips, of which no message tells anything, by the
product's own scores, p-values and verdicts; imputation that guesses at random is set beside half of
them. Whatever is called exposed is false: at most 5 of 100 audits may do so, and at most 15 call
something unclear, however many clients there are. Beside it: how often one of the single looks
would have been called exposed by its own 95% interval.

Listening is what takes long, and does not depend on the flips: a few clients of every federation
are listened to, and their answers stand for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from scipy.stats import binomtest

from experiments.recordings import coin_flips, recorded
from experiments.robustness.promises import total, tried
from experiments.runner import Cell, Experiment, Result, cell
from overheard.attacks import all_attacks, attack_named, is_slow, listens
from overheard.evaluation.baselines import Imputed, Imputer
from overheard.evaluation.checkpoint import NOT_RUN
from overheard.evaluation.decision import EXPOSED
from overheard.evaluation.record import AttackInfo, Audit, Run
from overheard.evaluation.scoring import Case, pooled
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records
from overheard.transcript.kind import recipe_of
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import Attack, View, launch, observe

SHAPES = ((6, 30), (20, 100), (100, 30))
AUDITS = 42
"""A cell, of twelve: 504 in all."""
HEARD = 6
"""Clients of a federation that are listened to."""
ROUNDS = 4


@dataclass(frozen=True)
class Listened:
    """What the attacks answered about one federation's clients."""

    recipe: Recipe
    truth: dict[str, Records]
    views: dict[str, View]
    answers: dict[str, list[tuple[Attack, Any]]]


def listened(clients: int, records: int, model: str, noise: float) -> Listened:
    """Simulate a federation and let every attack on attributes loose on it: people whose attribute
    is in the model, so that every attack has something to say."""
    drawn = coin_flips(clients, records, {"name": model}, ROUNDS, noise, seed=0)
    with recorded(*drawn) as recording:
        recipe, truth = recipe_of(recording), recording.truth()
        assert recipe is not None
        views = {c: observe(recording, EAVESDROPPER, attribute("s"), c) for c in recording.clients}
        attacks = [attack_named(n) for n, a in all_attacks().items() if a.question == "attribute"]
        observed = [list(_answers(attacks, view)) for view in list(views.values())[:HEARD]]
    return Listened(
        recipe, truth, views, {c: observed[k % len(observed)] for k, c in enumerate(views)}
    )


def _answers(attacks: list[Attack], view: View) -> Iterator[tuple[Attack, Any]]:
    for attack in attacks:
        if not is_slow(attack):
            try:
                yield attack, launch(attack, view, 0)
            except NOT_RUN:
                continue


def null_audit(observed: Listened, rng: np.random.Generator, imputed: bool) -> Audit:
    """The answers, scored against coin flips."""
    flips = {c: (rng.random(len(r)) < 0.5).astype(np.float64) for c, r in observed.truth.items()}
    faked = {c: Records({**r.columns, "s": flips[c]}) for c, r in observed.truth.items()}

    class Guessing(Imputer):
        """Imputation that guesses at random, or none."""

        def values(self, recipe: Any, truth: Any, client: str, *rest: Any) -> Imputed | None:
            if not imputed:
                return None
            p = rng.uniform(0.3, 0.7, len(flips[client]))
            given = np.where(flips[client] > 0, p, 1 - p)
            return Imputed((given > 0.5).astype(np.float64), np.log2(given))

    scored, imputer = [], Guessing()
    for client, view in observed.views.items():
        scorer = Case(observed.recipe, faked, attribute("s"), view, 0, None, imputer).scorer()
        scored += [scorer(attack, guess, 0.0) for attack, guess in observed.answers[client]]
    used = {a.name: a for a, _ in next(iter(observed.answers.values()))}
    findings, over_all = pooled(scored, frozenset(n for n, a in used.items() if listens(a)))
    infos = [
        AttackInfo(name=n, question="attribute", paper=a.paper, words="",
                   needs=tuple(kind.name for kind in a.needs))
        for n, a in used.items()
    ]  # fmt: skip
    run = Run(
        recording="r", data="d", origin="o", clients=tuple(observed.views), rounds=ROUNDS,
        closed=True, threat="eavesdropper", threat_words="", knows=(), recipe={}, seed=0,
        software={},
    )  # fmt: skip
    return Audit(run=run, attacks=tuple(infos), findings=findings, pooled=over_all, skipped=())


def unpaid(audit: Audit) -> bool:
    """Would some single look have said "exposed" by its own interval?"""
    return any(
        f.attack in audit.listening and f.low > max(f.majority or 0.0, f.imputation or 0.0)
        for f in audit.findings
    )


def null_audits(each: Cell) -> dict[str, Any]:
    """Some audits of one federation: what they call exposed or unclear."""
    observed = listened(each["clients"], each["records"], each["model"], each["noise"])
    rng = np.random.default_rng([each.seed, each["clients"], each["records"]])
    audits = [null_audit(observed, rng, trial % 2 == 1) for trial in range(each["audits"])]
    levels = [{s.level for s in audit.secrets} for audit in audits]
    exposed = sum(EXPOSED in found for found in levels)
    values = tried(len(audits), exposed, f"{exposed} called exposed")
    unclear = sum("unclear" in found - {EXPOSED} for found in levels)
    return values | {"unclear": unclear, "single": sum(map(unpaid, audits))}


def _cells() -> list[Cell]:
    worlds = product(SHAPES, ("linear", "logistic"), (0.0, 1000.0))
    return [
        cell(cost=60, quick=shape == SHAPES[0] and not noise, clients=shape[0],
             records=shape[1], model=model, noise=noise, audits=AUDITS)
        for shape, model, noise in worlds
    ]  # fmt: skip


def _came(found: Sequence[Result]) -> str:
    audits = total(found, "trials")
    shares = [f"{total(found, name) / audits:.1%}" for name in ("faults", "unclear", "single")]
    ends = binomtest(total(found, "faults"), audits).proportion_ci(method="wilson")
    return (
        f"{shares[0]} ({ends.low:.1%} to {ends.high:.1%}) called something exposed, {shares[1]} "
        f"unclear; a single look's own interval would have called it exposed in {shares[2]}"
    )


EXPERIMENTS = (
    Experiment(
        "robustness-null",
        "audits in which there is nothing to learn",
        null_audits,
        _cells,
        must="Where nothing leaks at most 5 of 100 audits say exposed, and at most 15 unclear",
        came=_came,
    ),
)
