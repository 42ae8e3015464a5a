"""What would be known without listening: the majority guess and a stranger's imputation; and what
theory promises an attack at least.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.stranger import beforehand, remembered
from overheard.evaluation.metrics import client_losses, local_optimum
from overheard.programs.program import Told
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, Value, encode, positions
from overheard.randomness import stream
from overheard.transcript.knowledge import AttributeDomain, AuxiliaryData, PublicRecords
from overheard.transcript.view import View

Array = NDArray[np.float64]
MOST_RECORDS = 20_000


def majority_share(column: NDArray[Any], values: tuple[Value, ...]) -> float:
    """Accuracy of always guessing the client's own commonest value."""
    counts = np.bincount(positions(column, values), minlength=len(values))
    return float(counts.max() / counts.sum())


@dataclass(frozen=True)
class Imputed:
    """A stranger's guess: which records it gets right, and log2 of the probability that it gives
    to each record's true value. ``prior``: the same of what the adversary knows beforehand, where
    auxiliary records tell it something."""

    hits: Array
    log2: Array
    prior: Array | None = None


def imputation(
    recipe: Told,
    truth: Mapping[str, Records],
    client: str,
    column: str,
    values: tuple[Value, ...],
    seed: int,
    parts: tuple[str, ...] = (),
) -> Imputed | None:
    """What a stranger would guess with labelled records from elsewhere.

    A logistic regression and gradient-boosted trees of the secret given the public attributes and
    the label are trained on the OTHER clients' records; the one that cross-validates better there
    (log-loss) is scored on this client. ``parts``: the columns that make up the secret, where they
    are several. None with a single client, or where the others show one value only.
    """
    others = [name for name in truth if name != client]
    if not others:
        return None
    x = np.concatenate([_public(recipe, truth[o], parts or (column,)) for o in others])
    s = np.concatenate([positions(truth[o][column], values) for o in others])
    rng = stream(seed, "imputation", column)  # not in the client's name: that must not matter
    x, s = _some(x, s, rng)
    counts = np.bincount(s, minlength=len(values))
    if (counts > 0).sum() < 2:
        return None
    best = _learned(x, s, int(min(3, counts[counts > 0].min())), rng)
    mine = _public(recipe, truth[client], parts or (column,))
    wanted = positions(truth[client][column], values)
    hits = np.asarray(best.predict(mine) == wanted, dtype=np.float64)
    p = np.zeros((len(wanted), len(values)))
    p[:, best.classes_] = best.predict_proba(mine)
    # never surer than so many records allow: one more record might have had any value
    p = (len(s) * p + 1) / (len(s) + len(values))
    return Imputed(hits, np.log2(p[np.arange(len(wanted)), wanted]))


def best_stranger(
    view: View, others: Imputed | None, column: NDArray[Any], values: tuple[Value, ...]
) -> Imputed | None:
    """The better of two who do not listen: ``others`` holds other clients' records, the second
    only what the adversary of this view does (`attacks.front.beforehand`, every decoder's prior).

    What is better is judged by the truth, for hits and for probabilities: nobody who listens is
    credited with what either of them knows.
    """
    needed = {AuxiliaryData, AttributeDomain, PublicRecords}
    if not needed <= view.kinds or view.know(AttributeDomain).spread:
        return others
    wanted = positions(column, values)
    p = beforehand(view)
    log2 = np.log2(p[np.arange(len(wanted)), wanted])
    own = Imputed(np.asarray(p.argmax(axis=1) == wanted, dtype=np.float64), log2, log2)
    if others is None:
        return own
    hits = max(own.hits, others.hits, key=np.mean)
    return Imputed(hits, max(own.log2, others.log2, key=np.mean), log2)


def _public(recipe: Told, records: Records, secret: tuple[str, ...]) -> Array:
    """Public inputs and the label, without what the secret is."""
    inside = recipe.encoding.inputs_of_all(secret)
    public = np.delete(encode(recipe.encoding, records), inside, axis=1)
    if recipe.target.column in secret:
        return np.asarray(public)
    return np.column_stack([public, recipe.target.encode(records)])


def imputed_label_errors(
    recipe: Told, truth: Mapping[str, Records], client: str, seed: int
) -> Array | None:
    """Absolute errors of a stranger who predicts this client's labels from its inputs.

    A ridge regression and gradient-boosted trees of the label are trained on the OTHER clients'
    records; the one that cross-validates better there is scored here, in the label's own units.
    """
    others = [name for name in truth if name != client]
    if not others:
        return None
    x = np.concatenate([encode(recipe.encoding, truth[o]) for o in others])
    y = np.concatenate([truth[o][recipe.target.column] for o in others])
    rng = stream(seed, "imputed labels")
    x, y = _some(x, y, rng)
    best = _learned(x, y, 3 if len(y) >= 6 else 1, rng)
    mine = truth[client]
    predicted = best.predict(encode(recipe.encoding, mine))
    return np.asarray(np.abs(predicted - mine[recipe.target.column]), dtype=np.float64)


