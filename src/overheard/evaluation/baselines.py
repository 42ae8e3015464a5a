"""What would be known without listening: the majority guess and imputation from the other clients'
records; and what theory promises an attack at least.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.baselines import imputed_prior
from overheard.evaluation.metrics import client_losses, local_optimum
from overheard.programs.program import Told
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, Value, encode, positions
from overheard.randomness import stream
from overheard.transcript.knowledge import (
    AttributeDomain,
    AuxiliaryData,
    ClientProgram,
    PublicRecords,
)
from overheard.transcript.view import View

Array = NDArray[np.float64]
MOST_RECORDS = 20_000


def majority_share(column: NDArray[Any], values: tuple[Value, ...]) -> float:
    """Accuracy of always guessing the client's own commonest value."""
    counts = np.bincount(positions(column, values), minlength=len(values))
    return float(counts.max() / counts.sum())


@dataclass(frozen=True)
class Imputed:
    """What imputation guesses: which records it gets right, and log2 of the probability that it
    gives to each record's true value."""

    hits: Array
    log2: Array


class Imputer:
    """Imputation from the other clients' records, for all secrets and clients of one audit.

    Of a linear model and gradient-boosted trees the kind is chosen once for a secret, by
    cross-validation over all clients' records (log-loss, or absolute error of labels); then one
    model is fitted for each held-out client, on the OTHER clients' records alone. That the choice
    has seen the held-out client too can only make the baseline better. What was fitted is kept as
    long as this object is: rounds, knowledge and attacks are all compared with the same model.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._tables: dict[Any, dict[str, tuple[Array, NDArray[Any]]]] = {}
        self._kinds: dict[Any, Any] = {}
        self._models: dict[Any, Any] = {}

    def values(
        self,
        recipe: Told,
        truth: Mapping[str, Records],
        client: str,
        column: str,
        values: tuple[Value, ...],
        parts: tuple[str, ...] = (),
    ) -> Imputed | None:
        """The secret, given the public attributes and the label.

        ``parts``: the columns that make up the secret, where they are several. None with a single
        client, or where the others show one value only.
        """
        secret = parts or (column,)

        def table(records: Records) -> tuple[Array, NDArray[Any]]:
            return _public(recipe, records, secret), positions(records[column], values)

        found = self._fitted((column, values, secret), truth, client, table)
        if found is None:
            return None
        model, n = found
        mine, wanted = table(truth[client])
        p = np.zeros((len(wanted), len(values)))
        p[:, model.classes_] = model.predict_proba(mine)
        hits = np.asarray(model.predict(mine) == wanted, dtype=np.float64)
        # never surer than so many records allow: one more record might have had any value
        p = (n * p + 1) / (n + len(values))
        return Imputed(hits, np.log2(p[np.arange(len(wanted)), wanted]))

    def label_errors(self, recipe: Told, truth: Mapping[str, Records], client: str) -> Array | None:
        """Absolute errors of the labels, given the inputs, in the label's own units."""

        def table(records: Records) -> tuple[Array, NDArray[Any]]:
            return encode(recipe.encoding, records), records[recipe.target.column]

        found = self._fitted(("", recipe.target.column), truth, client, table)
        if found is None:
            return None
        inputs, labels = table(truth[client])
        return np.asarray(np.abs(found[0].predict(inputs) - labels), dtype=np.float64)

    def _fitted(
        self,
        secret: tuple[Any, ...],
        truth: Mapping[str, Records],
        client: str,
        table: Callable[[Records], tuple[Array, NDArray[Any]]],
    ) -> tuple[Any, int] | None:
        """The model that has not seen a client, and of how many records it is; None of nothing to
        learn from."""
        if (secret, client) not in self._models:
            if secret not in self._tables:
                self._tables[secret] = {name: table(held) for name, held in truth.items()}
            tables = self._tables[secret]
            others = [tables[name] for name in tables if name != client]
            x, y = _some(others, self.seed)
            found = None
            if len(y) and (y.dtype.kind != "i" or len(np.unique(y)) > 1):
                if secret not in self._kinds:
                    self._kinds[secret] = _better(*_some([*tables.values()], self.seed), self.seed)
                found = _kinds(y, self.seed)[self._kinds[secret]].fit(x, y), len(y)
            self._models[secret, client] = found
        made: tuple[Any, int] | None = self._models[secret, client]
        return made


