"""What would be known without listening: the majority guess and imputation from the other clients'
records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from overheard.attacks.baselines import imputed_prior
from overheard.data.dataset import together
from overheard.programs.program import Terms
from overheard.programs.records import Records, Value, encode, positions
from overheard.randomness import stream
from overheard.transcript.knowledge import (
    AttributeDomain,
    AuxiliaryData,
    ClientProgram,
    PublicRecords,
)
from overheard.transcript.target import Target, joined
from overheard.transcript.view import View

Array = NDArray[np.float64]
MOST_RECORDS, FOLDS = 20_000, 10


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


def _guess(p: Array, wanted: NDArray[Any]) -> Imputed:
    """The guess that these probabilities (m, K) make of values that are in these places."""
    hits = np.asarray(p.argmax(axis=1) == wanted, dtype=np.float64)
    return Imputed(hits, np.log2(p[np.arange(len(wanted)), wanted]))


class Imputer:
    """Imputation from the other clients' records, for all secrets and clients of one audit.

    The clients are dealt into at most `FOLDS` folds (of one client each, where there are no more),
    and those of a fold are guessed by a model of the records of all OTHER folds. Of two kinds, a
    linear model and gradient-boosted trees, a secret has the one that guesses all clients better
    (by log-loss, or absolute error of labels): that the choice has seen the held-out client too can
    only make the baseline better. What was fitted is kept as long as this object is: clients,
    rounds, knowledge and attacks are all compared with the same models. ``fitted`` is what models
    of the very same records have guessed, for all who are given the same dictionary.
    """

    def __init__(self, seed: int = 0, fitted: dict[Any, Array] | None = None) -> None:
        self.seed, self.fitted = seed, {} if fitted is None else fitted
        self._guessed: dict[Any, tuple[Array, NDArray[Any], dict[str, slice]]] = {}

    def values(
        self,
        recipe: Terms,
        truth: Mapping[str, Records],
        client: str,
        secret: Target,
        values: tuple[Value, ...],
    ) -> Imputed | None:
        """The secret, one column or several, given the public attributes and the label. None with a
        single client, or where the others show one value only."""

        def table(records: Records) -> tuple[Array, NDArray[Any]]:
            wanted = positions(joined(records, secret)[secret.column], values)
            return _public(recipe, records, secret.columns), wanted

        found = self._of((secret, values), truth, client, table, len(values))
        return None if found is None else _guess(*found)

    def label_errors(self, terms: Terms, truth: Mapping[str, Records], client: str) -> Array | None:
        """Absolute errors of the labels, given the inputs, in the label's own units."""
        column = terms.target.column

        def table(records: Records) -> tuple[Array, NDArray[Any]]:
            return encode(terms.encoding, records), records[column]

        found = self._of((column,), truth, client, table, 0)
        return None if found is None else np.abs(found[0] - found[1])

    def _of(
        self,
        secret: tuple[Any, ...],
        truth: Mapping[str, Records],
        client: str,
        table: Callable[[Records], tuple[Array, NDArray[Any]]],
        values: int,
    ) -> tuple[Array, NDArray[Any]] | None:
        """What a model of others says of a client's records, and what is so: probabilities (m, K)
        and places of so many ``values``, or numbers where these are 0. None of nothing to learn."""
        if secret not in self._guessed:
            ends = np.cumsum([len(held) for held in truth.values()])
            fold = np.repeat(np.arange(len(truth)) % FOLDS, np.diff(ends, prepend=0))
            x, y = table(together(*truth.values()))
            content = (x.tobytes(), y.tobytes(), fold.tobytes(), values, self.seed)
            if content not in self.fitted:
                both = [_held_out(kind, x, y, fold, values, self.seed) for kind in (0, 1)]
                self.fitted[content] = min(both, key=lambda guessed: _error(guessed, y))
            spans = {c: slice(e - len(truth[c]), e) for c, e in zip(truth, ends, strict=True)}
            self._guessed[secret] = self.fitted[content], y, spans
        guessed, y, spans = self._guessed[secret]
        mine = guessed[spans[client]]
        return None if np.isnan(mine).any() else (mine, y[spans[client]])


def _held_out(
    kind: int, x: Array, y: NDArray[Any], fold: NDArray[np.int64], values: int, seed: int
) -> Array:
    """What a linear model (0), or boosted trees (1), say of each fold's records that have learned
    from the others'; NaN where those are none, or show one value only.

    Probabilities are never surer than so many records allow: one more might have had any value.
    """
    from sklearn import ensemble, linear_model
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    linear = (linear_model.Ridge(1.0), linear_model.LogisticRegression(max_iter=500))
    trees = (ensemble.HistGradientBoostingRegressor, ensemble.HistGradientBoostingClassifier)
    how = {"max_iter": 60, "learning_rate": 0.1, "max_leaf_nodes": 15, "random_state": seed}
    model: Any = trees[bool(values)](**how) if kind else linear[bool(values)]
    if values and not kind:
        model = make_pipeline(StandardScaler(), model)
    guessed = np.full((len(y), values) if values else len(y), np.nan)
    for held in np.unique(fold):
        others, mine = np.flatnonzero(fold != held), fold == held
        if len(others) > MOST_RECORDS:
            others = stream(seed, "imputation").choice(others, MOST_RECORDS, replace=False)
        if not len(others) or (values and len(np.unique(y[others])) < 2):
            continue
        with threadpool_limits(1):  # on so few records threads wait for one another
            model.fit(x[others], y[others])
            predicted = model.predict_proba(x[mine]) if values else model.predict(x[mine])
        if values:
            p = np.zeros((len(predicted), values))
            p[:, model.classes_] = predicted
            predicted = (len(others) * p + 1) / (len(others) + values)
        guessed[mine] = predicted
    return guessed


def _error(guessed: Array, wanted: NDArray[Any]) -> float:
    """Log-loss of probabilities (on few records the share right often prefers the worse model), or
    absolute error of numbers."""
    if guessed.ndim == 1:
        return float(np.nansum(np.abs(guessed - wanted)))
    return -float(np.nansum(np.log2(guessed[np.arange(len(wanted)), wanted])))


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
    own = _guess(imputed_prior(view), wanted)
    if others is None:
        return own
    hits = max(own.hits, others.hits, key=np.mean)
    return Imputed(hits, max(own.log2, others.log2, key=np.mean))


def _public(recipe: Terms, records: Records, secret: tuple[str, ...]) -> Array:
    """Public inputs and the label, without what the secret is."""
    inside = recipe.encoding.inputs_of(secret)
    public = np.delete(encode(recipe.encoding, records), inside, axis=1)
    if recipe.target.column in secret:
        return np.asarray(public)
    return np.column_stack([public, recipe.target.encode(records)])


def imputed_group_means(
    recipe: Terms,
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
