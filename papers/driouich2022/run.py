"""driouich2022: attributes from federations of linear, logistic and small neural models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from overheard.attacks.attribute.max_entropy import MaxEntropy
from overheard.attacks.papers.driouich2022 import (
    ModelBasedGlobal,
    ModelBasedLastReturned,
    ModelBasedLinear,
    ModelBasedLocal,
)
from overheard.attacks.papers.lyu2021 import Gumbel, L2Lbfgs
from overheard.attacks.papers.xu2021 import LearnedMap
from overheard.data import adult, flights
from overheard.data.dataset import Dataset
from overheard.evaluation import metrics
from overheard.programs.records import Records
from overheard.randomness import stream
from overheard.transcript.view import Attack
from papers.common import pictures
from papers.common.harness import (
    GIVEN,
    Score,
    attribute_scores,
    mean_row,
    recorded,
    summarise,
)
from papers.common.rows import Experiment, Progress, Reproduction, Row
from papers.driouich2022.world import (
    ADULT_CLAIMS,
    FLIGHT_MEANS,
    NOT_THEIR_FARES,
    PAPER,
    fares,
)

OURS = "max_entropy"


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
        config = {
            "seed": seed,
            "data": {"source": "adult", "options": {"seed": seed}},
            "model": {"name": "logistic"},
            "training": {"rounds": 300 if quick else 1000, "learning_rate": 0.1},
        }
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
    return Reproduction(
        "driouich2022-table1-adult", PAPER, tuple(rows), "adult", notes, quick, seeds
    )


def calibration_rows(setting: str, scores: list[Score], bins: int = 10) -> list[Row]:
    """Reliability of ours: in each bin of the probability given, the share that was right."""
    made = [(s.guess, s.secret) for s in scores if s.guess is not None]
    p = np.concatenate([guess.probabilities.max(axis=1) for guess, _ in made])
    hit = np.concatenate([metrics.attribute_hits(guess, secret) for guess, secret in made])
    which = np.minimum(((p - 0.5) * 2 * bins).astype(int), bins - 1)
    rows = []
    for b in range(bins):
        inside = which == b
        if inside.sum() < 20:
            continue
        given = float(p[inside].mean())
        label = f"given {given:.3f} ({int(inside.sum())} records)"
        rows.append(Row(setting, label, OURS, GIVEN, given))
        rows.append(Row(setting, label, OURS, "reliability", float(hit[inside].mean())))
    error = float(np.abs(np.bincount(which, hit - p, minlength=bins)).sum() / len(p))
    rows.append(Row(setting, "all", OURS, "expected calibration error", error))
    return rows


def table1_flights(quick: bool, seeds: int, progress: Progress) -> Reproduction:
    """Linear regression on airline fares, attributes direct and class."""
    rows: list[Row] = []
    for column, hidden in (("direct", ()), ("class", ()), ("direct", ("duration",))):
        scores: list[Score] = []
        for seed in range(seeds):
            dataset = fares(1000 if quick else 4000, seed, column, hidden)
            config = {
                "seed": seed,
                "data": {"source": "flights"},
                "model": {"name": "linear"},
                "training": {
                    "rounds": 150 if quick else 600,
                    "learning_rate": 0.05,
                    "participation": 0.5,
                },
            }
            with recorded(config, dataset) as recording:
                truth = recording.truth()
                varied = [c for c in recording.clients if len(set(truth[c][column].tolist())) > 1]
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
    return Reproduction(
        "driouich2022-table1-flights", PAPER, tuple(rows), "flights", notes, quick, seeds
    )


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
                dataset = fares(size, seed, "direct")
                config = {
                    "seed": seed,
                    "data": {"source": "flights"},
                    "model": model,
                    "training": {
                        "rounds": 60 if quick else 200,
                        "learning_rate": 0.05,
                        "participation": 0.5,
                    },
                }
                attacks = methods(quick, linear=kind == "linear")
                wanted = {m: attack for m, attack in attacks.items() if m != "global"}
                with recorded(config, dataset) as recording:
                    truth = recording.truth()
                    varied = [c for c in recording.clients if len(set(truth[c]["direct"])) > 1]
                    some = varied[:2] if quick else varied
                    scores += attribute_scores(recording, "direct", wanted, some, seed)
            for method in dict.fromkeys(s.method for s in scores):
                mine = [s for s in scores if s.method == method]
                claimed = {10: (0.78, 0.74), 1000: (0.67, 0.60)}.get(size)
                rows.append(
                    mean_row(
                        kind,
                        f"{size} records",
                        method,
                        "accuracy",
                        [s.value for s in mine],
                        claimed=claimed[kind == "neural"]
                        if claimed and method == "l2_lbfgs"
                        else None,
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
    return Reproduction("driouich2022-fig1", PAPER, tuple(rows), "flights", notes, quick, seeds)


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
            config = {
                "seed": pair,
                "data": {"source": "file"},
                "model": {"name": "linear"},
                "training": {"rounds": 30, "learning_rate": 0.1, "wire": "float64"},
            }
            with recorded(config, dataset) as recording:
                for score in attribute_scores(recording, "s", attacks, ["0"], pair):
                    if score.method in outcome:
                        outcome[score.method].append(score.value)
        for method, both in outcome.items():
            values[method].append(float(np.mean(both)))
    rows = [
        mean_row("mean over the pair", "one", m, "accuracy", v, claimed=0.5, majority=0.5)
        for m, v in values.items()
    ]
    return Reproduction("driouich2022-prop1", PAPER, tuple(rows), "made", (), quick, seeds)


def draw_table(outcome: Reproduction, path: Path) -> None:
    """Accuracy by client and method, with the majority guess."""
    pictures.by_client(outcome, path, "attribute inference accuracy")


def draw_fig1(outcome: Reproduction, path: Path) -> None:
    """Accuracy against local data size."""
    pictures.lines(outcome, path, lambda r: float(r.client.split()[0]), "local records", log=True)


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "driouich2022-table1-adult", PAPER, "sex on Adult, logistic", 1, table1_adult, draw_table
    ),
    Experiment(
        "driouich2022-table1-flights",
        PAPER,
        "direct and class on fares, linear",
        1,
        table1_flights,
        draw_table,
    ),
    Experiment("driouich2022-fig1", PAPER, "accuracy by local data size", 3, fig1, draw_fig1),
    Experiment("driouich2022-prop1", PAPER, "the impossibility pair", 1, prop1, draw_table),
)
