"""What would be known without listening: the majority guess and a stranger's imputation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.evaluation.metrics import value_indices
from overheard.learning.recipe import Recipe
from overheard.learning.records import Records, Value, encode
from overheard.randomness import stream

Array = NDArray[np.float64]
MOST_RECORDS = 20_000


def majority_share(column: NDArray[Any], values: tuple[Value, ...]) -> float:
    """Accuracy of always guessing the client's own commonest value."""
    counts = np.bincount(value_indices(column, values), minlength=len(values))
    return float(counts.max() / counts.sum())


def imputation_hits(
    recipe: Recipe,
    truth: Mapping[str, Records],
    client: str,
    column: str,
    values: tuple[Value, ...],
    seed: int,
) -> Array | None:
    """Which records a stranger would get right with labelled records from elsewhere.

    A logistic regression and gradient-boosted trees of the secret given the public attributes and
    the label are trained on the OTHER clients' records; the one that cross-validates better there
    is scored on this client. None with a single client, or where the others show one value only.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    others = [name for name in truth if name != client]
    if not others:
        return None
    x = np.concatenate([_public(recipe, truth[o], column, values) for o in others])
    s = np.concatenate([value_indices(truth[o][column], values) for o in others])
    rng = stream(seed, "imputation", client, column)
    if len(s) > MOST_RECORDS:
        kept = rng.choice(len(s), MOST_RECORDS, replace=False)
        x, s = x[kept], s[kept]
    counts = np.bincount(s, minlength=len(values))
    if (counts > 0).sum() < 2:
        return None
    models = [
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)),
        HistGradientBoostingClassifier(
            max_iter=60, learning_rate=0.1, max_leaf_nodes=15, random_state=int(rng.integers(2**31))
        ),
    ]
    folds = int(min(3, counts[counts > 0].min()))
    best = models[0]
    if folds >= 2:
        split = StratifiedKFold(folds, shuffle=True, random_state=int(rng.integers(2**31)))
        scores = [cross_val_score(m, x, s, cv=split).mean() for m in models]
        best = models[int(np.argmax(scores))]
    best.fit(x, s)
    mine = _public(recipe, truth[client], column, values)
    wanted = value_indices(truth[client][column], values)
    return np.asarray(best.predict(mine) == wanted, dtype=np.float64)


def _public(recipe: Recipe, records: Records, column: str, values: tuple[Value, ...]) -> Array:
    """Public inputs and the label; the secret's inputs are left out."""
    inputs = encode(recipe.encoding, records.without(column), {column: values[0]})
    inside = recipe.encoding.inputs_of(column)
    public = np.delete(inputs, np.arange(inside.start, inside.stop), axis=1)
    return np.column_stack([public, recipe.target.encode(records)])
