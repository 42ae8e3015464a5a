"""Which recipe explains the messages best, and which others explain them as well?

Structure first (activation, loss, how columns are scaled): wrong gradients point elsewhere whatever
the optimiser. Then every optimiser with every batch size and number of epochs, each at the rate
that fits it best: the rate is no grid, it follows from the size of the updates. Those that come
closest are weighed by their evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.evaluation.replay import certain
from overheard.identify.evidence import Messages, Seen, evidence, replayed
from overheard.programs.recipe import Adam, Optimiser, Recipe, Sgd

Array = NDArray[np.float64]

OPTIMISERS: dict[str, Optimiser] = {
    "SGD": Sgd(),
    "momentum": Sgd(momentum=0.9),
    "Adam": Adam(),
    "AdamW": Adam(weight_decay=0.01, decoupled=True),
}
"""As torch and its tutorials have them."""
BATCHES = (16, 32, 64, None)
EPOCHS = (1, 2, 3, 5, 10)
FEW, SOME, MANY = 4, 16, 512
"""Orders that are replayed to fit a rate, to weigh every recipe, and to weigh the best."""
MOST_WORK, _PASSES = 3e9, 6
"""Multiplications that one recipe may take to try, a tenth of a second; and of a parameter with a
record: forward and backward, and what moves them about."""
_LONGER = 20
"""The last few may take so many times as long."""
_WEIGHED, _MOVED = 6, (3, 12)
"""Recipes whose evidence is weighed with many orders; and those tried with other structures, of
which there are as many: at least, and where that takes no time."""
_STEPS = 8
"""Steps of the search for a rate, each a replay; it has converged long before."""
_CLOSE = 1.5
"""Structures stay whose residual is at most so many times the least."""
_MOST = 0.3
"""By which the logarithm of a rate is changed at a time."""
_ROUGH = 0.1
"""To which a rate's logarithm is fitted where that is enough: its square is left of the update."""
_BEGIN = 1e-3  # the first rate that is tried
_SHORT, _LIKELIER = 0.05, 3.0
"""By which a rate may change to be written in fewer digits, and its evidence fall, over their
number's square: such rates are likelier beforehand, but of two digits one is always near."""
_ZOOMS = (2e-6, 2e-7, 2e-8)
"""Steps in which an exact rate is looked for, sixteen to either side: from what rounding leaves
open at the smallest rates to what single precision tells apart."""
_NEAR, _ROUNDING, _TINY = 4.0, 1e-6, 1e-300
"""So many times the least residual, or what rounding leaves, a recipe may leave to be weighed: a
few orders say it to a factor of two."""
OPEN, VUONG = np.log(100.0), 2.33
"""Recipes stay open that are one in a hundred: by their odds, or by chance of the messages."""


@dataclass(frozen=True)
class Structure:
    """What a recipe is about besides the training: model, loss, encoding, the records seen so."""

    words: str
    recipe: Recipe
    seen: Seen
    description: Any = None


@dataclass(frozen=True)
class Fitted:
    """A recipe at its best rate. residual: part of the messages' squares that its mean leaves;
    messages: the log density of each (M,)."""

    structure: Structure
    name: str
    recipe: Recipe
    residual: float
    messages: Array = field(default_factory=lambda: np.array([-np.inf]), compare=False)

    @property
    def evidence(self) -> float:
        return float(self.messages.sum())

    def as_good_as(self, best: Fitted) -> bool:
        """Whether chance may have favoured the other: Vuong's test, message by message. Evidence of
        two recipes that are both wrong, or nearly alike, differs by more than its odds say."""
        apart = best.messages - self.messages
        spread = float(apart.std(ddof=1)) * np.sqrt(len(apart)) if len(apart) > 1 else 0.0
        if certain(self.recipe):  # of rounding errors little more is known than their size
            spread = max(spread, np.sqrt(len(apart) * self.recipe.model.size / 2))
        return bool(best.evidence - self.evidence <= max(OPEN, VUONG * spread))

    @property
    def words(self) -> str:
        batch = "full batch" if self.recipe.full_batch else f"batches of {self.recipe.batch_size}"
        epochs = f"{self.recipe.epochs} epoch{'s' * (self.recipe.epochs > 1)}"
        rate = f"{self.name} at rate {self.recipe.learning_rate:.4g}"
        return ", ".join(p for p in (rate, batch, epochs, self.structure.words) if p)


