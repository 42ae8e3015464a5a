"""driouich2022: Figure 3 and Proposition 3 (how sure Algorithm 3 is), and its data beside ours.

With residuals e of any linear model, Algorithm 3 solves each record for s + e / theta_s. A wrong
pair costs at least half of theta_s^2 in squared residuals, so that with the right number of ones
the accuracy is at least max(|1 - 2 rho|, 1 - 4 E / theta_s^2), where E is the model's mean squared
error. The proof does not need the model to be the local optimum: it holds for each of the figure's
four models. Tables 4 and 5 and Figure 2 say how large the clients are and how far apart; no attack
is run there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from experiments.papers.driouich2022.run import airlines, fares
from experiments.papers.scoring import mean_distances, relative, truth_and_recipe
from experiments.recordings import federation, recorded
from experiments.runner import Cell, Experiment, Values, cell
from overheard.attacks.papers.driouich2022 import ModelBasedLinear, infer
from overheard.attacks.papers.xu2021 import affine_map
from overheard.data.dataset import Dataset
from overheard.evaluation import metrics
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records
from overheard.randomness import stream
from overheard.transcript.knowledge import Messages
from overheard.transcript.target import LOCAL_MODEL, attribute
from overheard.transcript.threat import EAVESDROPPER
from overheard.transcript.view import View, launch, observe

Array = NDArray[np.float64]
MODELS = ("global", "last returned", "local", "analytical")
BOUND = "least accuracy (Proposition 3)"
MARGIN = "accuracy less its bound"
RATIO = "E / theta_s^2"


def model(view: View, recipe: Recipe, records: Records, name: str) -> Array:
    """One of Figure 3's models; the analytical one is the optimum itself, not an attack."""
    link = view.know(Messages)
    if name == "analytical":
        return np.asarray(metrics.local_optimum(recipe, records))
    if name == "local":
        return np.asarray(affine_map(link, recipe).estimate)
    models = link.sent if name == "global" else link.returned
    return np.asarray(models[-1], dtype=np.float64)


def promised(recipe: Recipe, theta: Array, records: Records, column: str) -> tuple[float, float]:
    """E / theta_s^2, and Proposition 3's accuracy. (The paper rounds rho m up; so do we.)"""
    (at,), values = recipe.encoding.inputs_of([column]), records[column]
    ratio = float(metrics.client_losses(recipe, theta, records).mean()) / float(theta[at]) ** 2
    return ratio, max(abs(1 - 2 * float(values.mean())), 1 - 4 * ratio)


def fig3(one: Cell) -> Values:
    """Accuracy of Algorithm 3 against E / theta_s^2 of the model that it is given, by airline."""
    found: dict[str, dict[str, float]] = {}
    with airlines(fares(4000, one.seed, "direct"), one.seed, 150) as recording:
        truth, recipe = truth_and_recipe(recording)
        for client, records in truth.items():
            view = observe(recording, EAVESDROPPER, attribute("direct"), client)
            theta = model(view, recipe, records, one.method)
            ratio, least = promised(recipe, theta, records, "direct")
            hits = metrics.attribute_hits(infer(view, theta), records["direct"])
            for measure, value in (
                ("accuracy", float(hits.mean())),
                (BOUND, least),
                (RATIO, ratio),
            ):
                found.setdefault(measure, {})[client] = value
    return found


def prop3(one: Cell) -> Values:
    """Algorithm 3's accuracy and its bound, on made data: 200 records a client.

    ``noise`` is the noise's variance over the squared weight of s; E / theta_s^2 of the fitted
    model is a little less. A bound of 0 promises nothing.
    """
    config = federation(
        one.seed, "file", "linear", {"rounds": 30, "learning_rate": 0.1, "precision": "float64"}
    )
    with recorded(config, made(one["noise"], one["share"], one.seed)) as recording:
        truth, recipe = truth_and_recipe(recording)
        view = observe(recording, EAVESDROPPER, attribute("s"), "0")
        guess = launch(ModelBasedLinear(), view, one.seed)
        accuracy = float(metrics.attribute_hits(guess, truth["0"]["s"]).mean())
        _, bound = promised(recipe, metrics.local_optimum(recipe, truth["0"]), truth["0"], "s")
    return {"accuracy": accuracy, BOUND: bound, MARGIN: accuracy - bound}


