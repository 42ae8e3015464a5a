"""What every attack is compared with, whatever it asks about.

Guesses of who does not listen, and what the messages show outright.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from overheard.attacks.label import encoded, sort
from overheard.attacks.stranger import public_inputs, told
from overheard.decoding.mixed_model import DEFAULT
from overheard.errors import ChooseAnotherAttack
from overheard.programs.losses import loss_named
from overheard.programs.networks import network
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
    Link,
    LocalTraining,
    PublicRecords,
)
from overheard.transcript.view import View


@dataclass(frozen=True)
class Majority:
    """Gives every record the population's shares, and so guesses the commonest value for all."""

    name: ClassVar[str] = "majority"
    paper: ClassVar[str] = "baseline"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {PublicRecords, AttributeDomain, AttributePrior}
    )

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        records = len(view.know(PublicRecords).records)
        shares = np.asarray(view.know(AttributePrior).shares, dtype=np.float64)
        probabilities = np.tile(shares / shares.sum(), (records, 1))
        return AttributeValues(probabilities, view.know(AttributeDomain).values)


@dataclass(frozen=True)
class RandomGuess:
    """Picks one of the values at random for every record, all equally likely: right 1 / K times."""

    name: ClassVar[str] = "random"
    paper: ClassVar[str] = "lyu2021"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({PublicRecords, AttributeDomain})

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        values = view.know(AttributeDomain).values
        choice = rng.integers(0, len(values), len(view.know(PublicRecords).records))
        # barely more likely than the others: a throw is no knowledge, and says so
        probabilities = np.full((len(choice), len(values)), 1 / len(values))
        probabilities[np.arange(len(choice)), choice] += 1e-6
        return AttributeValues(probabilities / probabilities.sum(axis=1, keepdims=True), values)


@dataclass(frozen=True)
class PublicModel:
    """Trains a logistic regression of the attribute on the other attributes of records from
    elsewhere, whose values are known, and applies it to the client's records. Never listens.

    Settings: ``records``, how many of the auxiliary records are used (lyu2021: 100 or 1000).
    """

    name: ClassVar[str] = "public_model"
    paper: ClassVar[str] = "lyu2021"
    question: ClassVar[str] = "attribute"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {PublicRecords, AttributeDomain, AuxiliaryData}
    )
    uses: ClassVar[frozenset[type[Any]]] = frozenset({LocalTraining, ClientProgram})

    records: int = 1000

    def __call__(self, view: View, rng: np.random.Generator) -> AttributeValues:
        from sklearn.linear_model import LogisticRegression

        domain = view.know(AttributeDomain)
        known = view.know(AuxiliaryData).records
        if not set(domain.columns) <= set(known.columns):
            raise ChooseAnotherAttack(f"the auxiliary records do not tell {domain.column!r}")
        known = known.take(np.arange(min(self.records, len(known))))
        secret = domain.positions(known)
        shown = np.unique(secret)
        if len(shown) < 2:
            raise ChooseAnotherAttack("the auxiliary records show one value only: nothing to learn")
        others, mine = (
            public_inputs(told(view), records, None, domain.settings[0])
            for records in (known, view.know(PublicRecords).records)
        )
        model = LogisticRegression(max_iter=2000).fit(others, secret)
        probabilities = np.zeros((len(mine), len(domain.values)))
        probabilities[:, shown] = model.predict_proba(mine)
        return AttributeValues(probabilities, domain.values, {"trained_on": len(known)})


@dataclass(frozen=True)
class Coin:
    """Tosses a coin for every record of the pool: what is known before anybody listens."""

    name: ClassVar[str] = "coin"
    paper: ClassVar[str] = "baseline"
    question: ClassVar[str] = "membership"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({CandidatePool})

    def __call__(self, view: View, rng: np.random.Generator) -> Membership:
        tosses = rng.random(len(view.know(CandidatePool).labels)) < 0.5
        # barely more likely than not: a toss is no knowledge, and says so
        return Membership(np.where(tosses, 0.5 + 1e-6, 0.5 - 1e-6))