def fit_rate(
    recipe: Recipe, seen: Seen, heard: Messages, times: int, close: float = 1e-2
) -> tuple[Recipe, float]:
    """The recipe at the rate at which its mean replay comes closest, and the part of the messages'
    squares that is left. The mean replay answers almost linearly to the rate, so that secant steps
    on its logarithm converge in a few replays, until they are as short as ``close``; to rounding
    where nothing is random, unless that is rough."""
    weight = 1 / np.maximum((heard.added**2).sum(axis=1, keepdims=True), _TINY)
    exact, times = close < _ROUGH and certain(recipe), 1 if certain(recipe) else times
    best, least, rate, step = recipe, np.inf, recipe.learning_rate, 0.0
    mean: Array | None = None
    for _ in range(2 * _STEPS if exact else _STEPS):
        tried = recipe.model_copy(update={"learning_rate": rate})
        now = replayed(tried, seen, heard, times, "float64" if exact else "").mean(axis=1)
        if not np.isfinite(now).all():
            rate, mean = rate / 4, None
            continue
        slope = now if mean is None else (now - mean) / step
        away = heard.added - now
        left = float((weight * away**2).sum()) / len(away)
        if left < least:
            best, least = tried, left
        told = float((weight * slope**2).sum())
        step = float((weight * away * slope).sum()) / max(told, _TINY)
        most = 12.0 if mean is None else 2.0  # the first guess may be far off
        step = float(np.clip(np.log1p(max(step, -0.75)), -2.0, most))
        if abs(step) < (1e-9 if exact else close):
            break
        rate, mean = float(np.clip(rate * np.exp(step), 1e-12, 1e12)), now
    return best, least


@dataclass(frozen=True)
class Effort:
    """What is affordable: messages by which every recipe is tried and those by which the best are
    weighed, orders of the best, the most epochs that are tried, and how many recipes are tried with
    as many other structures."""

    few: Messages
    heard: Messages
    many: int
    epochs: int
    moved: int


def effort(heard: Messages, sizes: Sequence[int]) -> Effort:
    """As much as `MOST_WORK` allows."""
    once = _PASSES * float(np.mean(sizes)) * heard.sent.shape[1]
    room = MOST_WORK / once  # epochs on one message
    few = heard.spread(int(np.clip(room / (FEW * max(EPOCHS)), 1, 6)))
    every = heard.spread(int(np.clip(4 * _LONGER * room / MANY, 3, len(heard.sent))))
    many = int(np.clip(_LONGER * room / len(every.sent), 2 * SOME, MANY))
    moved = int(np.clip(4 * room / MANY, *_MOVED))
    return Effort(few, every, many, max(1, int(room / (FEW * len(few.sent)))), moved)


def way(recipe: Recipe, sizes: Sequence[int]) -> float:
    """How far a client goes at rate 1 if all gradients are alike."""
    steps = np.mean([recipe.local_steps(size) for size in sizes])
    kept = recipe.optimiser.momentum if isinstance(recipe.optimiser, Sgd) else 0.0
    return float(
        steps if not kept else (steps - kept * (1 - kept**steps) / (1 - kept)) / (1 - kept)
    )


