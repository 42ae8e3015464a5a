"""What the experiments share: record a federation, run attacks on every client, make rows."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.data.dataset import Dataset
from overheard.evaluation import metrics
from overheard.evaluation.baselines import Imputer, majority_share
from overheard.federation.federation import parse_config
from overheard.federation.plan import plan
from overheard.federation.simulate import simulate
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records
from overheard.transcript.guess import AttributeValues
from overheard.transcript.kind import recipe_of
from overheard.transcript.knowledge import Link
from overheard.transcript.store import Recording
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER, Threat
from overheard.transcript.view import Attack, launch, observe
from papers.common.rows import Row

Array = NDArray[np.float64]
STRANGER = "stranger (imputation)"
GIVEN = "probability given"
"""Measure of what an attack said, in a row before that of what was so (reliability)."""
SHARES = ("accuracy", "F1", "Brier score")
"""Measures, or parts of their names, that lie between 0 and 1."""
FEWEST = 3
"""So many numbers have a spread that an interval can be made of."""


@contextmanager
def recorded(config: Mapping[str, Any], dataset: Dataset | None = None) -> Iterator[Recording]:
    """A recording of the federation that the config describes; gone when the block ends."""
    with tempfile.TemporaryDirectory() as folder:
        ready = plan(parse_config(dict(config)), dataset)
        yield Recording.open(simulate(ready, Path(folder) / "run"))


def federation(
    seed: int,
    source: str,
    model: str | Mapping[str, Any],
    training: Mapping[str, Any],
    options: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """A federation's config: the data's source with its options, the model and its training."""
    return {
        "seed": seed,
        "data": {"source": source, "options": dict(options or {})},
        "model": {"name": model} if isinstance(model, str) else dict(model),
        "training": dict(training),
    }


def clients_with_both(recording: Recording, column: str) -> list[str]:
    """The clients in whose records the column varies: of others there is nothing to infer."""
    truth = recording.truth()
    return [c for c in recording.clients if len(set(truth[c][column].tolist())) > 1]


def messages(link: Link, rows: NDArray[np.int64]) -> Link:
    """These rows of a link alone."""
    parts = ("rounds", "sent", "returned", "weights")
    return replace(link, **{name: getattr(link, name)[rows] for name in parts})


def truth_and_recipe(recording: Recording) -> tuple[dict[str, Records], Recipe]:
    """What scoring needs."""
    recipe = recipe_of(recording)
    assert recipe is not None, "the simulator always writes the recipe"
    return recording.truth(), recipe


@dataclass(frozen=True)
class Score:
    """One attack on one client in one repetition."""

    method: str
    client: str
    value: float
    majority: float
    seconds: float
    guess: AttributeValues | None = None
    secret: Any = None


def attribute_scores(
    recording: Recording,
    column: str,
    attacks: Mapping[str, Attack],
    clients: Sequence[str],
    seed: int,
    threat: Threat = EAVESDROPPER,
) -> Iterator[Score]:
    """Accuracy of every attack on every client; ``attacks`` maps the method's name in the table.

    The first method is always `STRANGER`: who has the other clients' records and does not listen.
    """
    truth, recipe = truth_and_recipe(recording)
    values = tuple(sorted({v for r in truth.values() for v in r[column].tolist()}))
    for client in clients:
        view = observe(recording, threat, attribute(column), client)
        secret = truth[client][column]
        majority = majority_share(secret, values)
        imputed = Imputer(seed).values(recipe, truth, client, column, values)
        if imputed is not None:
            yield Score(STRANGER, client, float(imputed.hits.mean()), majority, 0.0)
        for method, attack in attacks.items():
            begin = time.perf_counter()
            guess = launch(attack, view, seed)
            seconds = time.perf_counter() - begin
            hits = metrics.attribute_hits(guess, secret)
            yield Score(method, client, float(hits.mean()), majority, seconds, guess, secret)


def summarise(
    setting: str,
    scores: Iterable[Score],
    claims: Mapping[tuple[str, str], float],
    measure: str = "accuracy",
) -> list[Row]:
    """A row per method and client (mean over repetitions, normal interval), then the mean row."""
    groups: dict[tuple[str, str], list[Score]] = {}
    for score in scores:
        groups.setdefault((score.method, score.client), []).append(score)
    rows = [
        mean_row(
            setting,
            client,
            method,
            measure,
            [s.value for s in group],
            claimed=claims.get((method, client)),
            majority=float(np.mean([s.majority for s in group])),
            seconds=float(np.mean([s.seconds for s in group])),
        )
        for (method, client), group in groups.items()
    ]
    for method in dict.fromkeys(method for method, _ in groups):
        mine = [row for row in rows if row.method == method]
        rows.append(
            Row(
                setting=setting,
                client="mean",
                method=method,
                measure=measure,
                measured=float(np.mean([r.measured for r in mine])),
                claimed=claims.get((method, "mean")),
                majority=float(np.mean([r.majority for r in mine if r.majority is not None])),
                seconds=float(np.sum([r.seconds for r in mine if r.seconds is not None])),
                seeds=mine[0].seeds,
            )
        )
    return rows


def mean_row(
    setting: str,
    client: str,
    method: str,
    measure: str,
    values: Sequence[float],
    claimed: float | None = None,
    majority: float | None = None,
    seconds: float | None = None,
) -> Row:
    """The mean over repetitions; with three or more, the Student-t interval of the mean."""
    low, high = student(values, measure) if len(values) >= FEWEST else (None, None)
    return Row(
        setting=setting,
        client=client,
        method=method,
        measure=measure,
        measured=float(np.mean(values)),
        low=low,
        high=high,
        claimed=claimed,
        majority=majority,
        seconds=seconds,
        seeds=len(values),
        repetitions=tuple(map(float, values)),
    )


def student(values: Sequence[float], measure: str) -> tuple[float, float]:
    """Student's 95% interval of a mean.

    It ends where the measure does: nothing here is negative, and a share is not above 1.
    """
    from scipy.stats import t

    mean, n = float(np.mean(values)), len(values)
    reach = float(t.ppf(0.975, n - 1) * np.std(values, ddof=1) / np.sqrt(n))
    most = 1.0 if any(share in measure for share in SHARES) else np.inf
    return min(max(mean - reach, 0.0), mean), max(min(mean + reach, most), mean)


def bins_of(given: Array, least: float = 0.0, bins: int = 10) -> NDArray[np.intp]:
    """In which of so many bins from ``least`` to 1 each probability lies."""
    return np.minimum(((given - least) / (1 - least) * bins).astype(np.intp), bins - 1)


def reliability_rows(
    setting: str,
    method: str,
    given: Array,
    real: NDArray[Any],
    what: str,
    least: float = 0.0,
    fewest: int = 1,
) -> list[Row]:
    """Of each bin with at least ``fewest``: the mean probability given, and what share was so."""
    rows, which = [], bins_of(given, least)
    for number in np.unique(which):
        inside = which == number
        if inside.sum() >= fewest:
            mean = float(given[inside].mean())
            label = f"given {mean:.3f} ({int(inside.sum())} {what})"
            rows.append(Row(setting, label, method, GIVEN, mean))
            share = float(real[inside].mean())
            rows.append(Row(setting, label, method, "reliability", share))
    return rows
