"""What is known of a record before listening: what can be imputed from other people's records.

Every decoder's prior, and a guess to beat: knows nothing of decoding.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.program import Told
from overheard.programs.records import Records, encode
from overheard.transcript.knowledge import (
    AttributeDomain,
    AttributePrior,
    AuxiliaryData,
    Labels,
    PublicRecords,
    Training,
)
from overheard.transcript.view import View

Array = NDArray[np.float64]


def program_of(view: View) -> Told:
    """How records become inputs, as every participant is program."""
    if view.lacks([Training]):
        raise ChooseAnotherAttack(
            "the recording does not say what clients do, so records cannot be encoded"
        )
    return view.know(Training).program


def prior_shares(view: View) -> Array:
    """How common each value is at large, if that is known; never quite zero. Else all alike."""
    values = len(view.know(AttributeDomain).values)
    if AttributePrior not in view.kinds:
        return np.full(values, 1 / values)
    shares = np.asarray(view.know(AttributePrior).shares, dtype=np.float64)
    if len(shares) != values:
        raise FixData(f"the attribute prior has {len(shares)} shares for {values} values")
    shares = shares + 1e-6
    return np.asarray(shares / shares.sum())


def imputed_prior(view: View, records: Records | None = None, labels: Any = None) -> Array:
    """What is known of each record's value before listening (m, K): what is imputed, where
    auxiliary records tell the attribute, else how common each value is.

    Imputation is a logistic regression on everything public (and the labels, if they are known), or
    boosted trees: ridge and kind are chosen by cross-validation. records, labels: if not those of
    the view's client. Columns that are not known are left out.
    """
    domain = view.know(AttributeDomain)
    if records is None:
        records = view.know(PublicRecords).records
        labels = view.know(Labels).values if Labels in view.kinds else None
    flat = np.tile(prior_shares(view), (len(records), 1))
    if AuxiliaryData not in view.kinds or domain.spread or not len(records):
        return flat
    known = view.know(AuxiliaryData)
    if not set(domain.columns) <= set(known.records.columns):
        return flat
    secret = domain.positions(known.records)
    present, counts = np.unique(secret, return_counts=True)
    if len(present) < 2:
        return flat
    lacking = known.records.without(*records.columns).columns
    hidden = {**{name: value[0] for name, value in lacking.items()}, **domain.settings[0]}
    learned = known.records, None if labels is None else known.labels
    theirs = public_inputs(program_of(view), *learned, hidden)
    mine = public_inputs(program_of(view), records, labels, hidden)
    said = np.zeros_like(flat)
    said[:, present] = counts / len(secret)
    if mine.shape[1]:
        # several attacks on a client, and curves over its rounds, ask the same model
        key = (domain.column, tuple(sorted(hidden)), labels is None)
        if key not in known.derived:
            known.derived[key] = _imputation(theirs, secret, int(counts.min()))
        said[:, present] = known.derived[key].predict_proba(mine)
    # never surer than so many records allow: one more record might have had any value
    return np.asarray((len(secret) * said + 1) / (len(secret) + len(domain.values)))


def _imputation(
    inputs: Array,
    secret: NDArray[Any],
    rarest: int,
    strengths: tuple[float, ...] = (0.01, 0.1, 1.0),
) -> Any:
    """The model of the secret that predicts best: logistic regression with one of these strengths
    of its ridge (strongest first), or boosted trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.model_selection import cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    folds = 3
    models: list[Any] = [
        make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=2000)) for c in strengths
    ]
    # where texts are numbers, what goes with them is no straight line
    models.append(HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=15, random_state=0))
    if rarest < folds:
        return models[0].fit(inputs, secret)
    losses = [
        log_loss(secret, cross_val_predict(m, inputs, secret, cv=folds, method="predict_proba"))
        for m in models
    ]
    return models[int(np.argmin(losses))].fit(inputs, secret)


def public_inputs(program: Told, records: Records, labels: Any, hidden: Mapping[str, Any]) -> Array:
    """Inputs without those of the hidden columns, and the label where it is known."""
    inputs = encode(program.encoding, records, hidden)
    inputs = np.delete(inputs, program.encoding.inputs_of_all(hidden), axis=1)
    if labels is None:
        return inputs
    return np.column_stack([inputs, program.target.encode_values(labels)])
