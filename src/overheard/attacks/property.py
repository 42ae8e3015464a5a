"""Which clients have a property? A matched filter a round, then a binary linear mixed model over
all rounds.

With local mini-batches of B records, ``total / learning_rate`` of a round is a sum over the
participants' records of gradients with weight 1/B, taken at models that move a little during the
round. All of them are taken at one model here, the middle of the mean path, which the sum tells.

One number a round: the matched filter's answer to the sum, and what it would be of a holder.

Round by round: gradients of one block of auxiliary records are made anew, the filter takes a few
more steps from where it was, and its answers to held-out records say what a sum without the
property gives, and by how they agree from round to round, how much a client repeats itself.
Nothing of a round is kept but these answers, a few kilobytes.

Under dropout a target's gradient is a draw; the filter is made from its mean. The mean of one
round's draws is noisy, and models of neighbouring rounds differ little, so that it is taken over
the draws of about the last five rounds. So is the filter itself, which is made from draws of the
auxiliary records' gradients. Without dropout gradients are known, and those of an earlier model
would only be out of date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overheard.decoding.contribution import Contributions, contributions
from overheard.decoding.matched_filter import (
    Block,
    background,
    block,
    matched_filters,
    scale_of,
    smoothed,
)
from overheard.decoding.mixed_chains import Posterior, posterior
from overheard.decoding.mixed_model import Evidence, Settings
from overheard.decoding.persistence import common_part
from overheard.errors import ChooseAnotherAttack, FixData, ListenLonger
from overheard.programs.gradient_rows import GradientRows
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.programs.records import Records, encode
from overheard.transcript.guess import ClientProperty
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
EFFECT = {"inversion": -2.0, "ascent": -2.0, "free-rider": -1.0}
"""What a dishonest client does to the mean contribution along the mean gradient, in its units."""
SURE_TO = 0.05
"""Standard error of a sampled probability beyond which an answer flags itself."""


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


@dataclass(frozen=True)
class FilterSettings:
    """``blocks`` of ``block`` auxiliary records for the covariance, ``held_out`` for the scale.

    With fewer records at hand all three shrink in proportion. ``masks``: dropout draws of a target,
    once for the filter and once for its answers; ``memory``: rounds over which they, and the
    filters, are averaged where there is dropout.
    """

    blocks: int = 5
    block: int = 1000
    held_out: int = 1000
    masks: int = 32
    memory: int = 5
    first_iterations: int = 10
    iterations: int = 4

    def sizes(self, records: int) -> tuple[int, int]:
        """Records in a block, and held out."""
        share = min(1.0, records / (self.blocks * self.block + self.held_out))
        return max(2, int(self.block * share)), max(2, int(self.held_out * share))


class Reading(NamedTuple):
    """A round, per target (k,), in units of what one client's records vary.

    ``y``: the sum's answer less what honest clients give; ``effect`` and ``variance``: what a
    client with the property adds; ``offset``: the standard deviation of the error of the mean;
    ``honest``: what an honest client gives on average; ``answers`` of the held-out records (n, k).
    """

    y: Array
    effect: Array
    variance: Array
    offset: Array
    honest: Array
    answers: NDArray[np.float32]


def readings(
    adversary: Adversary,
    heard: Iterable[RoundSum],
    rng: np.random.Generator,
    settings: FilterSettings | None = None,
) -> Iterator[Reading]:
    """The rounds, one after the other; all targets of the adversary at once."""
    settings = settings or FilterSettings()
    size, held_out = settings.sizes(len(adversary.auxiliary))
    order = rng.permutation(len(adversary.auxiliary))
    parts = [adversary.auxiliary.take(order[b * size :][:size]) for b in range(settings.blocks)]
    others = adversary.auxiliary.take(order[settings.blocks * size :][:held_out])
    targets = adversary.targets
    repeated = targets and targets.take(np.repeat(np.arange(len(targets)), settings.masks))
    memory = max(1, settings.memory) if adversary.draws else 1
    own_mean = _OwnMean(settings.masks, settings.memory if adversary.draws else 0)
    blocks: list[Block] = []
    newest: Array | None = None
    filters: Array = np.zeros(0)
    for turn, one in enumerate(heard):
        theta = adversary.middle(one)
        if not blocks:
            blocks = [block(adversary.rows(theta, part, rng)) for part in parts]
        else:
            now = turn % len(blocks)
            blocks[now] = block(adversary.rows(theta, parts[now], rng))
        around = background(blocks)
        if repeated is None:
            differences = around.mean[:, None]
        else:
            own_mean.add(adversary.rows(theta, repeated, rng))
            differences = own_mean.value - around.mean[:, None]
        steps = settings.first_iterations if newest is None else settings.iterations
        newest = matched_filters(around, differences, newest, steps)
        filters = newest if turn == 0 else filters + (newest - filters) / min(turn + 1, memory)
        answered = adversary.rows(theta, others, rng).times(filters)
        scale = scale_of(answered)
        total, squares = adversary.weights
        client_sd = np.sqrt(squares) * scale.sd
        count = len(one.participants)
        projected = one.total.astype(np.float64) @ filters / adversary.recipe.rate
        y = (projected - count * total * scale.mean) / client_sd
        honest = total * scale.mean / client_sd
        offset = count * total * scale.sd / np.sqrt(scale.records) / client_sd
        if repeated is None:
            effect, variance = EFFECT[adversary.behaviour] * honest, np.zeros(1)
        else:
            again = adversary.rows(theta, repeated, rng)
            answers = again.times(filters).reshape(-1, settings.masks, filters.shape[1])
            own_mean.add(again)  # for the next round's filter: this one's was made without them
            own = np.stack([answers[k, :, k] for k in range(len(answers))], axis=1)
            share = total / adversary.shard
            effect = share * (own.mean(axis=0) - scale.mean) / client_sd
            variance = (share / client_sd) ** 2 * own.var(axis=0, ddof=1)
        standard = ((answered - scale.mean) / scale.sd).astype(np.float32)
        yield Reading(y, effect, variance, offset, honest, standard)


class _OwnMean:
    """The targets' mean gradients (P, k) over the draws of the last rounds, the older the less.

    Two sets of draws are added a round; with a memory of 0 the last set alone counts.
    """

    def __init__(self, masks: int, memory: int) -> None:
        self.masks, self.most, self.added = masks, max(1, 2 * memory), 0
        self.value: Array = np.zeros(0)

    def add(self, draws: GradientRows) -> None:
        """``masks`` draws of each target, one target after the other."""
        of_each = np.kron(np.eye(len(draws) // self.masks), np.ones((self.masks, 1)))
        mean = draws.transposed(of_each / self.masks)
        self.added += 1
        if self.added == 1:
            self.value = mean
        else:
            self.value = self.value + (mean - self.value) / min(self.added, self.most)


@dataclass(frozen=True)
class Collected:
    """Readings of T rounds for k targets, each array (T, k); answers (T, n, k)."""

    y: Array
    effect: Array
    variance: Array
    offset: Array
    honest: Array
    answers: NDArray[np.float32]
    participation: Array

    def evidence(self, rounds: int, target: int = 0) -> Evidence:
        """What was told after so many rounds; the effect is smoothed over the rounds by then.

        So is what honest clients give, as far as chance (dropout) is why rounds differ.
        """
        first = slice(0, rounds)
        took_part, honest = self.participation[first], self.honest[first, target]
        count = took_part.sum(axis=1)
        common = common_part(self.answers[first, :, target])
        doubt = common + np.diag(np.maximum(1 - np.diag(common), 0))
        doubt = doubt * np.multiply.outer(*[self.offset[first, target] / count] * 2)
        by_chance = chance_of(honest, doubt)

        def calmed(values: Array) -> Array:
            return values + by_chance * (smoothed(values) - values)

        return Evidence(
            self.y[first, target] + count * (honest - calmed(honest)),
            smoothed(self.effect[first, target]),
            smoothed(self.variance[first, target]),
            np.multiply.outer(count, count) * calmed(calmed(doubt).T),
            took_part,
            common,
        )

    def size(self, rounds: int, target: int = 0) -> float:
        """The mean effect in the first rounds: how far a holder stands out from one client."""
        return float(np.abs(self.effect[:rounds, target].mean()))


def chance_of(values: Array, covariance: Array) -> float:
    """Of the values' squared second differences (T,), the share that such errors explain."""
    rough = float((np.diff(values, 2) ** 2).sum())
    expected = float(np.trace(np.diff(np.diff(covariance, 2, axis=0), 2, axis=1)))
    return min(1.0, expected / rough) if rough > 0 else 1.0


