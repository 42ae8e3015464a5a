"""Which candidate is each record, whatever the client's training? Two ways, by what is random.

**Nothing is random** (full batches, no dropout, no noise): the answer is a point whose replay
reproduces the returned model. Robust Gauss-Newton steps on what a replay of the belief leaves come
close; then the few changes that lower the residual of a real replay are searched at the hard
answer. An answer whose replay agrees with the message to rounding, where no single change could go
unnoticed, is *proven*.

**The order of batches is random**: simulated clients, whose secrets are known, say how large the
noise is, how far an answer may be believed (one temperature), which pass to keep and what accuracy
to expect; and whether the message looks like theirs at all. If not, recipe or records are not as
declared, and the answer is flagged.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.attacks.attribute.rehearsal import tempered
from overheard.attacks.wire import only, rounding, spread
from overheard.decoding.ladder import POOR_FIT, UNSOLVED
from overheard.decoding.measurement import Measurement, from_gram
from overheard.decoding.noisy import noisy_posterior
from overheard.errors import ChooseAnotherAttack
from overheard.learning.recipe import Recipe
from overheard.programs.networks import Network, network
from overheard.programs.response import Parts, Whitened, linearise, telling, whiten
from overheard.programs.simulated import Candidates, Simulated, replay, stretches
from overheard.transcript.knowledge import Link

Array = NDArray[np.float64]
Wire = NDArray[np.floating[Any]]
Choice = NDArray[np.int64]

MOST_ROUNDS = 5
"""Rounds that are used, spread evenly: each costs as much as the first."""
CLIENTS, FITTED = 32, 16
"""Simulated clients of a round, and those of them that give the noise its shape; the others judge
the answers."""
JUDGED = 2000
"""Records of simulated clients whose decoding is judged, at least."""
PASSES = 3
"""Linearisations, each at what the last one found."""
MOST_NUMBERS = 500_000_000
"""Numbers of all columns and noise columns together: 2 GB in float32."""
OVERSURE = "oversure: surer than simulated clients of this recipe are decoded right"

_OPEN = 0.3  # share of an even guess in the belief at which a later pass is linearised
_WEAK = 0.1  # directions below this many noise units are dropped
_STRANGE, _SPREADS = 1.3, 5.0  # what no answer explains, relative to simulated clients' mean, up to
# which a fit is good: that much, or so many of their own standard deviations
_LOUDER = 0.1  # confidence beyond the simulated clients' accuracy that is flagged
_NEWTON, _POLISH = 8, 12  # passes of each kind at most
_TAILS = 4.0  # degrees of freedom of the residual's Student distribution
_FEW = 0.03  # prior variance of a change at the hard answer
_PROVEN, _NEARLY_ALL = 8.0, 0.9  # units in the last place within which a proven answer's replay
# must be, at nearly all coordinates: where a gradient is as small as its rounding, a step of Adam
# does not repeat in another order of additions


@dataclass(frozen=True)
class Answer:
    """Probabilities (n, K); ``method`` and ``notes`` for the diagnosis; ``flag`` as ever."""

    probabilities: Array
    method: str
    flag: str
    notes: dict[str, float | int | str]


def decode_training(
    link: Link,
    recipe: Recipe,
    candidates: Candidates,
    prior: Array,
    ties: NDArray[np.intp],
    rng: np.random.Generator,
) -> Answer:
    """Probabilities of each record's candidates; prior (n, K); ties (n,) number records alike, of
    which only the count of each value can be known."""
    found = replayed(link, recipe, candidates, prior, ties)
    if found is None:
        found = _simulated(
            only(link, spread(len(link), MOST_ROUNDS)), recipe, candidates, prior, rng
        )
    return _tied(found, ties)


def replayed(
    link: Link,
    recipe: Recipe,
    candidates: Candidates,
    prior: Array,
    ties: NDArray[np.intp],
) -> Answer | None:
    """The proven answer of a client whose training has nothing random in it, if one is found."""
    net = network(recipe)
    _refuse(recipe, net, candidates)
    if not recipe.full_batch or net.chance or link.noise_sd:
        return None
    found = _Exact(only(link, np.arange(1)), recipe, candidates, prior, ties).answer()
    return None if found is None else _tied(found, ties)


def _tied(found: Answer, ties: NDArray[np.intp]) -> Answer:
    """Records alike share their probabilities."""
    sizes = np.bincount(ties)
    sums = np.stack([np.bincount(ties, p) for p in found.probabilities.T], axis=1)
    return replace(found, probabilities=(sums / sizes[:, None])[ties])


def _refuse(recipe: Recipe, net: Network, candidates: Candidates) -> None:
    if recipe.sends_gradient or recipe.private is not None or recipe.steps is not None:
        raise ChooseAnotherAttack(
            "decodes whole local epochs; these clients send gradients, take private steps or stop "
            "after some mini-batches"
        )
    if net.mixes:
        raise ChooseAnotherAttack(
            "decodes models that treat records one by one; this one normalises over the batch"
        )
    values, n, _ = candidates.inputs.shape
    numbers = n * (values + 7) * min(recipe.model.size, max(3000, 8 * n * (values - 1)))
    if numbers > MOST_NUMBERS:
        raise ChooseAnotherAttack(
            f"{n} records with {values} candidates and {recipe.model.size} parameters need "
            f"{numbers:.2g} numbers at once, beyond {MOST_NUMBERS:.2g}; audit a smaller client"
        )


# ------------------------------------------------------------------ the order is random


def _simulated(
    link: Link, recipe: Recipe, candidates: Candidates, prior: Array, rng: np.random.Generator
) -> Answer:
    noise = rounding(link)
    belief, best = prior, None
    for number in range(PASSES):
        at = belief if not number else (1 - _OPEN) * belief + _OPEN / belief.shape[1]
        chosen = candidates.drawn(at, CLIENTS, rng)
        total: Whitened | None = None
        for sent, returned, sd in zip(link.sent, link.returned, noise, strict=True):
            one = linearise(recipe, (sent, returned, sd), candidates, at, chosen, rng)
            white = whiten(one, FITTED)
            total = white if total is None else total + white
        assert total is not None
        found = _judged(total, chosen, prior)
        if best is None or found.score > best.score:
            best = replace(found, passes=number + 1)
        belief = found.probabilities
    assert best is not None
    confidence = float(best.probabilities.max(axis=1).mean())
    flag = ""
    if best.misfit > best.allowed:
        # of full batches simulated clients know no noise, and what is not proven is not known
        flag = UNSOLVED if recipe.full_batch else POOR_FIT
    elif confidence > best.accuracy + _LOUDER:
        flag = OVERSURE
    return Answer(
        best.probabilities,
        "direct_response",
        flag,
        {
            "fit": "good" if best.misfit <= best.allowed else "poor",
            "misfit": best.misfit,
            "misfit_allowed": best.allowed,
            "rank": best.rank,
            "unknowns": prior.size - len(prior),
            "simulated_accuracy": best.accuracy,
            "simulated_confidence": best.confidence,
            "temperature": best.temperature,
            "noise_found": best.noise,
            "passes": best.passes,
            "rounds_used": len(link),
        },
    )


@dataclass(frozen=True)
class _Judged:
    """One pass. score: mean log-likelihood of the simulated clients' secrets; misfit: what no
    answer explains of the message, in units of what none explains of theirs."""

    probabilities: Array
    score: float
    accuracy: float
    confidence: float
    temperature: float
    misfit: float
    allowed: float
    noise: float
    rank: int
    passes: int = 1


def _judged(total: Whitened, chosen: Choice, prior: Array) -> _Judged:
    """Decode the message, and held-out simulated clients to see what such answers are worth."""
    n, values = prior.shape
    measured = from_gram(total.gram, total.heard, 1.0, candidates=values, floor=_WEAK)
    judges = range(FITTED, min(len(chosen), FITTED + max(2, -(-JUDGED // n))))
    basis = measured.differences
    totals = linalg.lstsq(basis, total.simulated[FITTED : judges.stop].T, check_finite=False)[0].T
    each = np.eye(values)
    left = [
        t - np.tensordot(each[chosen[j]], measured.features, 2)
        for j, t in zip(judges, totals, strict=True)
    ]
    noise = float(np.mean([x @ x for x in left])) / max(measured.rank, 1) * (1 + 1 / FITTED)
    noise = max(noise, 1e-6)
    heard = measured.inflated(float(np.sqrt(noise)))
    theirs = []
    for t in totals:
        own = replace(heard, total=t / np.sqrt(noise))
        theirs.append(noisy_posterior(own, prior)[0].probabilities)
    secrets = [chosen[j] for j in judges]
    temperature = _temperature(theirs, secrets, prior)
    calm = [tempered(p, prior, temperature) for p in theirs]
    rows = np.arange(n)
    log = [np.log(np.maximum(p[rows, s], 1e-12)).mean() for p, s in zip(calm, secrets, strict=True)]
    right = [float((p.argmax(axis=1) == s).mean()) for p, s in zip(calm, secrets, strict=True)]
    found = noisy_posterior(heard, prior)[0].probabilities
    return _Judged(
        tempered(found, prior, temperature),
        float(np.mean(log)),
        float(np.mean(right)),
        float(np.mean([p.max(axis=1).mean() for p in calm])),
        temperature,
        *_misfit(total, measured, totals, judges),
        noise,
        measured.rank,
    )


def _misfit(
    total: Whitened, measured: Measurement, totals: Array, judges: range
) -> tuple[float, float]:
    """What lies outside of all columns' span, relative to held-out simulated clients, and up to
    what that is as it should be."""
    ours = total.energy - float(measured.total @ measured.total)
    theirs = total.energies[judges.start : judges.stop] - np.einsum("br,br->b", totals, totals)
    mean = max(float(np.mean(theirs)), 1e-300)
    spread = float(np.std(theirs, ddof=1)) / mean
    return max(ours, 0.0) / mean, max(_STRANGE, 1 + _SPREADS * spread)


def _temperature(answers: list[Array], secrets: list[Choice], prior: Array) -> float:
    """The power of the evidence under which the simulated clients' secrets are likeliest."""
    grid = np.linspace(0.1, 1.5, 29)
    rows = np.arange(len(prior))
    score = [
        sum(
            float(np.log(np.maximum(tempered(p, prior, power)[rows, s], 1e-12)).sum())
            for p, s in zip(answers, secrets, strict=True)
        )
        for power in grid
    ]
    return float(grid[int(np.argmax(score))])


