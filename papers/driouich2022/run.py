"""driouich2022: attributes from federations of linear, logistic and small neural models."""

from __future__ import annotations

from typing import Any

import numpy as np

from overheard.attacks.attribute import MaxEntropy
from overheard.attacks.papers.driouich2022 import (
    ModelBasedGlobal,
    ModelBasedLastReturned,
    ModelBasedLinear,
    ModelBasedLocal,
)
from overheard.attacks.papers.lyu2021 import Gumbel, L2Lbfgs
from overheard.attacks.papers.xu2021 import LearnedMap
from overheard.data.dataset import Dataset
from overheard.evaluation import metrics
from overheard.programs.records import Records
from overheard.randomness import stream
from overheard.transcript.view import Attack
from papers.common import pictures
from papers.common.harness import (
    Score,
    attribute_scores,
    bins_of,
    clients_with_both,
    federation,
    mean_row,
    recorded,
    reliability_rows,
    summarise,
)
from papers.common.rows import Experiment, Progress, Reproduction, Row
from papers.data import adult, flights
from papers.driouich2022.world import (
    ADULT_CLAIMS,
    FLIGHT_MEANS,
    NOT_THEIR_FARES,
    fares,
)

OURS = "max_entropy"
LBFGS_ENDS = {"linear": {10: 0.78, 1000: 0.67}, "neural": {10: 0.74, 1000: 0.60}}
"""Figure 1, as far as the text names it."""
HALF = {"learning_rate": 0.05, "participation": 0.5}


def methods(quick: bool, linear: bool) -> dict[str, Attack]:
    """The paper's five methods and ours."""
    grid: dict[str, Any] = (
        {"last": (0, 300), "step": (30,)} if quick else {"last": (100, 1000), "step": (50,)}
    )
    short = LearnedMap(hidden=200, steps=200, search_steps=200) if quick else LearnedMap()
    local: Attack = ModelBasedLinear() if linear else ModelBasedLocal(short)
    return {
        "l2_lbfgs": L2Lbfgs(**grid, iterations=40 if quick else 100),
        "gumbel": Gumbel(**grid, steps=60 if quick else 100),
        "global": ModelBasedGlobal(),
        "last returned": ModelBasedLastReturned(),
        "local": local,
        OURS: MaxEntropy(),
    }


def table1_adult(quick: bool, seeds: int, progress: Progress) -> Reproduction:
    """Logistic regression on Adult, attribute sex."""
    scores: list[Score] = []
    for seed in range(seeds):
        training = {"rounds": 300 if quick else 1000, "learning_rate": 0.1}
        config = federation(seed, "adult", "logistic", training, {"seed": seed})
        with recorded(config) as recording:
            clients = recording.clients[:4] if quick else recording.clients
            for client in clients:
                progress(f"{client}, seed {seed}", len(scores), seeds * len(clients) * 6)
                scores += attribute_scores(
                    recording, "sex", methods(quick, linear=False), [client], seed
                )
    rows = summarise("logistic regression, sex", scores, ADULT_CLAIMS)
    ours = [s for s in scores if s.method == OURS]
    rows += calibration_rows("logistic regression, sex", ours) if ours else []
    notes = (
        adult.SOURCE.note,
        "Majority is each client's own commonest value: most claimed numbers lie below it.",
    )
    return Reproduction(rows, "adult", notes, seeds)


def calibration_rows(setting: str, scores: list[Score]) -> list[Row]:
    """Reliability of ours: in each bin of the probability given, the share that was right."""
    made = [(s.guess, s.secret) for s in scores if s.guess is not None]
    p = np.concatenate([guess.probabilities.max(axis=1) for guess, _ in made])
    hit = np.concatenate([metrics.attribute_hits(guess, secret) for guess, secret in made])
    rows = reliability_rows(setting, OURS, p, hit, "records", least=0.5, fewest=20)
    error = float(np.abs(np.bincount(bins_of(p, 0.5), hit - p)).sum() / len(p))
    return [*rows, Row(setting, "all", OURS, "expected calibration error", error)]


def table1_flights(quick: bool, seeds: int, progress: Progress) -> Reproduction:
    """Linear regression on airline fares, attributes direct and class."""
    rows: list[Row] = []
    for column, hidden in (("direct", ()), ("class", ()), ("direct", ("duration",))):
        scores: list[Score] = []
        for seed in range(seeds):
            dataset = fares(1000 if quick else 4000, seed, column, hidden)
            config = federation(
                seed, "flights", "linear", {**HALF, "rounds": 150 if quick else 600}
            )
            with recorded(config, dataset) as recording:
                varied = clients_with_both(recording, column)
                for i, client in enumerate(varied):
                    progress(f"{column}, {client}", seed * len(varied) + i, seeds * len(varied))
                    scores += attribute_scores(
                        recording, column, methods(quick, linear=True), [client], seed
                    )
        claimed = {(m, "mean"): v for m, v in FLIGHT_MEANS.items()} if column == "direct" else {}
        rows += summarise(f"{column}{', no duration' if hidden else ''}", scores, claimed)
    notes = (
        flights.SOURCE.note,
        NOT_THEIR_FARES,
        "Claimed means are the paper's, for the attribute journey type on its own airlines.",
        "`duration` all but gives `direct` away (direct flights are the short ones), as the "
        "stranger's row shows; the last setting leaves it out of the data.",
        "`class` is constant on four of the six airlines: nothing to infer there.",
    )
    return Reproduction(rows, "flights", notes, seeds)


