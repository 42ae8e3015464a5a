"""What the attacks on sums share: the adversary's own records, and what a sum consists of.

With local mini-batches of B records, ``total / learning_rate`` of a round is a sum over the
participants' records of gradients with weight 1/B, taken at models that move a little during the
round. All of them are taken at one model here, the middle of the mean path, which the sum tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.gradient_rows import GradientRows
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, encode
from overheard.transcript.knowledge import (
    AuxiliaryData,
    LocalTraining,
    RoundSum,
    ShardSize,
    Sums,
    SuspectedBehaviour,
    TargetRecord,
)
from overheard.transcript.view import View

Array = NDArray[np.float64]
NEEDS: frozenset[type[Any]] = frozenset({Sums, LocalTraining, AuxiliaryData, ShardSize})
USES: frozenset[type[Any]] = frozenset({TargetRecord, SuspectedBehaviour})
LEAST_ROUNDS = 2  # one sum tells nobody apart
LEAST_AUXILIARY = 50  # fewer do not show what updates look like


@dataclass(frozen=True)
class Known:
    """Encoded records and their labels (n, d), (n,)."""

    inputs: NDArray[np.floating[Any]]
    labels: NDArray[np.floating[Any]]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: Any) -> Known:
        """These records."""
        return Known(self.inputs[rows], self.labels[rows])


@dataclass(frozen=True)
class Adversary:
    """What somebody who hears sums works with.

    ``targets``: the records whose holders are looked for, one each; nobody's for ``behaviour``.
    """

    recipe: Recipe
    auxiliary: Known
    shard: int
    clients: int
    targets: Known | None
    behaviour: str

    @property
    def steps(self) -> int:
        """Gradient steps S of a client in a round."""
        return self.recipe.local_steps(self.shard)

    @property
    def weights(self) -> tuple[float, float]:
        """Sum of the weights of a client's records in its update, and the sum of their squares."""
        recipe = self.recipe
        if recipe.sends_gradient or recipe.batch_size is None:
            return float(self.steps), self.steps**2 / self.shard
        batch = min(recipe.batch_size, self.shard)
        rest = self.shard % batch
        one_pass = self.shard // batch / batch + (1 / rest if rest else 0.0)
        passes = -(-self.shard // batch)
        # a record comes once an epoch; its weights in different epochs are nearly independent
        epochs = self.steps / passes
        average = passes / self.shard
        spread = one_pass - passes * average
        return float(self.steps), epochs * spread + (epochs * average) ** 2 * self.shard

    @property
    def draws(self) -> bool:
        """Whether a record's gradient at a model is a draw: under dropout."""
        return network(self.recipe).chance

    def middle(self, heard: RoundSum) -> NDArray[np.floating[Any]]:
        """The model in the middle of the participants' mean path."""
        if self.steps < 2 or self.recipe.sends_gradient:
            return heard.sent
        share = (self.steps - 1) / (2 * self.steps * len(heard.participants))
        return np.asarray(heard.sent - share * heard.total, heard.sent.dtype)

    def rows(self, theta: NDArray[Any], known: Known, rng: np.random.Generator) -> GradientRows:
        """Gradients of records at a model, each with dropout masks of its own."""
        return network(self.recipe).rows(theta, known.inputs, known.labels, rng)


def adversary_of(view: View) -> Adversary:
    """Read the view; refuse what cannot be worked with."""
    recipe, sums = view.know(LocalTraining).recipe, view.know(Sums)
    sums.require(LEAST_ROUNDS, "telling clients apart by sums")
    told = sums.participation
    if (told == told[0]).all():
        raise ChooseAnotherAttack(
            f"the same {int(told[0].sum())} of {len(sums.clients)} clients took part in every "
            "round, so that their sums do not tell them apart; sample participants (participation)"
        )
    auxiliary = view.know(AuxiliaryData)
    mine = known_records(recipe, auxiliary.records, auxiliary.labels)
    if len(mine) < LEAST_AUXILIARY:
        raise FixData(
            f"{len(mine)} auxiliary records are too few to know what updates look like; give at "
            f"least {LEAST_AUXILIARY}"
        )
    targets, behaviour = None, ""
    if TargetRecord in view.kinds:
        target = view.know(TargetRecord)
        targets = known_records(recipe, target.records, target.labels)
    elif SuspectedBehaviour in view.kinds:
        behaviour = view.know(SuspectedBehaviour).behaviour
    else:
        raise ChooseAnotherAttack(
            "neither a target record nor a suspected behaviour is known: say which property is "
            "looked for"
        )
    shard = view.know(ShardSize).records
    return Adversary(recipe, mine, shard, len(sums.clients), targets, behaviour)


def known_records(recipe: Recipe, records: Records, labels: NDArray[Any]) -> Known:
    """Records as the model sees them, in the precision of the wire."""
    inputs = encode(recipe.encoding, records).astype(recipe.wire)
    return Known(inputs, recipe.target.encode_values(labels))


def attendance(participation: Array) -> dict[str, int]:
    """How many clients the sums say nothing or little about."""
    took = participation.sum(axis=0)
    return {
        "never_took_part": int((took == 0).sum()),
        "always_took_part": int((took == len(participation)).sum()),
    }