def best_imputation(
    view: View, others: Imputed | None, column: NDArray[Any], values: tuple[Value, ...]
) -> Imputed | None:
    """The better of two who do not listen: ``others`` holds other clients' records, the second
    only what the adversary of this view does (every decoder's prior).

    What is better is judged by the truth, for hits and for probabilities: nobody who listens is
    credited with what either of them knows.
    """
    needed = (AuxiliaryData, AttributeDomain, PublicRecords, ClientProgram)
    if view.lacks(needed) or view.know(AttributeDomain).spread:
        return others
    wanted = positions(column, values)
    p = imputed_prior(view)
    log2 = np.log2(p[np.arange(len(wanted)), wanted])
    own = Imputed(np.asarray(p.argmax(axis=1) == wanted, dtype=np.float64), log2)
    if others is None:
        return own
    hits = max(own.hits, others.hits, key=np.mean)
    return Imputed(hits, max(own.log2, others.log2, key=np.mean))


def _public(recipe: Told, records: Records, secret: tuple[str, ...]) -> Array:
    """Public inputs and the label, without what the secret is."""
    inside = recipe.encoding.inputs_of_all(secret)
    public = np.delete(encode(recipe.encoding, records), inside, axis=1)
    if recipe.target.column in secret:
        return np.asarray(public)
    return np.column_stack([public, recipe.target.encode(records)])


def _some(tables: Sequence[tuple[Array, NDArray[Any]]], seed: int) -> tuple[Array, NDArray[Any]]:
    """Of very many records as many as it takes."""
    if not tables:
        return np.zeros((0, 1)), np.zeros(0)
    x, y = (np.concatenate(part) for part in zip(*tables, strict=True))
    if len(y) <= MOST_RECORDS:
        return x, y
    kept = stream(seed, "imputation").choice(len(y), MOST_RECORDS, replace=False)
    return x[kept], y[kept]


def _kinds(y: NDArray[Any], seed: int) -> list[Any]:
    """A linear model and boosted trees, not fitted yet; whole numbers ``y`` are classes."""
    from sklearn import ensemble, linear_model
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    trees = {"max_iter": 60, "learning_rate": 0.1, "max_leaf_nodes": 15, "random_state": seed}
    if y.dtype.kind == "i":
        linear = make_pipeline(StandardScaler(), linear_model.LogisticRegression(max_iter=500))
        return [linear, ensemble.HistGradientBoostingClassifier(**trees)]
    return [linear_model.Ridge(1.0), ensemble.HistGradientBoostingRegressor(**trees)]


def _better(x: Array, y: NDArray[Any], seed: int) -> int:
    """Which kind cross-validates better; the linear one where there are too few records to say."""
    from sklearn.model_selection import KFold, StratifiedKFold, cross_val_score

    if y.dtype.kind == "i":
        folds, splitting = int(min(3, np.unique(y, return_counts=True)[1].min())), StratifiedKFold
        measure = "neg_log_loss"  # on few records the share right often prefers the worse model
    else:
        folds, splitting, measure = 3 * (len(y) >= 6), KFold, "neg_mean_absolute_error"
    if folds < 2:
        return 0
    split = splitting(folds, shuffle=True, random_state=seed)
    kinds = _kinds(y, seed)
    scores = [cross_val_score(m, x, y, cv=split, scoring=measure).mean() for m in kinds]
    return int(np.argmax(scores))


def imputed_group_means(
    recipe: Told,
    truth: Mapping[str, Records],
    client: str,
    column: str,
    values: tuple[Value, ...],
) -> Array | None:
    """The other clients' mean label in each group: what imputation guesses for this client.

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
