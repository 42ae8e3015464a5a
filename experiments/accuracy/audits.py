"""An audit of a simulated federation is one cell: what was learned, beside what a guess gets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import overheard
from experiments.recordings import recorded
from experiments.runner import Experiment, cell
from overheard.attacks.attribute import MaxEntropy
from overheard.data.dataset import Dataset
from overheard.data.source import load
from overheard.evaluation.record import Audit
from overheard.programs.records import Records
from overheard.programs.trusted import trust
from overheard.transcript.threat import EAVESDROPPER, Threat
from overheard.transcript.view import Attack


@dataclass(frozen=True)
class Case:
    """A federation and who listens to it. ``data``: draws its people by the seed (None: those of
    the config's source); ``rounds``: also after the first rounds alone; ``ladder``: also by who
    knows less; ``cost``: seconds, about."""

    config: Mapping[str, Any]
    data: Callable[[int], Dataset] | None = None
    attack: Attack = field(default_factory=MaxEntropy)
    threat: Threat = EAVESDROPPER
    clients: Sequence[str] = ("client",)
    rounds: bool = False
    ladder: bool = False
    cost: float = 20.0
    quick: bool = False


def clients_of(
    source: str,
    records: int,
    /,
    others: Sequence[int] = (),
    outside: int = 0,
    change: Callable[[Dataset], Dataset] = lambda whole: whole,
    **options: Any,
) -> Callable[[int], Dataset]:
    """Draws, by the seed, people of a source: ``client`` of so many, other clients, and people
    outside, whom whoever listens has as auxiliary records."""

    def drawn(seed: int) -> Dataset:
        whole = change(load(source, **options))
        rows = np.random.default_rng([20261117, seed]).permutation(len(whole.records))
        names = ["client", *(f"other {k}" for k in range(len(others)))]
        who = np.repeat(names, [records, *others])
        mine = whole.records.take(rows[: len(who)]).without(whole.client)
        rest = whole.records.take(rows[len(who) :][:outside]).without(whole.client)
        for column, values in mine.columns.items():  # words that no client has, no model knows
            if values.dtype.kind == "U":
                rest = rest.take(np.isin(rest[column], values))
        records_ = Records({**mine.columns, whole.client: who})
        return replace(whole, records=records_, outside=rest if outside else None)

    return drawn


def as_numbers(whole: Dataset) -> Dataset:
    """Every text as a number, as tutorials encode tables."""
    texts = {
        name: np.unique(values, return_inverse=True)[1].astype(np.float64)
        for name, values in whole.records.without(whole.client, whole.target).columns.items()
        if values.dtype.kind != "f"
    }
    return replace(whole, records=Records({**whole.records.columns, **texts}))


def audited(case: Case, seed: int) -> dict[str, Any]:
    """What the audit says, by secret; of rounds and rungs by those."""
    data = case.data(seed) if case.data else None
    if factory := case.config["model"].get("factory"):
        trust(factory)
    options = overheard.AuditOptions(seed=seed, rounds=case.rounds, ladder=case.ladder)
    with recorded({**case.config, "seed": seed}, data) as recording:
        began = time.process_time()
        record = overheard.audit(
            recording, case.threat, [case.attack], case.clients, options=options
        )
        return {**figures(record), "seconds": time.process_time() - began}


def figures(record: Audit) -> dict[str, dict[str, Any]]:
    """An audit's numbers by measure and secret, the texts of its diagnosis by secret and client."""
    found: dict[str, dict[str, Any]] = {}

    def put(measure: str, label: object, value: Any) -> None:
        if value is not None:
            found.setdefault(measure, {})[str(label)] = value

    for row in record.pooled:
        secret = row.attribute or row.question
        for measure in ("value", "majority", "imputation", "n", "flagged"):
            put(measure, secret, getattr(row, measure))
        if row.calibration is not None:
            bins = row.calibration.bins
            sure = sum(b.n * b.confidence for b in bins) / max(sum(b.n for b in bins), 1)
            put("confidence", secret, sure)
            for measure in ("bits", "certain", "certain_right"):
                put(measure, secret, getattr(row.calibration, measure))
    for one in record.findings:
        label = f"{one.attribute or one.question} of {one.client}"
        for measure in ("proven", "rank", "flag", "overconfident", "order_guessed"):
            put(measure, label, one.details.get(measure))
    for part in record.curves:
        put("by rounds", part.rounds, part.value)
    for rung in record.ladder:
        put("by knowledge", rung.rung, rung.value)
        put("imputation by knowledge", rung.rung, rung.imputation)
    return found


def experiment(
    name: str, about: str, cases: Mapping[str, Case], seeds: Sequence[int] = (0, 1, 2)
) -> Experiment:
    """An experiment of cases, each repeated."""
    return Experiment(
        f"accuracy-{name}",
        about,
        lambda each: audited(cases[each["case"]], each.seed),
        lambda: [
            cell(case=n, seed=s, cost=case.cost, quick=case.quick and s == seeds[0])
            for n, case in cases.items()
            for s in seeds
        ],
    )
