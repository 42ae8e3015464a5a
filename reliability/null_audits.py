"""How often does an audit call something exposed where there is nothing to learn?

    python -m reliability.null_audits [--trials 500] [--seed 0]

Real attacks listen to simulated federations, with and without noise that drowns every message.
What they answer is then scored against coin flips, of which no message tells anything, by the
product's own scores, p-values and verdicts; a stranger who guesses at random is set beside half of
them. Whatever is called exposed is false. At most 5 of 100 audits may do so, however many clients
there are. Beside it: how often one of the single looks would have been called exposed by its own
95% interval, which is what an audit that does not pay for its looks would say.

Listening is what takes long, and does not depend on the flips: a few clients of every federation
are listened to, and their answers stand for all.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

from benchmarks.frame import Row, counted, federation, finish, options, people
from overheard.attacks import all_attacks, attack_named, is_slow, listens
from overheard.evaluation.attempt import NOT_RUN
from overheard.evaluation.audit import together
from overheard.evaluation.baselines import Imputed, Imputer
from overheard.evaluation.decision import EXPOSED
from overheard.evaluation.record import AttackInfo, Audit, Run
from overheard.evaluation.scoring import Scoring, scorer_of
from overheard.programs.records import Records
from overheard.transcript.kind import recipe_of
from overheard.transcript.store import Recording
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import Attack, View, launch, observe

SHAPES = ((6, 30), (20, 100), (100, 30))
ALLOWED = 0.05
HEARD = 6
"""Clients of a federation that are listened to."""
ROUNDS = 4
WORLDS: tuple[dict[str, Any], ...] = tuple(
    {"model": model, "noise": noise} for model in ("linear", "logistic") for noise in (0.0, 1000.0)
)


@dataclass(frozen=True)
class Listened:
    """What the attacks answered about one federation's clients."""

    recording: Recording
    views: dict[str, View]
    answers: dict[str, list[tuple[Attack, Any]]]


def listened(
    path: Path, clients: int, records: int, model: str, noise: float, seed: int
) -> Listened:
    """Simulate a federation and let every attack on attributes loose on it: people whose attribute
    is in the model, so that every attack has something to say."""
    rng = np.random.default_rng(seed)
    rows = clients * records
    s, x = (rng.random(rows) < 0.5).astype(np.float64), rng.normal(size=(rows, 3))
    y = x @ rng.normal(size=3) + s + rng.normal(size=rows)
    classes = model == "logistic"
    columns = {f"x{j}": x[:, j] for j in range(3)} | {"s": s, "at": np.arange(rows) % clients}
    columns["y"] = (y > 0.5).astype(np.float64) if classes else y
    content: dict[str, Any] = {
        "seed": seed,
        "data": {"source": "file"},
        "model": {"name": model},
        "training": {"rounds": ROUNDS, "learning_rate": 0.1},
        "audit": {"attributes": ["s"]},
        "defence": [{"name": "gaussian", "sd": noise}] if noise else [],
    }
    recording = federation(content, people(columns, classes), path)
    views = {c: observe(recording, EAVESDROPPER, attribute("s"), c) for c in recording.clients}
    attacks = [attack_named(n) for n, a in all_attacks().items() if a.question == "attribute"]
    heard = [list(_answers(attacks, view)) for view in list(views.values())[:HEARD]]
    answers = {c: heard[k % len(heard)] for k, c in enumerate(views)}
    return Listened(recording, views, answers)


def _answers(attacks: list[Attack], view: View) -> Iterator[tuple[Attack, Any]]:
    for attack in attacks:
        if not is_slow(attack):
            try:
                yield attack, launch(attack, view, 0)
            except NOT_RUN:
                continue


def null_audit(heard: Listened, rng: np.random.Generator, stranger: bool) -> Audit:
    """The answers, scored against coin flips."""
    recording = heard.recording
    recipe, truth = recipe_of(recording), recording.truth()
    assert recipe is not None
    flips = {c: (rng.random(len(r)) < 0.5).astype(np.float64) for c, r in truth.items()}
    faked = {c: Records({**r.columns, "s": flips[c]}) for c, r in truth.items()}

    class Guessing(Imputer):
        """Guesses at random where a stranger does, and else not at all."""

        def values(self, recipe: Any, truth: Any, client: str, *rest: Any) -> Imputed | None:
            if not stranger:
                return None
            p = rng.uniform(0.3, 0.7, len(flips[client]))
            given = np.where(flips[client] > 0, p, 1 - p)
            return Imputed((given > 0.5).astype(np.float64), np.log2(given))

    scored, how = [], Scoring(imputer=Guessing(0))
    for client, view in heard.views.items():
        scorer = scorer_of(recipe, faked, attribute("s"), view, 0, None, how)
        scored += [scorer(attack, guess, 0.0) for attack, guess in heard.answers[client]]
    used = {a.name: a for a, _ in next(iter(heard.answers.values()))}
    findings, pooled = together(scored, frozenset(n for n, a in used.items() if listens(a)))
    infos = [
        AttackInfo(
            name=name,
            question="attribute",
            paper=attack.paper,
            needs=tuple(kind.name for kind in attack.needs),
            words="",
        )
        for name, attack in used.items()
    ]
    run = Run(
        recording="r", data="d", origin="o", clients=tuple(heard.views), rounds=ROUNDS, closed=True,
        threat="eavesdropper", threat_words="", knows=(), recipe={}, seed=0, software={},
    )  # fmt: skip
    return Audit(run=run, attacks=tuple(infos), findings=findings, pooled=pooled, skipped=())


def unpaid(audit: Audit) -> bool:
    """Would some single look have said "exposed" by its own interval?"""
    return any(
        f.attack in audit.listening and f.low > max(f.majority or 0.0, f.imputation or 0.0)
        for f in audit.findings
    )


def rates(clients: int, records: int, audits: int, seed: int, folder: Path) -> Row:
    """One shape: how many of so many audits were wrong, as a row of the table."""
    worlds = [
        listened(folder / f"{clients}-{records}-{k}", clients, records, seed=seed + k, **world)
        for k, world in enumerate(WORLDS)
    ]
    rng = np.random.default_rng([seed, clients, records])
    wrong = single = 0
    for trial in range(audits):
        audit = null_audit(worlds[trial % len(worlds)], rng, stranger=trial % 8 >= 4)
        wrong += any(s.level == EXPOSED for s in audit.secrets)
        single += unpaid(audit)
    interval = binomtest(wrong, audits).proportion_ci(method="wilson")
    names = sorted({a.name for w in worlds for found in w.answers.values() for a, _ in found})
    attacks = ", ".join(name for name in names if listens(all_attacks()[name]))
    good = "as it must be" if interval.low <= ALLOWED else "WRONG"
    return counted(
        f"{clients} clients of {records} records; {attacks}",
        audits,
        wrong,
        f"{wrong / audits:.1%} of audits ({interval.low:.1%} to {interval.high:.1%}) called "
        f"something exposed (at most {ALLOWED:.0%} asked): {good}. A single look's own 95% "
        f"interval would have, in {single / audits:.1%} of audits.",
    )


def main() -> int:
    given = options(__doc__, __file__, trials=500, seed=0)
    with tempfile.TemporaryDirectory() as folder:
        rows = [rates(*shape, given.trials, given.seed, Path(folder)) for shape in SHAPES]
    finish(given, "Audits in which there is nothing to learn, and what they call exposed", rows)
    return int(any("WRONG" in row["outcome"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