# ------------------------------------------------------------------ nothing is random


class _Exact:
    """Full-batch training: replays tell whether an answer is right."""

    def __init__(
        self,
        link: Link,
        recipe: Recipe,
        candidates: Candidates,
        prior: Array,
        ties: NDArray[np.intp],
    ) -> None:
        self.link, self.recipe, self.prior, self.ties = link, recipe, prior, ties
        self.candidates, self.net = candidates, network(recipe)
        self.times = stretches(recipe, candidates.members)
        self.place = [np.spacing(np.abs(r)).astype(np.float64) for r in link.returned]
        self.values = prior.shape[1]
        self.which: list[Choice] = []

    def answer(self) -> Answer | None:
        """The proven answer, or None."""
        belief, best, least = self.prior, None, np.inf
        for number in range(_NEWTON):
            columns, residual, sd = self._linearised(belief)
            white = columns / sd
            gram, told = white @ white.T, white @ (residual / sd)
            expected = belief[:, 1:].ravel()
            measured = from_gram(
                gram, told + gram @ expected, 1.0, candidates=self.values, floor=_WEAK
            )
            found = noisy_posterior(measured, self.prior)[0].probabilities
            choice = self._hard(found)
            left = self._left(choice)
            if left < least:
                best, least = choice, left
            if least == 0:
                break
            belief = np.clip(found, 0.02, 0.98) if number >= 3 else (belief + found) / 2
            belief = belief / belief.sum(axis=1, keepdims=True)
        assert best is not None
        best = self._polished(best, least)
        return self._proven(best)

    def _hard(self, probabilities: Array) -> Choice:
        """One candidate a record; as many members as there are."""
        if self.candidates.present.all():
            return np.asarray(probabilities.argmax(axis=1))
        absent = int(np.flatnonzero(~self.candidates.present)[0])
        inside = probabilities.copy()
        inside[:, absent] = -1
        made = inside.argmax(axis=1)
        order = np.argsort(probabilities[:, absent], kind="stable")
        made[order[self.candidates.members :]] = absent
        return np.asarray(made)

    def _apart(self, choice: Choice) -> Array:
        """What the replay of an answer leaves where records tell, in units of the last place."""
        each, made = np.eye(self.values)[choice], []
        for number, (sent, returned) in enumerate(
            zip(self.link.sent, self.link.returned, strict=True)
        ):
            end, _, _ = replay(self.recipe, sent, self.candidates, each)
            which = self.which[number]
            left = returned[which].astype(np.float64) - end[which]
            made.append(left / self.place[number][which])
        return np.concatenate(made)

    def _left(self, choice: Choice) -> float:
        """How much that is, a few coordinates that are far off counting little more than others."""
        return float(np.mean(np.log1p(self._apart(choice) ** 2)))

    def _linearised(self, belief: Array) -> tuple[NDArray[np.float32], Array, Array]:
        """Columns (n (K - 1), R), what the replay of the belief leaves (R,) and its robust sd."""
        made, left, places = [], [], []
        for number, (sent, returned) in enumerate(
            zip(self.link.sent, self.link.returned, strict=True)
        ):
            end, path, response = replay(self.recipe, sent, self.candidates, belief)
            nobody = np.zeros((0, len(belief)), dtype=np.int64)
            done = Simulated(nobody, end[None], path, response)
            parts = Parts(self.net, done, self.times, self.candidates, belief)
            if len(self.which) <= number:
                self.which.append(telling(parts, np.ones(len(end)), np.random.default_rng(0)))
            which = self.which[number]
            made.append(parts.made(which, np.random.default_rng(0))[0])
            left.append(returned[which].astype(np.float64) - end[which])
            places.append(self.place[number][which])
        columns, residual = np.concatenate(made, axis=1), np.concatenate(left)
        # rows in units of what the records do to them; a step whose sign a replay of half-believed
        # records gets wrong moves a coordinate far: Student's tails
        reach = np.sqrt(np.einsum("nr,nr->r", columns, columns, dtype=np.float64))
        reach = np.maximum(reach, 1e-12 * float(reach.max(initial=1e-300)))
        scaled = residual / reach
        middle = max(float(np.median(np.abs(scaled))) / 0.6745, 1e-12)
        weight = (_TAILS + 1) / (_TAILS + np.minimum(np.abs(scaled / middle), 1e6) ** 2)
        sd = np.hypot(reach * middle / np.sqrt(weight), np.concatenate(places))
        return columns, residual, sd

    def _polished(self, choice: Choice, least: float) -> Choice:
        """The few changes that lower the residual of a real replay, again and again."""
        for _ in range(_POLISH):
            if least == 0:
                break
            changed = self._better(choice, least)
            if changed is None:
                break
            choice, least = changed
        return choice

    def _changes(
        self, choice: Choice, columns: NDArray[np.float32]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]:
        """Every change of one record (records, candidates) and what it does (changes, R)."""
        n = len(choice)
        full = np.zeros((n, self.values, columns.shape[1]), np.float32)
        full[:, 1:] = columns.reshape(n, -1, columns.shape[1])
        record, other = np.nonzero(np.arange(self.values) != choice[:, None])
        return record, other, full[record, other] - full[record, choice[record]]

    def _better(self, choice: Choice, least: float) -> tuple[Choice, float] | None:
        columns, residual, sd = self._linearised(np.eye(self.values)[choice])
        record, other, change = self._changes(choice, columns)
        white = change / sd
        gram, told = white @ white.T, white @ (residual / sd)
        gram[np.diag_indices(len(gram))] += 1 / _FEW
        size = linalg.solve(gram, told, assume_a="pos", check_finite=False)
        order = np.argsort(-size, kind="stable")
        order = order[size[order] > 0]
        order = order[np.sort(np.unique(record[order], return_index=True)[1])]
        count = 1 << max(int(np.log2(max(len(order), 1))), 0)
        while count >= 1 and len(order):
            made = self._with(choice, record, other, order, count)
            left = self._left(made)
            if left < least * (1 - 1e-9):
                return made, left
            count //= 2
        return None

    def _with(
        self,
        choice: Choice,
        record: NDArray[np.intp],
        other: NDArray[np.intp],
        order: NDArray[np.intp],
        count: int,
    ) -> Choice:
        """The best changes made; of members as many are added as are taken out."""
        made = choice.copy()
        present = self.candidates.present
        if not present.all():
            adds = order[present[other[order]] & ~present[choice[record[order]]]]
            drops = order[~present[other[order]]]
            pairs = min(max(count // 2, 1), len(adds), len(drops))
            order = np.concatenate([adds[:pairs], drops[:pairs]])
            count = len(order)
        made[record[order[:count]]] = other[order[:count]]
        return made

    def _proven(self, choice: Choice) -> Answer | None:
        """The answer, where its replay agrees to rounding. Records of which a change would go
        unnoticed keep their prior."""
        apart = np.abs(self._apart(choice))
        if not len(apart) or float((apart <= _PROVEN).mean()) < _NEARLY_ALL:
            return None
        columns, _, _ = self._linearised(np.eye(self.values)[choice])
        record, _, change = self._changes(choice, columns)
        place = np.concatenate([p[w] for p, w in zip(self.place, self.which, strict=True)])
        white = change / place
        both = white @ white.T
        alone = np.diagonal(both).copy()
        both = 2 * both + alone[:, None] + alone[None, :]
        alike = self.ties[record]  # swapping records alike changes nothing, and is not asked
        both[alike[:, None] == alike[None, :]] = np.inf
        usual = 1 + float(np.median(apart)) ** 2
        noticed = np.minimum(alone, both.min(axis=1)) > 4 * usual * np.sqrt(len(apart))
        seen = np.ones(len(choice), dtype=bool)
        np.logical_and.at(seen, record, noticed)
        probabilities = np.where(seen[:, None], np.eye(self.values)[choice], self.prior)
        return Answer(
            probabilities,
            "replay",
            "",
            {
                "fit": "good",
                "proven": str(bool(seen.all())),
                "residual": float(np.median(apart)),
                "unseen_records": int((~seen).sum()),
                "rounds_used": len(self.link),
                "unknowns": self.prior.size - len(self.prior),
                "rank": self.prior.size - len(self.prior),
            },
        )
