"""Which clients have a property? A matched filter a round, then a set of clients over all rounds.

With local mini-batches of B records, ``total / learning_rate`` of a round is a sum over the
participants' records of gradients with weight 1/B, taken at models that move a little during the
round. All of them are taken at one model here, the middle of the mean path, which the sum tells.

Round by round (`outputs`): gradients of one block of auxiliary records are made anew, the filter
takes a few more steps from where it was (`decoding.client_sets`), and its outputs for held-out
records say what a sum without the property gives and, by how they agree from round to round, how
much a client repeats itself. Nothing of a round is kept but these outputs, a few kilobytes. Over
all rounds `decoding.client_sets` finds who has the property.

Under dropout a target's gradient is a draw: the filter is made from the mean of some draws, and its
outputs for as many others say what a holder adds, on average and from round to round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overheard.decoding import client_sets
from overheard.decoding.client_sets import FILTER, FilterOptions, Options, Posterior, matched
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.gradient_rows import GradientRows
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.programs.records import encode
from overheard.transcript.guess import ClientProperty
from overheard.transcript.kind import RoundSum
from overheard.transcript.knowledge import (
    AuxiliaryData,
    ClientProgram,
    ShardSize,
    Sums,
    SuspectedBehaviour,
    TargetRecord,
)
from overheard.transcript.view import Kinds, View

Array = NDArray[np.float64]
NEEDS: Kinds = frozenset({Sums, ClientProgram, AuxiliaryData, ShardSize})
USES: Kinds = frozenset({TargetRecord, SuspectedBehaviour})
EFFECT = {"inversion": -2.0, "ascent": -2.0, "free-rider": -1.0}
"""What a dishonest client does to the mean contribution along the mean gradient, in its units."""


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

    def joined(self, *others: Known) -> Known:
        """These records and others behind them."""
        parts = zip(*((known.inputs, known.labels) for known in (self, *others)), strict=True)
        return Known(*(np.concatenate(part) for part in parts))


@dataclass(frozen=True)
class Adversary:
    """What somebody who observes sums works with.

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
        size = None if self.recipe.sends_gradient else self.recipe.batch_size
        batch = min(size or self.shard, self.shard)
        rest = self.shard % batch
        one_pass = self.shard // batch / batch + (1 / rest if rest else 0.0)
        passes = -(-self.shard // batch)
        # a record comes once an epoch; its weights in different epochs are nearly independent
        epochs = self.steps / passes
        average = passes / self.shard
        spread = one_pass - passes * average
        return float(self.steps), epochs * spread + (epochs * average) ** 2 * self.shard

    def middle(self, observed: RoundSum) -> NDArray[np.floating[Any]]:
        """The model in the middle of the participants' mean path."""
        share = (self.steps - 1) / (2 * self.steps * len(observed.participants))
        return np.asarray(observed.sent - share * observed.total, observed.sent.dtype)

    def rows(self, theta: NDArray[Any], known: Known, rng: np.random.Generator) -> GradientRows:
        """Gradients of records at a model, each with dropout masks of its own."""
        return network(self.recipe).rows(theta, known.inputs, known.labels, rng)


def adversary_of(view: View, least_auxiliary: int = 50) -> Adversary:
    """Read the view; refuse what cannot be worked with: fewer auxiliary records do not show what
    updates look like."""
    recipe, sums = view.know(ClientProgram).plain_recipe, view.know(Sums)
    sums.require(2, "telling clients apart by sums")  # one sum tells nobody apart
    took = sums.participation
    if (took == took[0]).all():
        raise ChooseAnotherAttack(
            f"the same {int(took[0].sum())} of {len(sums.clients)} clients took part in every "
            "round, so that their sums do not tell them apart; sample participants (participation)"
        )
    mine = known_records(recipe, view.know(AuxiliaryData))
    if len(mine) < least_auxiliary:
        raise FixData(
            f"{len(mine)} auxiliary records are too few to know what updates look like; give at "
            f"least {least_auxiliary}"
        )
    targets, behaviour = None, ""
    if TargetRecord in view.kinds:
        targets = known_records(recipe, view.know(TargetRecord))
    elif SuspectedBehaviour in view.kinds:
        behaviour = view.know(SuspectedBehaviour).behaviour
    else:
        raise ChooseAnotherAttack(
            "neither a target record nor a suspected behaviour is known: say which property is "
            "looked for"
        )
    shard = view.know(ShardSize).records
    return Adversary(recipe, mine, shard, len(sums.clients), targets, behaviour)


def known_records(recipe: Recipe, known: AuxiliaryData | TargetRecord) -> Known:
    """Records as the model sees them, in the precision of the messages."""
    inputs = encode(recipe.encoding, known.records).astype(recipe.precision)
    return Known(inputs, recipe.target.encode_values(known.labels))


def attendance(participation: Array) -> dict[str, int]:
    """How many clients the sums say nothing about."""
    return {"never_took_part": int((participation.sum(axis=0) == 0).sum())}


class Outputs(NamedTuple):
    """A round's filter outputs per target (k,), in units of what one client's records vary.

    ``y``: the sum's output less what honest clients give; ``effect`` and ``variance``: what a
    client with the property adds; ``offset``: the standard deviation of the error of the mean;
    ``honest``: what an honest client gives on average; ``auxiliary``: those of the held-out records
    (n, k), standardised; ``participation`` (N,); ``lookalike`` (): the probability that one of a
    client's records is more like the target than all of them.
    After `collect` all of them have the rounds in front: (T, k), (T, n, k), (T, N).
    """

    y: Array
    effect: Array
    variance: Array
    offset: Array
    honest: Array
    auxiliary: NDArray[np.float32]
    participation: Array
    lookalike: Array

    def evidence(
        self, rounds: int, target: int = 0, options: FilterOptions = FILTER
    ) -> client_sets.Evidence:
        """What is known of one target after so many rounds."""
        y, effect, variance, offset, _ = (part[:rounds, target] for part in self[:5])
        common = client_sets.common_part(self.auxiliary[:rounds, :, target], options)
        doubt = common + np.diag(np.maximum(1 - np.diag(common), 0))
        doubt = doubt * np.multiply.outer(offset, offset)
        there, lookalike = self.participation[:rounds], float(self.lookalike[0])
        return client_sets.Evidence(y, effect, variance, doubt, there, common, lookalike)

    def size(self, rounds: int, target: int = 0) -> float:
        """The mean effect in the first rounds: how far a holder stands out from one client."""
        return float(np.abs(self.effect[:rounds, target].mean()))

    def contribution(self) -> Array:
        """Each client's share of an honest client's contribution along the mean gradient."""
        count, honest = self.participation.sum(axis=1), self.honest[:, 0]
        variance = (count + self.offset[:, 0] ** 2) / honest**2
        return client_sets.contributions(
            count + self.y[:, 0] / honest, variance, self.participation
        )[0]


def outputs(
    adversary: Adversary,
    observed: Iterable[RoundSum],
    rng: np.random.Generator,
    options: FilterOptions = FILTER,
) -> Iterator[Outputs]:
    """The rounds, one after the other; all targets of the adversary at once."""
    order = rng.permutation(len(adversary.auxiliary))[: options.block * (options.blocks + 1)]
    rest, held_out = np.split(order, [-min(options.block, len(order) // 3)])
    others = adversary.auxiliary.take(held_out)
    parts = [adversary.auxiliary.take(rows) for rows in np.array_split(rest, options.blocks)]
    targets, (total, squares) = adversary.targets, adversary.weights
    masks = options.masks if network(adversary.recipe).random else 1
    repeated = targets and targets.take(np.repeat(np.arange(len(targets)), masks))
    blocks: dict[int, client_sets.Block] = {}
    filters: Array | None = None
    for turn, one in enumerate(observed):
        theta = adversary.middle(one)
        for b in (turn % options.blocks,) if turn else range(options.blocks):
            blocks[b] = client_sets.block(adversary.rows(theta, parts[b], rng))
        around = client_sets.background(list(blocks.values()))
        differences = around.mean[:, None]
        if repeated is not None:
            each = np.kron(np.eye(len(repeated) // masks), np.ones((masks, 1)) / masks)
            differences = adversary.rows(theta, repeated, rng).transposed(each) - differences
        steps = options.iterations if turn else options.first_iterations
        before = np.zeros_like(differences) if filters is None else filters
        made = zip(differences.T, before.T, strict=True)
        filters = np.stack([matched(around, d, a, steps, options.ridge) for d, a in made], axis=1)
        answered = adversary.rows(theta, others, rng).times(filters)
        mean, sd = answered.mean(axis=0), answered.std(axis=0, ddof=1)
        client_sd, count = np.sqrt(squares) * sd, len(one.participants)
        projected = one.total.astype(np.float64) @ filters / adversary.recipe.rate
        honest = total * mean / client_sd
        offset = count * total * sd / np.sqrt(len(others)) / client_sd
        if repeated is None:
            effect, variance = EFFECT[adversary.behaviour] * honest, np.zeros(1)
        else:
            answers = adversary.rows(theta, repeated, rng).times(filters)
            own = np.einsum("kmk->mk", answers.reshape(-1, masks, filters.shape[1]))
            share = total / adversary.shard / client_sd
            effect = share * (own.mean(axis=0) - mean)
            variance = share**2 * own.var(axis=0) * masks / max(masks - 1, 1)
        standard = ((answered - mean) / sd).astype(np.float32)
        there = np.isin(np.arange(adversary.clients), one.participants).astype(np.float64)
        y = projected / client_sd - count * honest
        # of one record more than those held out: each is as likely to be the likest (Laplace)
        lookalike = np.array((1 - (1 - 1 / (len(others) + 2)) ** adversary.shard) * bool(targets))
        yield Outputs(y, effect, variance, offset, honest, standard, there, lookalike)


def collect(rounds: Iterable[Outputs]) -> Outputs:
    """All rounds; those that are not finite (a model that diverged) are left out."""
    fine = [row for row in rounds if all(np.isfinite(part).all() for part in row)]
    if not fine:
        raise ChooseAnotherAttack("no round has finite numbers: the training diverged")
    return Outputs(*(np.stack(part) for part in zip(*fine, strict=True)))


@dataclass(frozen=True)
class MatchedFilter:
    """Projects each round's sum on the direction that best tells the property, known in closed form
    from auxiliary gradients, and weighs all rounds together: a calibrated probability for each
    client, from far fewer rounds than there are clients.

    Solves: yᵣ = a·bᵣ with a = Cov⁻¹ (g(target) − mean g); y = A τ + noise, τ yes or no, A who took
    part

    For a suspected behaviour (poisoning, free riding) it also scores each client's contribution.
    Settings: ``every``, after how many rounds the evidence is weighed anew, or a tenth of those
    weighed if that is more (weighing T rounds costs T^3, so that all of it costs a few times the
    last); those of the filter and of the posterior over sets of clients.
    """

    name: ClassVar[str] = "matched_filter"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "property"
    needs: ClassVar[Kinds] = NEEDS
    uses: ClassVar[Kinds] = USES

    every: int = 10
    filter: FilterOptions = field(default_factory=FilterOptions)
    sets: Options = field(default_factory=Options)

    def __call__(self, view: View, rng: np.random.Generator) -> ClientProperty:
        sums, adversary = view.know(Sums), adversary_of(view)
        seen = collect(outputs(adversary, sums, rng, self.filter))
        estimates, history = self.over_rounds(seen)
        last, rounds = estimates[len(seen.y)], len(seen.y)
        details: dict[str, float | int | str] = {
            "rounds": rounds,
            "effect_size": seen.size(rounds),
            **dict(zip(Posterior._fields[3:-1], last[3:-1], strict=True)),
            **attendance(sums.participation),
            **flagged(last, self.sets),
        }
        score = None if adversary.targets is not None else seen.contribution()
        return ClientProperty(*last[:2], sums.clients, details, history, score)

    def over_rounds(self, seen: Outputs, target: int = 0) -> tuple[dict[int, Posterior], Array]:
        """The posterior after more and more rounds up to the last, and after each round (T, N).

        A round between two of them has the one before.
        """
        rounds, clients = seen.participation.shape
        history = np.full((rounds, clients), self.sets.mean_share)
        after, estimates = 0, dict[int, Posterior]()
        while after < rounds:
            after = min(after + max(self.every, after // 10), rounds)
            evidence = seen.evidence(after, target, self.filter)
            estimates[after] = client_sets.posterior(evidence, self.sets)
            history[after - 1 :] = estimates[after].probabilities
        return estimates, history


def flagged(last: Posterior, options: Options) -> dict[str, str]:
    """A warning where "nobody" says nothing, or where the posterior was not found."""
    if not last.settled:
        return {"flag": "not converged: the sweeps over clients found no rest; listen longer"}
    enough = last.detectability >= options.least_detectable(len(last.chosen))
    if (last.accused == last.chosen).all() and (enough or options.nobody > 0):
        return {}
    return {
        "flag": f"too small to tell: that somebody has the property is {np.exp(last.log_odds):.2g} "
        f"times as likely as that nobody has (an accusation takes {options.odds:g} times), and who "
        f"has it would stand out by {last.detectability:.1f} standard deviations over all rounds; "
        "who is named is a guess and not accused; listen longer"
    }