def _some(x: Array, y: NDArray[Any], rng: np.random.Generator) -> tuple[Array, NDArray[Any]]:
    """Of very many records as many as it takes."""
    if len(y) <= MOST_RECORDS:
        return x, y
    kept = rng.choice(len(y), MOST_RECORDS, replace=False)
    return x[kept], y[kept]


_LEARNED: dict[str, Any] = {}


def _learned(x: Array, y: NDArray[Any], folds: int, rng: np.random.Generator) -> Any:
    """Of a linear model and gradient-boosted trees the one that cross-validates better, fitted."""
    seeds = tuple(int(rng.integers(2**31)) for _ in range(2 if folds >= 2 else 1))
    return remembered(_LEARNED, partial(_better, x, y, folds, seeds), x, y, folds, seeds)


def _better(x: Array, y: NDArray[Any], folds: int, seeds: tuple[int, ...]) -> Any:
    """Whole numbers ``y`` are classes. With fewer than two folds it is the linear model."""
    from sklearn import ensemble, linear_model
    from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    trees = {"max_iter": 60, "learning_rate": 0.1, "max_leaf_nodes": 15, "random_state": seeds[0]}
    if y.dtype.kind == "i":
        linear = make_pipeline(StandardScaler(), linear_model.LogisticRegression(max_iter=500))
        boosted, splitting = ensemble.HistGradientBoostingClassifier(**trees), StratifiedKFold
        measure = "neg_log_loss"  # on few records the share right often prefers the worse model
    else:
        linear, measure = linear_model.Ridge(1.0), "neg_mean_absolute_error"
        boosted, splitting = ensemble.HistGradientBoostingRegressor(**trees), KFold
    models = [linear, boosted]
    if folds >= 2:
        split = splitting(folds, shuffle=True, random_state=seeds[1])
        scores = [cross_val_score(m, x, y, cv=split, scoring=measure).mean() for m in models]
        models = [models[int(np.argmax(scores))]]
    return models[0].fit(x, y)


def strange_group_means(
    recipe: Told,
    truth: Mapping[str, Records],
    client: str,
    column: str,
    values: tuple[Value, ...],
) -> Array | None:
    """The other clients' mean label in each group: what a stranger would guess for this client.

    A group that no other client has gets the mean over all groups. None with a single client.
    """
    others = [records for name, records in truth.items() if name != client]
    if not others:
        return None
    groups = np.concatenate([positions(r[column], values) for r in others])
    labels = np.concatenate([r[recipe.target.column] for r in others])
    counts = np.bincount(groups, minlength=len(values))
    sums = np.bincount(groups, labels, minlength=len(values))
    return np.where(counts > 0, sums / np.maximum(counts, 1), labels.mean())


def algorithm3_accuracy_bound(
    mean_squared_error: float, weight: float, share_of_ones: float
) -> float:
    """driouich2022 Proposition 3: Algorithm 3's accuracy is at least this.

    max(|1 - 2 rho|, 1 - 4 MSE / theta_s^2), for a binary attribute with values 0 and 1, one local
    full-batch step and the exact local model. (The paper rounds rho m up; so do we.)
    """
    fit = 1 - 4 * mean_squared_error / weight**2 if weight else -np.inf
    return float(max(abs(1 - 2 * share_of_ones), fit, 0.0))


def algorithm3_bound(
    recipe: Told, records: Records, column: str, values: tuple[Value, ...]
) -> float | None:
    """Proposition 3 for a client's records; None where its assumptions do not hold."""
    if not isinstance(recipe, Recipe) or column not in recipe.encoding.columns():
        return None
    inside = recipe.encoding.inputs_of(column)
    if not (
        recipe.linear_least_squares
        and recipe.one_step
        and not recipe.pull
        and len(values) == 2
        and inside.stop - inside.start == 1
    ):
        return None
    optimum: NDArray[np.float64] = local_optimum(recipe, records)
    low, high = (
        encode(recipe.encoding, records.take(np.arange(1)), {column: v})[0, inside.start]
        for v in values
    )
    share = float(positions(records[column], values).mean())
    weight = float(optimum[inside.start] * (high - low))
    return algorithm3_accuracy_bound(
        float(client_losses(recipe, optimum, records).mean()), weight, share
    )
