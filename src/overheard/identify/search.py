"""Which training explains the messages of some clients, given the records that they trained on?

Every recipe is replayed from the models that were sent, and what it adds to them is compared with
what was added. A recipe is a *structure* (network, loss, how records become inputs) and a
*training* (optimiser, batch size, epochs, rate). The search is successive halving: each stage has
fewer recipes, more messages and more replays.

1. Structures: those under which plain descent or Adam comes closest; a wrong one gives gradients
   that point elsewhere, whatever the rate.
2. Every training under the best of these, each at the rate that fits it best. The rate is no grid:
   what a client adds is almost proportional to it, so that the secant method finds it in a few
   replays.
3. Under the training that comes closest: which records were held out, if that is open.
4. The best trainings under each of the best structures, ranked by evidence, the log density of the
   messages.

Evidence. Where nothing is random a message is the replay, to rounding, or to a small error that
all messages share: of the records, say, which were scaled by other numbers. Where the order of
mini-batches is random, replays under many orders are a sample of what might have been sent:
synthetic likelihood (Wood 2010, Nature 466), with the sample covariance shrunk to its diagonal,
the less the more replays there are, and Student's tails. Recipes are compared message by message
(Vuong 1989): those that chance may have put behind the best stay open, and are listed, not chosen
from.

Fails when: weight decay, clipping, FedProx, a defence or dropout was at work. Nothing then fits,
which the check of the best recipe shows (`evaluation.replay`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln

from overheard.attacks.client import spread
from overheard.evaluation.replay import MOST_BYTES, certain
from overheard.programs.recipe import Adam, Optimiser, Recipe, Sgd
from overheard.programs.records import Records
from overheard.programs.training import local_training, shards

Array = NDArray[np.float64]
_TINY = 1e-300
_ROUNDING = 1e-6
"""Part of the messages' squares that arithmetic in single precision may leave."""
OPTIMISERS: dict[str, Optimiser] = {
    "SGD": Sgd(),
    "momentum": Sgd(momentum=0.9),
    "Adam": Adam(),
    "AdamW": Adam(weight_decay=0.01, decoupled=True),
}
"""As torch and its tutorials have them."""
TRAINING = ("optimiser", "batch_size", "epochs", "learning_rate")


@dataclass(frozen=True)
class Options:
    """What is tried, and how long.

    ``clients`` whose messages are looked at, of all sizes, and ``rounds`` of each, evenly spread.
    ``pairs`` of a recorded and a table client that are tried where names do not tell who is who.
    ``held_out``: shares of its records that a client may have held out.
    ``batches`` (None: all records at once) and ``epochs``: those that are tried. ``work``:
    multiplications that a recipe may take in an early stage, a tenth of a second; the last may take
    20 times as many. ``structures``: how many are tried with every training. ``stages``: random
    orders that are replayed in each stage, and the recipes that go on to the next. ``near``:
    residuals of those that are weighed at all, in units of the least. ``seconds`` by this ``clock``
    after which nothing new is tried; ``show``: called with what is tried, and how many of how many
    ways of this stage are done.
    """

    clients: int = 3
    rounds: int = 6
    pairs: int = 2500
    held_out: tuple[float, ...] = (0.2, 0.1, 0.25, 0.3, 0.15, 0.05, 0.5)
    batches: tuple[int | None, ...] = (16, 32, 64, None)
    epochs: tuple[int, ...] = (1, 2, 3, 5, 10)
    work: float = 3e9
    structures: int = 4
    stages: tuple[tuple[int, int], ...] = ((16, 12), (128, 6), (256, 6))
    near: float = 4.0
    seconds: float = 600.0
    clock: Callable[[], float] = field(default=time.process_time, compare=False)
    show: Callable[[str, int, int], None] = field(default=lambda *_: None, compare=False)


USUAL = Options()
Way = TypeVar("Way")