def collect(made: Iterable[Reading], participation: Array) -> Collected:
    """All rounds; those that are not finite (a model that diverged) are left out."""
    rows = list(made)
    if not rows:
        raise ListenLonger("no round was heard; record more rounds")
    parts = [np.stack([getattr(row, name) for row in rows]) for name in Reading._fields]
    fine = np.all([np.isfinite(p.reshape(len(rows), -1)).all(axis=1) for p in parts], axis=0)
    if not fine.any():
        raise ChooseAnotherAttack("no round has finite numbers: the training diverged")
    y, effect, variance, offset, honest, answers = (part[fine] for part in parts)
    took_part = participation[: len(rows)][fine]
    return Collected(y, effect, variance, offset, honest, answers, took_part)


@dataclass(frozen=True)
class MatchedFilter:
    """Projects each round's sum on the direction that best tells the property, known in closed form
    from auxiliary gradients, and weighs all rounds together: a calibrated probability for each
    client, from far fewer rounds than there are clients.

    For a suspected behaviour (poisoning, free riding) it also scores each client's contribution.
    Settings: ``every``, after how many rounds the evidence is weighed anew; the filter's and the
    mixed model's own.
    """

    name: ClassVar[str] = "matched_filter"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "property"
    needs: ClassVar[frozenset[type[Any]]] = NEEDS
    uses: ClassVar[frozenset[type[Any]]] = USES

    every: int = 10
    filter: FilterSettings = field(default_factory=FilterSettings)
    model: Settings = field(default_factory=Settings)

    def __call__(self, view: View, rng: np.random.Generator) -> ClientProperty:
        sums, adversary = view.know(Sums), adversary_of(view)
        told = collect(readings(adversary, sums, rng, self.filter), sums.participation)
        found, history = self.over_rounds(told, rng)
        last = found[len(told.y)]
        score = None if adversary.targets is not None else contribution(told).mean
        return ClientProperty(
            last.probabilities,
            last.chosen,
            sums.clients,
            {
                "rounds": len(told.y),
                "effect_size": told.size(len(told.y)),
                "expected_f1": last.expected_f1,
                "gamma": last.gamma,
                "scale": last.scale,
                "persistent": last.persistent,
                "disagreement": last.disagreement,
                **attendance(sums.participation),
                **flagged(last),
            },
            history,
            score,
        )

    def over_rounds(
        self, told: Collected, rng: np.random.Generator, target: int = 0
    ) -> tuple[dict[int, Posterior], Array]:
        """The posterior after every so many rounds and after the last, and after each round (T, N).

        A round between two of them has the one before.
        """
        rounds, clients = told.participation.shape
        history = np.full((rounds, clients), self.model.share)
        found: dict[int, Posterior] = {}
        states = None
        for heard in sorted({*range(self.every, rounds + 1, self.every), rounds}):
            one = posterior(told.evidence(heard, target), rng, self.model, states)
            states, found[heard] = one.states, one
            history[heard - 1 :] = one.probabilities
        return found, history


def flagged(found: Posterior) -> dict[str, str]:
    """A warning where the chains have not come to one answer: their mean is then uncertain."""
    error = found.disagreement / np.sqrt(len(found.states))
    if error <= SURE_TO:
        return {}
    return {
        "flag": "chains disagree: its probabilities are means over samples, uncertain here by "
        f"about {error:.2f}; ask again with another seed, or listen longer"
    }


def contribution(told: Collected) -> Contributions:
    """Each client's share of an honest client's contribution along the mean gradient."""
    count, honest = told.participation.sum(axis=1), told.honest[:, 0]
    shares = count + told.y[:, 0] / honest
    variance = (count + told.offset[:, 0] ** 2) / honest**2
    return contributions(shares, variance, told.participation)
