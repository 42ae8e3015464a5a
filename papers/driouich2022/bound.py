"""driouich2022 Figure 3 and Proposition 3: how sure Algorithm 3 is of its accuracy.

With residuals e of any linear model, Algorithm 3 solves each record for s + e / theta_s. A wrong
pair costs at least half of theta_s^2 in squared residuals, so that with the right number of ones
the accuracy is at least max(|1 - 2 rho|, 1 - 4 E / theta_s^2), where E is the model's mean squared
error. The proof does not need the model to be the local optimum: it holds for each of the figure's
four models.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from overheard.attacks.papers.driouich2022 import ModelBasedLinear, infer
from overheard.attacks.papers.xu2021 import affine_map
from overheard.data.dataset import Dataset
from overheard.evaluation import metrics
from overheard.evaluation.baselines import algorithm3_accuracy_bound, algorithm3_bound
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records
from overheard.randomness import stream
from overheard.transcript.knowledge import Link
from overheard.transcript.target import attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import View, launch, observe
from papers.common import pictures
from papers.common.harness import federation, mean_row, recorded, truth_and_recipe
from papers.common.rows import Experiment, Progress, Reproduction, Row
from papers.data import flights
from papers.driouich2022.world import NOT_THEIR_FARES, fares

Array = NDArray[np.float64]
BOUND = "least accuracy (Proposition 3)"
MODELS = ("global", "last returned", "local", "analytical")


def models(view: View, recipe: Recipe, records: Records) -> Iterator[tuple[str, Array]]:
    """The four models of Figure 3; the analytical one is the optimum itself, not an attack."""
    link = view.know(Link)
    yield "global", link.sent[-1].astype(np.float64)
    yield "last returned", link.returned[-1].astype(np.float64)
    yield "local", affine_map(link, recipe).estimate
    yield "analytical", metrics.local_optimum(recipe, records)


def fig3(quick: bool, seeds: int, progress: Progress) -> Reproduction:
    """Accuracy of the model-based attack against E / theta_s^2, for four models of the client."""
    rows: list[Row] = []
    for seed in range(seeds):
        training = {"rounds": 150, "learning_rate": 0.05, "participation": 0.5}
        config = federation(seed, "flights", "linear", training)
        with recorded(config, fares(1000 if quick else 4000, seed, "direct")) as recording:
            truth, recipe = truth_and_recipe(recording)
            at = recipe.encoding.inputs_of("direct").start
            for done, client in enumerate(recording.clients):
                count = len(recording.clients)
                progress(client, seed * count + done, seeds * count)
                view = observe(recording, EAVESDROPPER, attribute("direct"), client)
                records = truth[client]
                for method, theta in models(view, recipe, records):
                    hits = metrics.attribute_hits(infer(view, theta), records["direct"])
                    error = float(metrics.client_losses(recipe, theta, records).mean())
                    ratio = f"{error / float(theta[at]) ** 2:.6g}"
                    share = float(records["direct"].mean())
                    least = algorithm3_accuracy_bound(error, float(theta[at]), share)
                    rows += [
                        Row(ratio, client, method, "accuracy", float(hits.mean())),
                        Row(ratio, client, method, BOUND, least),
                    ]
    notes = (
        flights.SOURCE.note,
        NOT_THEIR_FARES,
        "The setting is E / theta_s^2 of the model attacked.",
        "The analytical model is computed from the client's records: a yardstick, not an attack.",
    )
    return Reproduction(rows + over_clients(rows), "flights", notes, seeds)


def over_clients(rows: list[Row]) -> list[Row]:
    """Each model's mean over the clients, and how accuracy and E / theta_s^2 go together."""
    points = [r for r in rows if r.measure == "accuracy"]
    together = spearmanr([float(r.setting) for r in points], [r.measured for r in points])
    means = {m: np.mean([r.measured for r in points if r.method == m]) for m in MODELS}
    word = "rank correlation of accuracy with E / theta_s^2"
    return [
        *(Row("all", "mean", m, "accuracy", float(mean)) for m, mean in means.items()),
        Row("all", "mean", "all models", word, float(together.statistic)),
    ]