@dataclass(frozen=True)
class Naive:
    """Takes the mean prediction of the current model on the auxiliary records of each group
    (leprovost2023's own baseline)."""

    name: ClassVar[str] = "naive"
    paper: ClassVar[str] = "leprovost2023"
    question: ClassVar[str] = "label"
    needs: ClassVar[frozenset[type[Any]]] = frozenset(
        {Broadcast, LocalTraining, AuxiliaryData, Groups}
    )

    def __call__(self, view: View, rng: np.random.Generator) -> GroupMeans:
        recipe = view.know(LocalTraining).recipe
        if not loss_named(recipe.loss).least_squares:
            raise ChooseAnotherAttack("labels are numbers here: works for squared error only")
        inputs, _, groups = encoded(view, recipe)
        predicted = network(recipe).predict(view.know(Broadcast).last(), inputs)[:, 0]
        means = np.bincount(groups, predicted.astype(np.float64)) / np.bincount(groups)
        return _no_claim(view.know(Groups).values, recipe.target.decode_values(means))


@dataclass(frozen=True)
class AuxiliaryMean:
    """Takes the mean label of the auxiliary records of each group: a stranger's guess, which needs
    neither the model nor a single message."""

    name: ClassVar[str] = "auxiliary_mean"
    paper: ClassVar[str] = "baseline"
    question: ClassVar[str] = "label"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({AuxiliaryData, Groups})

    def __call__(self, view: View, rng: np.random.Generator) -> GroupMeans:
        auxiliary, sorting = view.know(AuxiliaryData), view.know(Groups)
        groups = sort(auxiliary, sorting)
        sums = np.bincount(groups, auxiliary.labels.astype(np.float64))
        return _no_claim(sorting.values, sums / np.bincount(groups))


def _no_claim(groups: tuple[Any, ...], means: np.ndarray[Any, Any]) -> GroupMeans:
    return GroupMeans(groups, means, np.full(len(groups), np.nan))


@dataclass(frozen=True)
class Nobody:
    """Says that nobody has the property, and gives every client the same prior probability: what
    any attack on sums must do better than."""

    name: ClassVar[str] = "nobody"
    paper: ClassVar[str] = "baseline"
    question: ClassVar[str] = "property"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Broadcast})

    share: float = DEFAULT.positives[0] / sum(DEFAULT.positives)

    def __call__(self, view: View, rng: np.random.Generator) -> ClientProperty:
        clients = view.know(Broadcast).clients
        return ClientProperty(
            np.full(len(clients), self.share), np.zeros(len(clients), dtype=bool), clients
        )


@dataclass(frozen=True)
class LastReturned:
    """Takes the last model that the client returned for its local model (xu2021's baseline)."""

    name: ClassVar[str] = "last_returned"
    paper: ClassVar[str] = "xu2021"
    question: ClassVar[str] = "local_model"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Link})

    def __call__(self, view: View, rng: np.random.Generator) -> LocalModel:
        link = view.know(Link)
        if link.gradients:
            raise ChooseAnotherAttack("the clients return gradients, not models")
        return _as_is(link.returned[-1].astype(np.float64))


@dataclass(frozen=True)
class GlobalModel:
    """Takes the last model that the server sent for the client's local model: what every
    participant has without listening to anybody."""

    name: ClassVar[str] = "global_model"
    paper: ClassVar[str] = "xu2021"
    question: ClassVar[str] = "local_model"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Broadcast})

    def __call__(self, view: View, rng: np.random.Generator) -> LocalModel:
        return _as_is(view.know(Broadcast).last())


def _as_is(parameters: np.ndarray[Any, np.dtype[np.float64]]) -> LocalModel:
    return LocalModel(parameters, np.full(len(parameters), np.nan), identified=0)