def fig1(quick: bool, seeds: int, progress: Progress) -> Reproduction:
    """Accuracy against the size of the local data, linear and neural."""
    sizes = (10, 100, 1000) if quick else (10, 50, 100, 500, 1000)
    rows: list[Row] = []
    for kind in ("linear", "neural"):
        model: dict[str, Any] = (
            {"name": "linear"} if kind == "linear" else {"name": "mlp", "hidden": [64]}
        )
        for at, size in enumerate(sizes):
            scores: list[Score] = []
            for seed in range(seeds):
                progress(f"{kind}, {size} records", at * seeds + seed, len(sizes) * seeds)
                config = federation(
                    seed, "flights", model, {**HALF, "rounds": 60 if quick else 200}
                )
                attacks = methods(quick, linear=kind == "linear")
                wanted = {m: attack for m, attack in attacks.items() if m != "global"}
                with recorded(config, fares(size, seed, "direct")) as recording:
                    some = clients_with_both(recording, "direct")[: 2 if quick else None]
                    scores += attribute_scores(recording, "direct", wanted, some, seed)
            for method in dict.fromkeys(s.method for s in scores):
                mine = [s for s in scores if s.method == method]
                rows.append(
                    mean_row(
                        kind,
                        f"{size} records",
                        method,
                        "accuracy",
                        [s.value for s in mine],
                        claimed=LBFGS_ENDS[kind].get(size) if method == "l2_lbfgs" else None,
                        majority=float(np.mean([s.majority for s in mine])),
                        seconds=float(np.mean([s.seconds for s in mine])),
                    )
                )
    notes = (
        flights.SOURCE.note,
        NOT_THEIR_FARES,
        "Claimed: the two ends of LBFGS named in the text.",
        "Records are drawn anew for every size; an interval is over airlines and repetitions.",
    )
    return Reproduction(rows, "flights", notes, seeds)


def prop1(quick: bool, seeds: int, progress: Progress) -> Reproduction:
    """Two data sets with opposite secrets and equal messages: at most 50% on average."""
    pairs = 10 if quick else 100
    attacks: dict[str, Attack] = {"local": ModelBasedLinear(), OURS: MaxEntropy()}
    values: dict[str, list[float]] = {method: [] for method in attacks}
    for pair in range(pairs):
        progress("pairs", pair, pairs)
        rng = stream(pair, "proposition 1")
        half = 30
        block = rng.normal(size=(half, 3))
        first, second = rng.normal(size=half), rng.normal(size=half)
        labels = np.concatenate([first, second - second.mean() + first.mean()])
        secret = np.concatenate([np.ones(half), np.zeros(half)])
        outcome: dict[str, list[float]] = {method: [] for method in attacks}
        for s in (secret, 1 - secret):
            columns = {f"x{j}": np.concatenate([block[:, j]] * 2) for j in range(3)}
            other = {n: rng.normal(size=2 * half) for n in columns}
            mine = {**columns, "s": s, "y": labels, "at": np.zeros(2 * half)}
            rest = {**other, "s": secret, "y": rng.normal(size=2 * half), "at": np.ones(2 * half)}
            table = {n: np.concatenate([mine[n], rest[n]]) for n in mine}
            dataset = Dataset(
                "proposition 1", Records(table), "at", "y", "regression", ("s",), "made", "none"
            )
            training = {"rounds": 30, "learning_rate": 0.1, "wire": "float64"}
            with recorded(federation(pair, "file", "linear", training), dataset) as recording:
                for score in attribute_scores(recording, "s", attacks, ["0"], pair):
                    if score.method in outcome:
                        outcome[score.method].append(score.value)
        for method, both in outcome.items():
            values[method].append(float(np.mean(both)))
    rows = [
        mean_row("mean over the pair", "one", m, "accuracy", v, claimed=0.5, majority=0.5)
        for m, v in values.items()
    ]
    return Reproduction(rows, "made", seeds=seeds)


TABLE = pictures.marks(label="attribute inference accuracy")
FIG1 = pictures.curves("local records", log=True)
EXPERIMENTS = tuple(
    Experiment(f"driouich2022-{name}", words, run, draw, seeds)
    for name, words, run, draw, seeds in (
        ("table1-adult", "sex on Adult, logistic", table1_adult, TABLE, 1),
        ("table1-flights", "direct and class on fares, linear", table1_flights, TABLE, 1),
        ("fig1", "accuracy by local data size", fig1, FIG1, 3),
        ("prop1", "the impossibility pair", prop1, TABLE, 1),
    )
)
