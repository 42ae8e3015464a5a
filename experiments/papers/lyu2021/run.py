"""One cell of lyu2021: a victim's federation, what an adversary holds of it, and one method.

The paper states neither learning rate nor split. It lists the best of several training phases,
chosen by the truth; here the search keeps the configuration of least objective, and `statistics`
follows the majority rule. `tables` has the cells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.papers.scoring import messages, truth_and_recipe
from experiments.recordings import federation, recorded
from experiments.runner import Value, Values
from overheard.attacks.papers.lyu2021 import phase
from overheard.data.bundled import VICTIM
from overheard.decoding.ties import same_rows
from overheard.errors import ChooseAnotherAttack, GrantKnowledge
from overheard.evaluation import metrics
from overheard.evaluation.baselines import Imputer, majority_share
from overheard.federation.federation import parse_config
from overheard.federation.plan import plan
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, encode
from overheard.transcript.guess import AttributeValues, Membership
from overheard.transcript.knowledge import AttributePrior, Labels, Messages
from overheard.transcript.store import MEMBER_COLUMN, Recording
from overheard.transcript.target import attribute, membership
from overheard.transcript.threat import ISOLATING_SERVER, SERVER
from overheard.transcript.view import Attack, View, launch, observe


@dataclass(frozen=True)
class Setting:
    """``column`` of ``records`` records of the victim; ``batch`` 0 is the full batch.

    ``others`` counts the other participants (0: the victim is isolated); ``phase`` limits which
    rounds are observed. ``pooled``: who of a pool is a member is asked as well. ``hidden``: units
    of the network's layers. ``classes`` 0 are those of the data.
    """

    source: str
    column: str
    records: int
    batch: int = 0
    rate: float = 0.1
    rounds: int = 100
    others: int = 0
    phase: str = ""
    hidden: str = "128"
    pooled: bool = False
    labels_known: bool = True
    prior_known: bool = True
    classes: int = 0

    def named(self) -> dict[str, Value]:
        """What is not as usual, by name: the setting of a cell."""
        usual = asdict(Setting("", "", 0))
        return {name: value for name, value in asdict(self).items() if value != usual[name]}

    def config(self, seed: int) -> dict[str, Any]:
        """The federation; a pool's outsiders are taken out of a victim that is twice as large."""
        options = {
            "seed": seed,
            "victim": self.records * (2 if self.pooled else 1),
            "participants": 1 + self.others,
            "attributes": (self.column,),
            **({"classes": self.classes} if self.classes else {}),
        }
        model = {"name": "mlp", "hidden": [int(units) for units in self.hidden.split("-")]}
        training = {
            "rounds": self.rounds,
            "learning_rate": self.rate,
            "batch_size": self.batch,
            "epochs": 1,
            "isolate": "" if self.others else VICTIM,
        }
        audit = {"membership": self.records if self.pooled else 0}
        return federation(seed, self.source, model, training, options) | {"audit": audit}

    def view(self, recording: Recording) -> View:
        """What the adversary holds."""
        asked = membership(self.column) if self.pooled else attribute(self.column)
        threat = SERVER if self.others else ISOLATING_SERVER
        threat = threat if self.labels_known else threat.without(Labels)
        threat = threat if self.prior_known else threat.without(AttributePrior)
        view = observe(recording, threat, asked, VICTIM)
        if not self.phase:
            return view
        link = view.know(Messages)
        return view.knowing(messages(link, phase(len(link), self.phase)))


def measured(setting: Setting, attack: Attack | None, seed: int) -> Values:
    """What a method gets right; no attack: the imputation from the public set.

    A method that refuses the setting says why.
    """
    if attack is None:
        return imputed(setting, seed)
    with recorded(setting.config(seed), shared=True) as recording:
        view, begin = setting.view(recording), process_time()
        try:
            guess = launch(attack, view, seed)
        except (ChooseAnotherAttack, GrantKnowledge) as error:
            return {"refused": str(error)}
        seconds = process_time() - begin
        score = members_scored if setting.pooled else attribute_scored
        return {**score(recording, setting, guess), "CPU seconds": seconds}


def imputed(setting: Setting, seed: int) -> Values:
    """Who has 1,000 other records with the attribute and the label, and does not listen."""
    ready = plan(parse_config(setting.config(seed)))
    assert ready.auxiliary is not None, "these sources deal a public set"
    truth = {VICTIM: ready.clients[VICTIM], "public": ready.auxiliary}
    values, secret = ready.attributes[setting.column].values, attribute(setting.column)
    found = Imputer(seed).values(ready.recipe, truth, VICTIM, secret, values)
    assert found is not None, "there is a public set to learn from"
    majority = majority_share(truth[VICTIM][setting.column], values)
    return {"accuracy": float(found.hits.mean()), "majority": majority}


def attribute_scored(
    recording: Recording, setting: Setting, guess: AttributeValues
) -> Mapping[str, float]:
    """Accuracy, also balanced and without indistinguishable records; and that of labels."""
    truth, recipe = truth_and_recipe(recording)
    records = truth[VICTIM]
    secret = records[setting.column]
    hits = metrics.attribute_hits(guess, secret)
    found = {
        "accuracy": float(hits.mean()),
        "majority": majority_share(secret, guess.values),
        "balanced accuracy": metrics.balanced_accuracy(guess, secret),
    }
    twins = has_twin(recipe, records, setting.column, guess.values[0])
    if twins.any() and not twins.all():
        found["accuracy, records without a twin"] = float(hits[~twins].mean())
    if guess.labels is not None:
        right = metrics.attribute_hits(guess.labels, records[recipe.target.column])
        found["accuracy of labels"] = float(right.mean())
    return found


def members_scored(
    recording: Recording, setting: Setting, guess: Membership
) -> Mapping[str, float]:
    """Accuracy of membership, and of members' attribute where it is guessed too."""
    answer = recording.truth("Membership", membership(setting.column).key)[VICTIM]
    member = answer[MEMBER_COLUMN] > 0.5
    found = {
        "accuracy": float(np.mean(guess.choice() == member)),
        "majority": float(max(member.mean(), 1 - member.mean())),
    }
    if guess.attribute is not None:
        right = metrics.attribute_hits(guess.attribute, answer[setting.column])[member]
        found["accuracy of members' attribute"] = float(right.mean())
    return found


def has_twin(recipe: Recipe, records: Records, column: str, any_value: Any) -> NDArray[np.bool_]:
    """Which records agree with another in everything but the secret: nobody can tell them apart."""
    public = encode(recipe.encoding, records, {column: any_value})
    groups = same_rows(np.column_stack([public, recipe.target.encode(records)]))
    return np.asarray(np.bincount(groups)[groups] > 1)