def search(structures: Sequence[Structure], heard: Messages) -> list[Fitted]:
    """Recipes weighed, best first. Each stage has fewer recipes, more messages and more orders."""
    sizes = [len(y) for y in structures[0].seen.labels]
    able = effort(heard, sizes)
    begun = _structures(structures, able.few, sizes)
    structure, near = min(begun, key=lambda f: f.residual).structure, list[Fitted]()
    others = {id(f.structure): f.structure for f in begun if f.structure is not structure}
    for again in ([*others.values()][-able.moved :], []):
        found = _trainings(structure, begun, able.few, sizes, able.epochs)
        least = _NEAR * max(min(f.residual for f in found), _ROUNDING)
        best = [weighed(f, able.few, SOME) for f in found if f.residual <= least]
        best = _best(best, 2 * able.moved)
        near = [f for f in near if f.structure is not structure]
        near += [weighed(f, able.heard, 2 * SOME) for f in best]
        for other in again:
            near += [moved(f, other, able.heard) for f in best[: able.moved]]
        structure, last = _best(near, 1)[0].structure, structure
        if structure is last:  # else trainings were compared where gradients point elsewhere
            break
    final = _best(near, max(_WEIGHED, able.moved))
    for times in (able.many // 4, able.many):
        final = [weighed(f, able.heard, times) for f in final]
    most = max(f.evidence for f in final)
    names = list(OPTIMISERS)
    # of those whose odds are even the simplest is named first
    final.sort(key=lambda f: (max(most - f.evidence, 1.0), names.index(f.name)))
    return [_to_the_bit(_shortened(final[0], able), able.heard), *final[1:]]


def _trainings(
    structure: Structure, begun: Sequence[Fitted], few: Messages, sizes: Sequence[int], most: int
) -> list[Fitted]:
    """Every optimiser and batch size with this structure; of epochs more and more as long as more
    of them come closer."""
    known = {isinstance(f.recipe.optimiser, Adam): f for f in begun if f.structure is structure}
    if structure.recipe.sends_gradient:
        return [*known.values()]
    found = []
    for name, optimiser in OPTIMISERS.items():
        for batch in (b for b in BATCHES if b is None or b < max(sizes)):
            last = np.inf
            for epochs in (e for e in EPOCHS if e <= most):
                chosen = {"optimiser": optimiser, "batch_size": batch, "epochs": epochs}
                recipe = structure.recipe.model_copy(update=chosen)
                if (family := isinstance(optimiser, Adam)) not in known:
                    break  # its gradients go elsewhere
                other = known[family].recipe  # to begin with, it goes as far a way
                rate = other.learning_rate * way(other, sizes) / way(recipe, sizes)
                start = recipe.model_copy(update={"learning_rate": rate})
                now = Fitted(structure, name, *fit_rate(start, structure.seen, few, FEW))
                known[family] = min(now, known[family], key=lambda f: f.residual)
                found.append(now)
                if now.residual > _CLOSE * last:
                    break
                last = min(last, now.residual)
    return found


def _shortened(fitted: Fitted, able: Effort) -> Fitted:
    """At the rate of fewest digits that explains the messages as well: people write 0.001."""
    rate, seen = fitted.recipe.learning_rate, fitted.structure.seen
    for digits in range(1, 10 if certain(fitted.recipe) else 4):
        short = float(f"{rate:.{digits}g}")
        if abs(short / rate - 1) <= _SHORT:
            recipe = fitted.recipe.model_copy(update={"learning_rate": short})
            found, _ = evidence(recipe, seen, able.heard, able.many, nearby=False)
            if found.sum() >= fitted.evidence - _LIKELIER / digits**2:
                return replace(fitted, recipe=recipe)
    return fitted


def _to_the_bit(fitted: Fitted, heard: Messages) -> Fitted:
    """Where nothing is random, at the rate whose replays in the wire's own arithmetic are nearly
    all of them the messages, if there is one."""

    def apart(rate: float) -> float:
        recipe = fitted.recipe.model_copy(update={"learning_rate": rate})
        return float(((replayed(recipe, seen, heard, 1)[:, 0] - heard.added) ** 2).sum())

    seen, rate = fitted.structure.seen, fitted.recipe.learning_rate
    if not certain(fitted.recipe) or fitted.recipe.sends_gradient:
        return fitted
    least = (begun := apart(rate), rate)
    for step in _ZOOMS:
        least = min(least, *((apart(r), r) for r in least[1] * (1 + step * np.arange(-16, 17))))
    found = fitted.recipe.model_copy(update={"learning_rate": float(least[1])})
    return replace(fitted, recipe=found) if least[0] < begun / 4 else fitted


def moved(fitted: Fitted, structure: Structure, heard: Messages) -> Fitted:
    """The training of one recipe with another's structure, weighed."""
    kept = {k: getattr(fitted.recipe, k)
            for k in ("optimiser", "batch_size", "epochs", "learning_rate")}  # fmt: skip
    recipe = structure.recipe.model_copy(update=kept)
    there = fit_rate(recipe, structure.seen, heard, FEW)
    return weighed(Fitted(structure, fitted.name, *there), heard, 2 * SOME)


def _structures(
    structures: Sequence[Structure], heard: Messages, sizes: Sequence[int]
) -> list[Fitted]:
    """Structures that come close under some training, each with the closest of a family."""
    made: list[Fitted] = []
    latest: dict[tuple[str, int | None], float] = {}
    for structure in structures:
        for name, batch in product(("SGD", "Adam"), (None, 32) if max(sizes) > 32 else (None,)):
            recipe = structure.recipe
            if not recipe.sends_gradient:
                rate = latest.get((name, batch), _BEGIN)
                chosen = {"optimiser": OPTIMISERS[name], "batch_size": batch, "learning_rate": rate}
                recipe = recipe.model_copy(update=chosen)
            there = fit_rate(recipe, structure.seen, heard, 2, _ROUGH)
            made.append(Fitted(structure, name, *there))
            latest[name, batch] = made[-1].recipe.learning_rate
    least = min(f.residual for f in made)
    close = {id(f.structure) for f in made if f.residual <= _CLOSE * max(least, _ROUNDING)}
    near = [f for f in made if f.residual <= _NEAR * max(least, _ROUNDING)]
    return sorted((f for f in near if id(f.structure) in close), key=lambda f: -f.residual)


def _best(found: Sequence[Fitted], most: int) -> list[Fitted]:
    return sorted(found, key=lambda f: -f.evidence)[:most]


def weighed(fitted: Fitted, heard: Messages, times: int) -> Fitted:
    """With its evidence, and at the rate that has most."""
    recipe = fitted.recipe
    found, off = evidence(recipe, fitted.structure.seen, heard, times)
    rate = recipe.learning_rate * float(np.exp(np.clip(off, -_MOST, _MOST)))
    return replace(fitted, messages=found, recipe=recipe.model_copy(update={"learning_rate": rate}))