class Tries:
    """What is tried, one after the other, until the time is up; and what then was not."""

    def __init__(self, options: Options) -> None:
        self.options, self.until = options, options.clock() + options.seconds
        self.skipped: list[str] = []

    @property
    def over(self) -> bool:
        return self.options.clock() >= self.until

    def of(self, what: str, ways: Iterable[Way], least: int = 0) -> Iterator[Way]:
        """These, in their order; the first ``least`` of them whatever the time."""
        for number, way in enumerate(every := list(ways)):
            if number >= least and self.over:
                self.skipped.append(f"{len(every) - number} of {len(every)} {what}")
                return
            self.options.show(f"trying {what}", number, len(every))
            yield way


@dataclass(frozen=True)
class Messages:
    """Some rounds of some clients, a client's together: models sent (M, P) as they were sent, what
    was added to them (M, P), the sd of its rounding (M, P), and whose they are (M,)."""

    sent: NDArray[Any]
    added: Array
    rounded: Array
    client: NDArray[np.int64]


@dataclass(frozen=True)
class Structure:
    """What a recipe is besides the training, and every client's records as its model sees them."""

    words: str
    recipe: Recipe
    inputs: tuple[Array, ...]
    labels: tuple[Array, ...]
    records: Mapping[str, Records] = field(default_factory=dict)
    description: Any = None


@dataclass(frozen=True)
class Fitted:
    """A recipe at its best rate. residual: part of the messages' squares that its mean leaves;
    messages: the log density of each (M,), 0 if they were not weighed; errors: rounding errors in
    each, where no order is random."""

    structure: Structure
    recipe: Recipe
    residual: float = np.inf
    errors: int = 0
    messages: Array = field(default_factory=lambda: np.zeros(1), compare=False)

    @property
    def evidence(self) -> float:
        return float(self.messages.sum())

    @property
    def name(self) -> str:
        return next(n for n, o in OPTIMISERS.items() if o == self.recipe.optimiser)

    @property
    def words(self) -> str:
        batch = "full batch" if self.recipe.full_batch else f"batches of {self.recipe.batch_size}"
        epochs = f"{self.recipe.epochs} epoch{'s' * (self.recipe.epochs > 1)}"
        rate = f"{self.name} at rate {self.recipe.learning_rate:.4g}"
        return ", ".join([rate, batch, epochs, self.structure.words])

    @property
    def training(self) -> dict[str, Any]:
        return {name: getattr(self.recipe, name) for name in TRAINING}

    @property
    def description(self) -> Any:
        """What says so to an audit."""
        whole, recipe = self.structure.description, self.recipe
        also = {"algorithm": recipe.algorithm, "loss": recipe.loss}
        training = whole.training.model_copy(update={**self.training, **also})
        model = whole.model.model_copy(update=recipe.model.choices)
        return whole.model_copy(update={"training": training, "model": model})

    def at(self, rate: float) -> Fitted:
        """At this rate, to eight digits: single precision has no more."""
        rate = float(f"{rate:.8g}")
        return replace(self, recipe=self.recipe.model_copy(update={"learning_rate": rate}))

    def as_good_as(self, best: Fitted, odds: float = 100.0, errors: float = 2.33) -> bool:
        """Whether chance may have favoured the other, at these odds or by so many standard errors:
        Vuong's test, message by message. Evidence of two recipes that are both wrong, or nearly
        alike, differs by more than its odds say."""
        apart = best.messages - self.messages
        sd = float(apart.std(ddof=1)) if len(apart) > 1 else 0.0
        sd = max(sd, np.sqrt(self.errors / 2))  # of these little more is known than their size
        return bool(apart.sum() <= max(np.log(odds), errors * sd * np.sqrt(len(apart))))