def made(ratio: float, share: float, seed: int) -> Dataset:
    """Two clients of 200 records: y = x b + s + noise of variance ``ratio``."""
    rng = stream(seed, "proposition 3", f"{ratio} {share}")
    people = 200
    public, effects = rng.normal(size=(2 * people, 3)), rng.normal(size=3)
    secret = (rng.permutation(2 * people) < share * 2 * people).astype(np.float64)
    labels = public @ effects + secret + np.sqrt(ratio) * rng.normal(size=2 * people)
    table = {f"x{j}": public[:, j] for j in range(3)} | {"s": secret, "y": labels}
    table["at"] = np.repeat([0.0, 1.0], people)
    return Dataset("proposition 3", Records(table), "at", "y", "regression", ("s",), "made")


def table4(one: Cell) -> Values:
    """Fares: size, share of direct flights, distance of the local optimum to the global model."""
    with airlines(fares(20_000, one.seed, "direct"), one.seed, 1000, rate=0.1) as recording:
        truth, recipe = truth_and_recipe(recording)
        link = observe(recording, EAVESDROPPER, LOCAL_MODEL, recording.clients[0]).know(Messages)
        final = link.sent[-1].astype(np.float64)
        return {
            "records": {c: len(r) for c, r in truth.items()},
            "share of ones": {c: float(r["direct"].mean()) for c, r in truth.items()},
            "distance to the global model": {
                c: relative(metrics.local_optimum(recipe, r), final) for c, r in truth.items()
            },
        }


FARES = {
    "records": "2995 17451 11789 9855 8209 8058 4232 4161 3959 19287",
    "share of ones": ".62 .66 .60 .70 .63 .62 .68 .55 .58 .61",
    "distance to the global model": ".23 .08 .04 .21 .08 .04 .25 .08 .05 .06",
}
"""Table 4: the paper's airlines 0 to 9, which are others than ours: only their mean compares."""
ADULT_SHARES = (2, 3, 2, 13, 13, 13, 13, 13, 14, 14)
"""Table 5, per cent of 12,300 records."""


def table5(one: Cell) -> Values:
    """Adult: each client's share of the records, and Figure 2's distances between local optima.

    s = y (a man above 50K, a woman below): all that Algorithm 4 can say of a logistic model and a
    binary attribute is this, or its opposite.
    """
    training = {"rounds": 1, "learning_rate": 0.1}
    config = federation(one.seed, "adult", "logistic", training, {"seed": one.seed})
    with recorded(config) as recording:
        truth, recipe = truth_and_recipe(recording)
        total = sum(map(len, truth.values()))
        return {
            "records": total,
            "share of records": {c: len(r) / total for c, r in truth.items()},
            "mean distance to others": mean_distances(recipe, truth),
            "share with s = y": {
                c: float((recipe.target.encode(r) == r["sex"]).mean()) for c, r in truth.items()
            },
        }


EXPERIMENTS = (
    Experiment(
        "driouich2022-fig3",
        "accuracy by E / theta_s^2",
        fig3,
        lambda: [cell(name, seed, 10, seed == 0) for name in MODELS for seed in range(3)],
    ),
    Experiment(
        "driouich2022-prop3",
        "the bound's curve, made data",
        prop3,
        lambda: [
            cell(
                "local", seed, 0.5, seed < 3 and noise in (0.01, 0.2, 3.0), share=share, noise=noise
            )
            for share in (0.5, 0.2)
            for noise in (0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 1.0, 3.0)
            for seed in range(20)
        ],
    ),
    Experiment(
        "driouich2022-table4",
        "the fares' clients",
        table4,
        lambda: [cell(seed=seed, cost=60, quick=seed == 0) for seed in range(3)],
        claims=lambda one: {
            measure: {"mean": float(np.mean([float(n) for n in line.split()]))}
            for measure, line in FARES.items()
        },
    ),
    Experiment(
        "driouich2022-table5",
        "Adult's clients, and Figure 2",
        table5,
        lambda: [cell(seed=seed, cost=20, quick=seed == 0) for seed in range(3)],
        claims=lambda one: {
            "records": 12_300,
            "share of records": {f"client {i}": s / 100 for i, s in enumerate(ADULT_SHARES)},
        },
    ),
)
