"""What is known before listening, and what every attack is compared with.

First what can be imputed of a record from other people's (`imputed_prior`): every decoder's prior,
and a guess to beat. Then the guesses of who does not listen, and what the messages show outright,
for every question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.label import encoded, sort
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.losses import loss_named
from overheard.programs.networks import network
from overheard.programs.program import Terms
from overheard.programs.records import Records, encode
from overheard.transcript.guess import (
    AttributeValues,
    ClientProperty,
    GroupMeans,
    LocalModel,
    Membership,
)
from overheard.transcript.knowledge import (
    AttributeDomain,
    AttributePrior,
    AuxiliaryData,
    Broadcast,
    CandidatePool,
    ClientProgram,
    Groups,
    Labels,
    Messages,
    PublicRecords,
)
from overheard.transcript.view import Kinds, View

Array = NDArray[np.float64]
ASKED: Kinds = frozenset({PublicRecords, AttributeDomain})
"""What an attribute is asked of."""


# --- What can be imputed from other people's records ----------------------------------------------


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
    program = view.know(ClientProgram).program
    theirs = public_inputs(program, *learned, hidden)
    mine = public_inputs(program, records, labels, hidden)
    rates = np.zeros_like(flat)
    rates[:, present] = counts / len(secret)
    if mine.shape[1]:
        # several attacks on a client, and curves over its rounds, ask the same model
        key = (domain.column, tuple(sorted(hidden)), labels is None)
        if key not in known.derived:
            known.derived[key] = _imputation(theirs, secret, int(counts.min()))
        rates[:, present] = known.derived[key].predict_proba(mine)
    # never more certain than so many records allow: one more record might have had any value
    return np.asarray((len(secret) * rates + 1) / (len(secret) + len(domain.values)))


def _imputation(inputs: Array, secret: NDArray[Any], rarest: int) -> Any:
    """The model of the secret that predicts best: logistic regression with one of three strengths
    of its ridge (strongest first), or boosted trees."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss
    from sklearn.model_selection import cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    folds = 3
    models: list[Any] = [
        make_pipeline(StandardScaler(), LogisticRegression(C=c, max_iter=2000))
        for c in (0.01, 0.1, 1.0)
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


def public_inputs(terms: Terms, records: Records, labels: Any, hidden: Mapping[str, Any]) -> Array:
    """Inputs without those of the hidden columns, and the label where it is known."""
    inputs = encode(terms.encoding, records, hidden)
    inputs = np.delete(inputs, terms.encoding.inputs_of(hidden), axis=1)
    if labels is None:
        return inputs
    return np.column_stack([inputs, terms.target.encode_values(labels)])


# --- Guesses --------------------------------------------------------------------------------------


class Baseline:
    """A guess that has nothing to set, and so a frozen dataclass without fields; of no paper
    unless it says so."""

    paper: ClassVar[str] = "baseline"

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


class Majority(Baseline):
    """Gives every record the population's shares, and so guesses the commonest value for all."""

    name: ClassVar[str] = "majority"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[Kinds] = ASKED | {AttributePrior}

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        probabilities = np.tile(prior_shares(view), (len(view.know(PublicRecords).records), 1))
        return AttributeValues(probabilities, view.know(AttributeDomain).values)


class RandomGuess(Baseline):
    """Picks one of the values at random for every record, all equally likely: right 1 / K times."""

    name: ClassVar[str] = "random"
    paper: ClassVar[str] = "lyu2021"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[Kinds] = ASKED

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        records, values = view.know(PublicRecords).records, view.know(AttributeDomain).values
        # the greatest is barely more likely than the others: a throw is no knowledge, and says so
        thrown = 1 + 1e-6 * rng.random((len(records), len(values)))
        return AttributeValues(thrown / thrown.sum(axis=1, keepdims=True), values)


@dataclass(frozen=True)
class PublicModel:
    """Trains a logistic regression of the attribute on the other attributes of records from
    elsewhere, whose values are known, and applies it to the client's records. Never listens.

    Solves: P(s | public attributes), fitted elsewhere (lyu2021, section 4.3)

    Settings: ``records``, how many of the auxiliary records are used (lyu2021: 100 or 1000).
    """

    name: ClassVar[str] = "public_model"
    paper: ClassVar[str] = "lyu2021"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[Kinds] = ASKED | {AuxiliaryData, ClientProgram}

    records: int = 1000

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        from sklearn.linear_model import LogisticRegression

        domain = view.know(AttributeDomain)
        known = view.know(AuxiliaryData).records
        if not set(domain.columns) <= set(known.columns):
            raise ChooseAnotherAttack(f"the auxiliary records do not tell {domain.column!r}")
        known = known.take(np.arange(min(self.records, len(known))))
        secret = domain.positions(known)
        classes = np.unique(secret)
        if len(classes) < 2:
            raise ChooseAnotherAttack("the auxiliary records show one value only: nothing to learn")
        program, own = view.know(ClientProgram).program, view.know(PublicRecords).records
        others = public_inputs(program, known, None, domain.settings[0])
        mine = public_inputs(program, own, None, domain.settings[0])
        model = LogisticRegression(max_iter=2000).fit(others, secret)
        probabilities = np.zeros((len(mine), len(domain.values)))
        probabilities[:, classes] = model.predict_proba(mine)
        return AttributeValues(probabilities, domain.values, {"trained_on": len(known)})


class Coin(Baseline):
    """Tosses a coin for every record of the pool: what is known before anybody listens."""

    name: ClassVar[str] = "coin"
    question: ClassVar[str] = "membership"
    needs: ClassVar[Kinds] = frozenset({CandidatePool})

    def __call__(self, view: View, rng: np.random.Generator) -> Membership:
        # barely more likely than not: a toss is no knowledge, and says so
        return Membership(0.5 + 1e-6 * rng.normal(size=len(view.know(CandidatePool).labels)))


class AuxiliaryMean(Baseline):
    """Takes the mean label of the auxiliary records of each group: an imputation, which needs
    neither the model nor a single message."""

    name: ClassVar[str] = "auxiliary_mean"
    question: ClassVar[str] = "label"
    needs: ClassVar[Kinds] = frozenset({AuxiliaryData, Groups})

    def __call__(self, view: View, rng: np.random.Generator) -> GroupMeans:
        auxiliary, sorting = view.know(AuxiliaryData), view.know(Groups)
        return _group_means(sorting, sort(auxiliary, sorting), auxiliary.labels)


class Naive(Baseline):
    """Takes the mean prediction of the current model on the auxiliary records of each group
    (leprovost2023's own baseline)."""

    name: ClassVar[str] = "naive"
    paper: ClassVar[str] = "leprovost2023"
    question: ClassVar[str] = "label"
    needs: ClassVar[Kinds] = AuxiliaryMean.needs | {Broadcast, ClientProgram}

    def __call__(self, view: View, rng: np.random.Generator) -> GroupMeans:
        recipe = view.know(ClientProgram).recipe
        if not loss_named(recipe.loss).least_squares:
            raise ChooseAnotherAttack("labels are numbers here: works for squared error only")
        inputs, _, groups = encoded(view, recipe)
        outputs = network(recipe).predict(view.know(Broadcast).last(), inputs)[:, 0].astype(float)
        return _group_means(view.know(Groups), groups, recipe.target.decode_values(outputs))


def _group_means(sorting: Groups, groups: Any, labels: Any) -> GroupMeans:
    """The mean label of the records of each group, without a claim how far off it is."""
    means = np.bincount(groups, np.asarray(labels, np.float64)) / np.bincount(groups)
    return GroupMeans(sorting.values, means, np.full(len(means), np.nan))


class Nobody(Baseline):
    """Says that nobody has the property, and gives every client the same prior probability, one in
    ten: what any attack on sums must do better than."""

    name: ClassVar[str] = "nobody"
    question: ClassVar[str] = "property"
    needs: ClassVar[Kinds] = frozenset({Broadcast})

    def __call__(self, view: View, rng: np.random.Generator) -> ClientProperty:
        clients = view.know(Broadcast).clients
        return ClientProperty(np.full(len(clients), 0.1), (False,) * len(clients), clients)


class LastReturned(Baseline):
    """Takes the last model that the client returned for its local model (xu2021's baseline)."""

    name: ClassVar[str] = "last_returned"
    paper: ClassVar[str] = "xu2021"
    question: ClassVar[str] = "local_model"
    needs: ClassVar[Kinds] = frozenset({Messages})

    def __call__(self, view: View, rng: np.random.Generator) -> LocalModel:
        link = view.know(Messages)
        if link.gradients:
            raise ChooseAnotherAttack("the clients return gradients, not models")
        return _as_is(link.returned[-1].astype(np.float64))


class GlobalModel(Baseline):
    """Takes the last model that the server sent for the client's local model: what every
    participant has without listening to anybody."""

    name: ClassVar[str] = "global_model"
    paper: ClassVar[str] = "xu2021"
    question: ClassVar[str] = "local_model"
    needs: ClassVar[Kinds] = frozenset({Broadcast})

    def __call__(self, view: View, rng: np.random.Generator) -> LocalModel:
        return _as_is(view.know(Broadcast).last())


def _as_is(parameters: Array) -> LocalModel:
    return LocalModel(parameters, np.full(len(parameters), np.nan), identified=0)