RATIOS = (0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 1.0, 3.0)
SHARES = (0.5, 0.2)


def prop3(quick: bool, seeds: int, progress: Progress) -> Reproduction:
    """The curve of the bound beside Algorithm 3's accuracy, on made data."""
    ratios, draws = (RATIOS[1::3], 3) if quick else (RATIOS, 20)
    rows: list[Row] = []
    for at, share in enumerate(SHARES):
        for along, ratio in enumerate(ratios):
            progress(f"share {share}", at * len(ratios) + along, len(SHARES) * len(ratios))
            rows += bound_at(ratio, share, draws)
    notes = (
        "The noise's variance over the squared weight of s is the client; E / theta_s^2 of the "
        "fitted model is a little less.",
        f"A bound of 0 promises nothing. Each point: {draws} draws of 200 records.",
    )
    return Reproduction(rows, "made", notes, seeds)


def bound_at(ratio: float, share: float, draws: int) -> list[Row]:
    """Accuracy, bound and the least distance between them over the draws of one point."""
    hits, bounds = [], []
    for draw in range(draws):
        training = {"rounds": 30, "learning_rate": 0.1, "wire": "float64"}
        config = federation(draw, "file", "linear", training)
        with recorded(config, made(ratio, share, draw)) as recording:
            truth, recipe = truth_and_recipe(recording)
            view = observe(recording, EAVESDROPPER, attribute("s"), "0")
            guess = launch(ModelBasedLinear(), view, draw)
            hits.append(float(metrics.attribute_hits(guess, truth["0"]["s"]).mean()))
            bound = algorithm3_bound(recipe, truth["0"], "s", (0.0, 1.0))
            assert bound is not None
            bounds.append(bound)
    setting, point = f"share of ones {share}", f"{ratio:g}"
    margin = float(np.min(np.subtract(hits, bounds)))
    return [
        mean_row(setting, point, "local", "accuracy", hits, majority=max(share, 1 - share)),
        mean_row(setting, point, "local", BOUND, bounds),
        Row(setting, point, "local", "least accuracy less its bound", margin, seeds=draws),
    ]


def made(ratio: float, share: float, seed: int) -> Dataset:
    """Two clients of 200 records: y = x b + s + noise of variance ``ratio``."""
    rng = stream(seed, "proposition 3", f"{ratio} {share}")
    people = 200
    public, effects = rng.normal(size=(2 * people, 3)), rng.normal(size=3)
    secret = (rng.permutation(2 * people) < share * 2 * people).astype(np.float64)
    labels = public @ effects + secret + np.sqrt(ratio) * rng.normal(size=2 * people)
    table = {f"x{j}": public[:, j] for j in range(3)} | {"s": secret, "y": labels}
    table["at"] = np.repeat([0.0, 1.0], people)
    return Dataset("proposition 3", Records(table), "at", "y", "regression", ("s",), "made", "none")


def draw_fig3(outcome: Reproduction, path: Path) -> None:
    """Accuracy and its bound against E / theta_s^2."""
    rows = [
        replace(r, setting="", client=r.setting, method=r.method if r.measure != BOUND else BOUND)
        for r in outcome.rows
        if r.client != "mean"
    ]
    draw = pictures.curves("E / theta_s^2", log=True, line="")
    draw(replace(outcome, rows=rows), path)


def draw_prop3(outcome: Reproduction, path: Path) -> None:
    """Accuracy and its bound by noise."""
    curves = [r for r in outcome.rows if r.measure in ("accuracy", BOUND)]
    shown = replace(outcome, rows=[replace(r, method=r.measure) for r in curves])
    pictures.curves("variance of the noise / theta_s^2", log=True)(shown, path)


EXPERIMENTS = (
    Experiment("driouich2022-fig3", "accuracy by E / theta_s^2", fig3, draw_fig3),
    Experiment("driouich2022-prop3", "the bound's curve, made data", prop3, draw_prop3),
)