def replayed(fitted: Fitted, observed: Messages, times: int, kind: str = "") -> Array:
    """What replays add to the models that were sent (M, times, P), in the precision ``kind`` (by
    default that of the messages); under the same orders whenever batches and epochs are."""
    recipe, structure, made = fitted.recipe, fitted.structure, []
    rng, sent = np.random.default_rng(0), observed.sent.astype(kind or observed.sent.dtype)
    largest = max(structure.inputs[c].nbytes for c in set(observed.client.tolist()))
    together = max(1, MOST_BYTES // max(largest * times, 1))
    for begin in range(0, len(sent), together):
        part = slice(begin, begin + together)
        start, whose = (np.repeat(a[part], times, axis=0) for a in (sent, observed.client))
        inputs, labels = ([of[c] for c in whose] for of in (structure.inputs, structure.labels))
        with np.errstate(over="ignore", invalid="ignore"):
            data = shards(inputs, labels, str(sent.dtype))
            ended = local_training(recipe, start, data, rng).astype(np.float64)
            made.append(ended if recipe.sends_gradient else ended - start)
    return np.concatenate(made).reshape(len(sent), times, -1)


def fit_rate(fitted: Fitted, observed: Messages, times: int, close: float = 1e-3) -> Fitted:
    """The recipe at the rate at which its mean replay is as long as the messages are along it, to
    ``close`` of its logarithm; to rounding where nothing is random, unless that is rough."""
    exact = certain(fitted.recipe) and close < 0.01
    how = (1 if certain(fitted.recipe) else times, "float64" if exact else "")
    lengths = np.linalg.norm(observed.added, axis=1, keepdims=True).clip(_TINY)

    target, log_rate = observed.added / lengths, float(np.log(fitted.recipe.learning_rate))
    slope, gap, step = -1.0, 0.0, 0.0
    for _ in range(12):
        made = replayed(fitted.at(np.exp(log_rate)), observed, *how).mean(axis=1) / lengths
        made = np.nan_to_num(made, nan=1e6, posinf=1e6, neginf=-1e6)
        residual = float(((made - target) ** 2).sum()) / len(target)
        # what is added is almost proportional to the rate: the first slope of the secant method
        factor = (made * target).sum() / max((made**2).sum(), _TINY)
        last, gap = gap, float(np.log(np.clip(factor, 1e-3, 1e6)))
        slope = min((gap - last) / step, -0.1) if step else slope
        step = float(np.clip(-gap / slope, -5, 12))
        if abs(step) < (1e-8 if exact else close) or abs(log_rate + step) > 25:
            break
        log_rate += step
    return replace(fitted.at(np.exp(log_rate)), residual=residual)


def weighed(fitted: Fitted, observed: Messages, times: int, coordinates: int = 128) -> Fitted:
    """With its evidence, at the rate nearby that has most. coordinates: of a message that are
    weighed, the same of every recipe; where orders are random a covariance of more is not known."""
    moving = np.flatnonzero((observed.added != 0).any(axis=0))
    if len(moving) > coordinates:  # any: those that moved far did so by chance, too
        moving = np.random.default_rng(0).permutation(moving)[: coordinates // 2]
    if certain(fitted.recipe):
        away = (observed.added - replayed(fitted, observed, 1, "float64")[:, 0])[:, moving] ** 2
        lengths = (observed.added[:, moving] ** 2).mean(axis=1, keepdims=True).clip(_TINY)
        # rounding, and an error that all messages share in parts of their length
        variance = observed.rounded[:, moving] ** 2 + lengths * np.mean(away / lengths)
        messages = student(away / variance, np.log(variance) / 2, 1).sum(axis=1)
        return replace(fitted, messages=messages, errors=len(moving))
    many = replayed(fitted, observed, times)
    if not np.isfinite(many).all():
        return replace(fitted, messages=np.full(len(many), -np.inf))
    mean = (many := many[..., moving]).mean(axis=1)
    # of fewer replays than coordinates much of the covariance is not known
    shrunk = times ** (-1.0 if times <= len(moving) else -2.0)
    away = many - mean[:, None]
    covariance = (1 + 1 / times) / (times - 1) * np.swapaxes(away, 1, 2) @ away
    own = shrunk * np.einsum("mpp->mp", covariance) + observed.rounded[:, moving] ** 2 + _TINY
    root = np.linalg.cholesky((1 - shrunk) * covariance + own[..., None] * np.eye(len(moving)))
    # how far messages are from the mean, all directions alike; and what they answer to a rate that
    # is a little larger, which is a little more of themselves
    both = np.linalg.solve(root, np.stack([observed.added[:, moving] - mean, mean], axis=2))
    off = float((both[..., 0] * both[..., 1]).sum() / max((both[..., 1] ** 2).sum(), _TINY))
    squares = ((both[..., 0] - off * both[..., 1]) ** 2).sum(axis=-1)
    volume = np.log(np.einsum("mpp->mp", root)).sum(axis=1)
    rate = fitted.recipe.learning_rate * float(np.exp(np.clip(off, -0.3, 0.3)))
    return replace(fitted.at(rate), messages=student(squares, volume, len(moving)))


def student(squares: Array, root: Array, size: int, freedom: float = 10.0) -> Array:
    """Log densities of Student's distribution in ``size`` dimensions, at these squared distances in
    units of a covariance whose root has the log determinant ``root``."""
    constant = gammaln((freedom + size) / 2) - gammaln(freedom / 2)
    constant -= 0.5 * size * np.log((freedom - 2) * np.pi)
    tails = 0.5 * (freedom + size) * np.log1p(squares / (freedom - 2))
    return np.asarray(constant - root - tails, dtype=np.float64)


def search(
    structures: Callable[[Any, str], Sequence[Structure]],
    observed: Messages,
    tries: Tries,
    splits: Sequence[Any] = (None,),
) -> list[Fitted]:
    """Recipes ranked by evidence, best first. ``structures``: how records may have entered the
    model after one of these ``splits`` into what was trained on and what was held out; all, or that
    of these words. Where the time ends, as far as it led: not all weighed, or by the residual."""
    every, options = structures(splits[0], ""), tries.options
    sizes, gradients = [len(y) for y in every[0].labels], every[0].recipe.sends_gradient
    # epochs on one message that a recipe may take in an early stage
    room = options.work / (6 * float(np.mean(sizes)) * observed.sent.shape[1])
    rows = spread(len(observed.sent), int(np.clip(room / (4 * max(options.epochs)), 1, 6)))
    few = Messages(*(getattr(observed, each.name)[rows] for each in fields(observed)))
    epochs = [e for e in options.epochs if e <= max(1, room / (4 * len(few.sent)))]
    batches = [b for b in options.batches if b is None or b < max(sizes)]
    optimisers = [*OPTIMISERS.values()]
    if gradients:
        optimisers, batches, epochs = [Sgd()], [None], [1]

    def fits(what: str, ways: Iterable[Any], times: int, close: float, least: int) -> list[Fitted]:
        """Structures and trainings at their rates, the closest first. Trainings of more and more
        epochs go on as long as they come closer, each from the rate of the one before."""
        found = []
        for structure, trainings in tries.of(what, ways, least):
            rate, closest = 1e-3, np.inf
            for training in trainings:
                recipe = structure.recipe.model_copy(update={"learning_rate": rate, **training})
                found.append(one := fit_rate(Fitted(structure, recipe), few, times, close))
                rate, closest = one.recipe.learning_rate, min(closest, one.residual)
                if one.residual > 1.1 * closest or tries.over:
                    break
        found.sort(key=lambda f: f.residual)
        near = options.near * max([f.residual for f in found[:1]] + [_ROUNDING])
        return [f for f in found if f.residual <= near]

    def entering(every: Sequence[Structure]) -> list[Fitted]:
        plain = trainings([o for o in optimisers if o in (Sgd(), Adam())], batches[-2:], [1])
        return fits("ways in which records enter the model", product(every, plain), 2, 0.1, 1)

    def ranked(found: list[Fitted], stages: Sequence[tuple[int, int]]) -> list[Fitted]:
        for orders, most in stages:
            orders = int(np.clip(20 * room / len(observed.sent), 16, orders))
            these, ways = few if orders == 16 else observed, tries.of("recipes to weigh", found)
            found = [weighed(f, these, orders) for f in ways] or found
            # of both kinds: few orders tell badly how a random one compares with none
            kinds = ([f for f in found if certain(f.recipe) is kind] for kind in (True, False))
            # of those whose odds are even the simplest is named first
            order = {name: place for place, name in enumerate(OPTIMISERS)}
            best = [sorted(k, key=lambda f: (-round(f.evidence), order[f.name])) for k in kinds]
            found = [f for kind in best for f in kind[:most]]
            found.sort(key=lambda f: (-round(f.evidence), order[f.name]))
        return found

    first = entering(every)
    families = {type(f.recipe.optimiser) for f in first}  # those that come close
    every_way = trainings([o for o in optimisers if type(o) in families], batches, epochs)
    found = fits("ways to train", product([first[0].structure], every_way), 2, 0.03, 0)
    found = ranked(found or first, options.stages[:2])
    likely = []
    for split in tries.of("ways to hold records out", splits if len(splits) > 1 else ()):
        (structure,) = structures(split, found[0].structure.words)
        likely.append(weighed(replace(found[0], structure=structure), observed, 32))
    if likely:  # neighbouring shares are often as good: of these the one that is usual
        most = max(likely, key=lambda f: f.evidence)
        best = next(f for f in likely if f.as_good_as(most))
        found = [best, *found[1:]]
        first = entering(structures(best.description.data.held_out, ""))
    kept = [*{id(f.structure): f.structure for f in first}.values()][: options.structures]
    ways = product(kept, [[f.training] for f in found])
    refined = fits("ways to train with other inputs", ways, 4, 1e-3, 0)
    return ranked(refined or found[:1], options.stages)


def trainings(
    optimisers: Iterable[Optimiser], batches: Iterable[int | None], epochs: Sequence[int]
) -> list[list[dict[str, Any]]]:
    """Of each optimiser and size of batches those of more and more epochs."""
    ways = product(optimisers, batches)
    return [[dict(zip(TRAINING, (*way, count), strict=False)) for count in epochs] for way in ways]


def who_is_who(structures: Sequence[Structure], first: Messages, tries: Tries) -> list[int]:
    """Of every recorded client, in their order in the messages, the number of its records among
    those of the structures, where the names do not tell.

    A client's own records pull its model where it went: a small step on every table client's
    records is compared in direction with what every recorded client sent, and the pairs that agree
    best on the whole are taken. Clients that are much alike are told apart by training as these
    pairs suggest.
    """

    def paired(fitted: Fitted, times: int) -> tuple[float, list[int]]:
        alike = []
        for number in range(len(fitted.structure.labels)):
            every = replace(first, client=np.full(len(first.sent), number))
            step = replayed(fitted, every, times).mean(axis=1)
            lengths = np.linalg.norm(step, axis=1) * np.linalg.norm(first.added, axis=1)
            cosines = (step * first.added).sum(axis=1) / np.maximum(lengths, _TINY)
            alike.append(np.bincount(first.client, cosines))
        rows, columns = linear_sum_assignment(-np.array(alike).T)
        return float(np.array(alike)[columns, rows].sum()), columns.tolist()

    tried, ways = [], product(structures, ("SGD", "Adam"))
    for structure, name in tries.of("ways to tell who is who", ways, 1):
        training = {"optimiser": OPTIMISERS[name], "learning_rate": 1e-3}
        one = Fitted(structure, structure.recipe.model_copy(update=training))
        tried.append((*paired(one, 1), one))
    _, pairs, best = max(tried, key=lambda t: t[0])
    if max(map(len, best.structure.labels)) > 32:
        best = replace(best, recipe=best.recipe.model_copy(update={"batch_size": 32}))
    told = replace(first, client=np.array(pairs)[first.client])
    return paired(fit_rate(best, told, 4), 4)[1]
