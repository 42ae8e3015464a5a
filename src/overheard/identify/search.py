"""How did the clients of a recording train, given the table of their records?

Every way in which records may have entered the model, and every program that may have answered, is
described as for an audit (`recorders.template.possible`). An `Explanation` is such
a description, what clients do by it on whose records, and how far that is off. The best is checked
as every audit checks its recipe, on all clients, against replays of itself; what cannot be settled
is listed. One limit of time holds for everything but that check (`Tries`).

A program that trains no network answers or does not. A network's recipe is a *structure* (network,
loss, how records become inputs) and a *training* (optimiser, batch size, epochs, rate). It is
replayed from the models that were sent, and what leaves is compared with what left, by successive
halving: each stage has fewer recipes, more messages and more replays (`search`).

1. Structures: those under which plain descent or Adam comes closest; a wrong one gives gradients
   that point elsewhere, whatever the rate.
2. Every training under the best of these, each at the rate that fits it best. The rate is no grid:
   an update is almost proportional to it, so that the secant method finds it in a few replays.
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
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import islice, product
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from overheard.attacks.client import NO_DEFENCE, spread
from overheard.data.dataset import Dataset, HeldOut
from overheard.errors import FixConfig, OverheardError
from overheard.evaluation.record import Replay
from overheard.evaluation.replay import Training, certain, replays
from overheard.federation.federation import Federation
from overheard.federation.plan import load_data
from overheard.programs.program import Exchange
from overheard.programs.recipe import Adam, Optimiser, Recipe, Sgd
from overheard.recorders.describe import describe, settled
from overheard.recorders.template import possible
from overheard.transcript import knowledge as known
from overheard.transcript.messages import releases_arrays
from overheard.transcript.store import Recording
from overheard.transcript.target import LOCAL_MODEL
from overheard.transcript.threat import Threat
from overheard.transcript.view import observe

Array = NDArray[np.float64]
One = TypeVar("One")
Split = HeldOut | None
_TINY = 1e-300
_ROUNDING = 1e-6
"""Part of the messages' squares that arithmetic in single precision may leave."""
OPTIMISERS: dict[str, Optimiser] = {
    "SGD": Sgd(),
    "momentum": Sgd(momentum=0.9),
    "Adam": Adam(),
    "AdamW": Adam(weight_decay=0.01, decoupled=True),
}
"""As torch and its tutorials have them; of those that explain as much the first is named first."""
DRAWN: Any = (("scikit-learn", 42), ("scikit-learn", 0), ("scikit-learn", 1), ("datasets", 42),
         ("datasets", 0), ("order", 42), ("pandas", 200), ("pandas", 42))  # fmt: skip
"""How a client may have drawn the records that it held out."""


@dataclass(frozen=True)
class Options:
    """What is tried, and how long.

    ``clients`` whose messages are looked at, of all sizes, and ``rounds`` of each, evenly spread.
    ``held_out``: shares of its records that a client may have held out.
    ``batches`` (None: all records at once; 1: of linear models alone, as scikit-learn has them)
    and ``epochs``: those that are tried. ``work``:
    multiplications that a recipe may take in an early stage, a tenth of a second; the last may take
    20 times as many. ``structures``: how many are tried with every training. ``stages``: random
    orders that are replayed in each stage, and the recipes that go on to the next. ``near``:
    residuals of those that are weighed at all, in units of the least. ``coordinates`` of a message
    that are weighed, the same of every recipe; where orders are random a covariance of more is not
    known. ``errors`` of a description, in parts of the messages' squares, beside what random orders
    leave: the one that suits best counts, so that a small one does not leave the field to others.
    ``seconds`` by this ``clock``
    after which nothing new is tried; ``show``: called with what is tried, and how many of how many
    ways of this stage are done. ``trust_code``: whether the code that makes the model may run.
    """

    clients: int = 3
    rounds: int = 6
    held_out: tuple[float, ...] = (0.2, 0.1, 0.25, 0.3, 0.15, 0.05, 0.5)
    batches: tuple[int | None, ...] = (1, 16, 32, 64, None)
    epochs: tuple[int, ...] = (1, 2, 3, 5, 10)
    work: float = 3e9
    structures: int = 4
    stages: tuple[tuple[int, int], ...] = ((16, 12), (128, 6), (256, 6))
    near: float = 4.0
    coordinates: int = 128
    errors: tuple[float, ...] = (1e-14, 1e-10, 1e-8, 1e-6, 1e-4, 1e-2)
    seconds: float = 600.0
    clock: Callable[[], float] = field(default=time.process_time, compare=False)
    show: Callable[[str, int, int], None] = field(default=lambda *_: None, compare=False)
    trust_code: bool = False


class Tries:
    """What is tried, one after the other, until the time is up; and what then was not."""

    def __init__(self, options: Options) -> None:
        self.options, self.until = options, options.clock() + options.seconds
        self.skipped: list[str] = []

    def of(self, what: str, ways: Iterable[One], least: int = 0) -> Iterator[One]:
        """These, in their order; the first ``least`` of them whatever the time."""
        for number, way in enumerate(every := list(ways)):
            if number >= least and self.options.clock() >= self.until:
                self.skipped.append(f"{len(every) - number} of {len(every)} {what}")
                return
            self.options.show(f"trying {what}", number, len(every))
            yield way


class Messages(NamedTuple):
    """Some rounds of some clients, a client's together: models sent (M, P) as they were sent,
    updates (M, P), and whose they are (M,), by name."""

    sent: NDArray[Any]
    updates: Array
    client: NDArray[Any]


@dataclass(frozen=True, eq=False)
class Explanation:
    """A description that messages may have, and how far off it is. about: what it says of the
    structure, in words; program: what clients do by it, a recipe or a program that trains no
    network; given: on what each client does it, its records or its training on them.
    residual: part of the messages' squares that the mean replay leaves (of a program: the largest
    distance); evidence: the log density of each message (M,) but for a constant, 0 if they were not
    weighed; errors: rounding errors in each, where no order is random."""

    about: str
    whole: Any
    program: Any
    given: Mapping[str, Any]
    residual: float = np.inf
    errors: int = 0
    evidence: Array = field(default_factory=lambda: np.zeros(1))

    @property
    def words(self) -> str:
        recipe = self.program
        if not isinstance(recipe, Recipe):
            return self.about
        name = next(n for n, o in OPTIMISERS.items() if o == recipe.optimiser)
        batch = "full batch" if recipe.full_batch else f"batches of {recipe.batch_size}"
        epochs = f"{recipe.epochs} epoch{'s' * (recipe.epochs > 1)}"
        return f"{name} at rate {recipe.learning_rate:.4g}, {batch}, {epochs}, {self.about}"

    def trained(self, **how: Any) -> Explanation:
        """The same structure trained so."""
        training = self.whole.training.model_copy(update=how)
        whole = self.whole.model_copy(update={"training": training})
        return replace(self, whole=whole, program=self.program.model_copy(update=how))

    def trained_as(self, other: Explanation) -> Explanation:
        how = ("optimiser", "batch_size", "epochs", "learning_rate")
        return self.trained(**{name: getattr(other.program, name) for name in how})

    def at(self, rate: float) -> Explanation:
        """At this rate, to eight digits: single precision has no more."""
        return self.trained(learning_rate=float(f"{rate:.8g}"))

    def as_good_as(self, best: Explanation, odds: float = 100.0, errors: float = 2.33) -> bool:
        """Whether chance may have favoured the other, at these odds or by so many standard errors:
        Vuong's test, message by message. Evidence of two recipes that are both wrong, or nearly
        alike, differs by more than its odds say."""
        apart = best.evidence - self.evidence
        sd = float(apart.std(ddof=1)) if len(apart) > 1 else 0.0
        sd = max(sd, np.sqrt(self.errors / 2))  # of these little more is known than their size
        return bool(apart.sum() <= max(np.log(odds), errors * sd * np.sqrt(len(apart))))


# ----------------------------------------- how far off?


def replayed(one: Explanation, clients: Iterable[str], sent: NDArray[Any], times: int) -> Array:
    """Updates (M, times, P) that these clients (M,) would send from these models (M, P), in their
    precision, under the same orders whenever batches and epochs are; where nothing is random one
    (M, 1, P), in double precision."""
    if certain(one.program):
        times, sent = 1, sent.astype(np.float64)
    rng, recipe = np.random.default_rng(0), one.program
    ways = [(replace(one.given[c], recipe=recipe), m) for c, m in zip(clients, sent, strict=True)]
    made = [training.updates(model, times, rng) for training, model in ways]
    return np.asarray(np.clip(np.nan_to_num(made, nan=1e9), -1e9, 1e9))


def fit_rate(one: Explanation, seen: Messages, times: int, close: float = 1e-3) -> Explanation:
    """The recipe at the rate at which its mean replay is as long as the messages are along it, to
    ``close`` of its logarithm; to rounding where nothing is random, unless that is rough."""
    close = 1e-8 if certain(one.program) and close < 0.01 else close
    lengths = np.linalg.norm(seen.updates, axis=1, keepdims=True).clip(_TINY)
    target, log_rate = seen.updates / lengths, float(np.log(one.program.learning_rate))
    slope, gap, step = -1.0, 0.0, 0.0
    for _ in range(12):
        tried = one.at(np.exp(log_rate))
        made = replayed(tried, seen.client, seen.sent, times).mean(axis=1) / lengths
        # an update is almost proportional to the rate: the first slope of the secant method
        factor = (made * target).sum() / max((made**2).sum(), _TINY)
        last, gap = gap, float(np.log(np.clip(factor, 1e-3, 1e6)))
        slope = min((gap - last) / step, -0.1) if step else slope
        step = float(np.clip(-gap / slope, -5, 12))
        if abs(step) < close or abs(log_rate + step) > 25:
            break
        log_rate += step
    return replace(tried, residual=float(((made - target) ** 2).sum()) / len(target))


def weighed(one: Explanation, seen: Messages, times: int, options: Options) -> Explanation:
    """With its evidence, at the rate nearby that has most."""
    moving = np.flatnonzero((seen.updates != 0).any(axis=0))
    if len(moving) > options.coordinates:  # any: those that moved far did so by chance, too
        moving = np.random.default_rng(0).permutation(moving)[: options.coordinates // 2]
    many = replayed(one, seen.client, seen.sent, times)[..., moving]
    (replays, size), updates = many.shape[1:], seen.updates[:, moving]
    mean, away = many.mean(axis=1), many - many.mean(axis=1, keepdims=True)
    # of fewer replays than coordinates much of the covariance is not known
    shrunk = replays ** (-1.0 if replays <= size else -2.0)
    covariance = np.swapaxes(away, 1, 2) @ away * (1 + 1 / replays) / max(replays - 1, 1)
    covariance *= (1 - shrunk) + shrunk * np.eye(size)
    lengths = (updates**2).mean(axis=1, keepdims=True).clip(_TINY)

    def density(error: float) -> tuple[Array, float]:
        """Of the messages with such an error: Student's, with 10 degrees of freedom and this
        covariance; and by how much more of themselves they answer to the rate."""
        root = np.linalg.cholesky(covariance + error * lengths[..., None] * np.eye(size))
        both = np.linalg.solve(root, np.stack([updates - mean, mean], axis=2))
        gap, more = both[..., 0], both[..., 1]
        off = float((gap * more).sum() / max((more**2).sum(), _TINY))
        tails = (10 + size) / 2 * np.log1p(((gap - off * more) ** 2).sum(axis=-1) / 8)
        return -tails - np.log(np.einsum("mpp->mp", root)).sum(axis=1), off

    # an error that all messages share in parts of their length: what is left, or what suits best
    rest = max(options.errors[0], float(np.mean((updates - mean) ** 2 / lengths)))
    found, off = max(map(density, (*options.errors, rest)), key=lambda one: float(one[0].sum()))
    rate = one.program.learning_rate * float(np.exp(np.clip(off, -0.3, 0.3)))
    return replace(one.at(rate), evidence=found, errors=size * certain(one.program))


def paired(ways: Iterable[Explanation], off: Callable[..., Array]) -> tuple[Explanation, list[str]]:
    """The way under which recorded clients and those of the table agree best on the whole, pair by
    pair, and whose records each of the recorded has then. ``off``: how far each of the recorded (in
    the rows) is from what each of the table would have sent. Nothing is tried beyond what is not
    off at all."""
    found = list[tuple[float, int, Explanation, Any]]()
    for one in ways:
        pairs = linear_sum_assignment(apart := off(one))
        found.append((float(apart[pairs].sum()), len(found), one, pairs[1]))
        if not found[-1][0]:
            break
    total, _, best, columns = min(found)
    return replace(best, residual=total / len(columns)), [[*best.given][c] for c in columns]


# ----------------------------------------- recipes


def turned(one: Explanation, first: Messages) -> Array:
    """How far the direction in which the recipe leads on each table client's records (in the
    columns) is turned away from that of each message. A client's own records pull its model where
    it went: of recipes with small steps those agree best that are of the client itself."""
    models, which = np.unique(first.sent, axis=0, return_inverse=True)
    found = []
    for name in one.given:
        step = replayed(one, [name] * len(models), models, 4).mean(axis=1)[which]
        lengths = np.linalg.norm(step, axis=1) * np.linalg.norm(first.updates, axis=1)
        found.append(1 - (step * first.updates).sum(axis=1) / lengths.clip(_TINY))
    return np.array(found).T


Structures = Callable[[Split, str], Sequence[Explanation]]


def search(
    structures: Structures, seen: Messages, tries: Tries, splits: Sequence[Split] = (None,)
) -> list[Explanation]:
    """Recipes ranked by evidence, best first. ``structures``: how records may have entered the
    model after one of these ``splits`` into what was trained on and what was held out; all, or that
    of these words. Where the time ends, as far as it led: not all weighed, or by the residual."""
    every, options = structures(splits[0], ""), tries.options
    sizes = [len(training.labels[0]) for training in every[0].given.values()]
    # epochs on one message that a recipe may take in an early stage
    model = every[0].program.model
    room = options.work / (6 * float(np.mean(sizes)) * model.size * model.reuse)
    rows = spread(len(seen.sent), int(np.clip(room / (4 * max(options.epochs)), 1, 6)))
    few = Messages(*(part[rows] for part in seen))
    epochs = [e for e in options.epochs if e <= max(1, room / (4 * len(few.sent)))]
    batches = [b for b in options.batches if b is None or 2 - model.linear <= b < max(sizes)]
    optimisers = [*OPTIMISERS.values()]
    if every[0].program.sends_gradient:
        optimisers, batches, epochs = [Sgd()], [None], [1]

    def fits(ways: Iterable[list[Explanation]], times: int, close: float) -> list[Explanation]:
        """Recipes at their rates, the closest first. Each way is tried, recipe by recipe, as long
        as they come closer, each from the rate of the one before."""
        found = list[Explanation]()
        for way in ways:
            rate, closest = way[0].program.learning_rate, np.inf
            for tried in way:
                found.append(one := fit_rate(tried.at(rate), few, times, close))
                rate, closest = one.program.learning_rate, min(closest, one.residual)
                if one.residual > 1.1 * closest:
                    break
        found.sort(key=lambda f: max(f.residual, _ROUNDING))
        near = options.near * max([f.residual for f in found[:1]] + [_ROUNDING])
        return [f for f in found if f.residual <= near]

    def trained(these: Any, of: Any, sizes: Any, counts: Any) -> list[list[Explanation]]:
        """By each of these optimisers and in batches of these sizes, for more and more epochs."""
        return [
            [one.trained(optimiser=o, batch_size=b, epochs=e) for e in counts]
            for one, o, b in product(these, of, sizes)
        ]

    def weigh(one: Explanation, orders: int) -> Explanation:
        orders = int(np.clip(20 * room / len(seen.sent), 16, orders))
        return weighed(one, few if orders == 16 else seen, orders, options)

    def ranked(found: list[Explanation], stages: Sequence[tuple[int, int]]) -> list[Explanation]:
        for orders, most in stages:
            found = [weigh(f, orders) for f in tries.of("recipes to weigh", found)] or found
            found.sort(key=lambda f: -f.evidence.sum())
            # of both kinds: few orders tell badly how a random one compares with none
            kinds = ([f for f in found if certain(f.program) is kind] for kind in (True, False))
            found = [f for kind in kinds for f in kind[:most]]
        # of those that are told apart by odds of less than 100 to 1 the usual one
        top, usual = max(f.evidence.sum() for f in found), [one.about for one in every]
        found.sort(key=lambda f: usual.index(f.about))
        return sorted(found, key=lambda f: int((top - f.evidence.sum()) / np.log(100)))

    plainly = trained(every, (Sgd(), Adam()), batches[-2:], epochs[:1])
    first = fits(tries.of("ways in which records enter the model", plainly, 1), 2, 0.1)
    # of the kinds that come close
    close = [o for o in optimisers if any(type(o) is type(f.program.optimiser) for f in first)]
    ways = tries.of("ways to train", trained([first[0].at(1e-3)], close, batches, epochs))
    found = ranked(fits(ways, 2, 0.03) or first, options.stages[:2])
    likely = [
        weigh(structures(split, found[0].about)[0].trained_as(found[0]), 32)
        for split in tries.of("ways to hold records out", splits if len(splits) > 1 else ())
    ]
    # neighbouring shares are often as good: of these the one that is usual
    best = next((f for f in likely if all(map(f.as_good_as, likely))), found[0])
    kept, split = [*dict.fromkeys(f.about for f in first)], best.whole.data.held_out
    others = (one for about in kept[: options.structures] for one in structures(split, about))
    retrained = [[one.trained_as(f)] for one, f in product(others, [best, *found[1:]])]
    refined = fits(tries.of("ways to train with other inputs", retrained), 4, 1e-3)
    return ranked(refined or [best], options.stages)


# ----------------------------------------- recordings


def held_out(rows: Sequence[int], counts: Sequence[float], options: Options) -> list[Split]:
    """How clients of so many records may have come to train on the counts that they report: of
    records or else, as ``len(loader)`` is, of batches; nan: nobody said how many."""

    def fits(share: float, size: int) -> bool:
        seen = [np.ceil((n - np.ceil(share * n)) / size) for n in rows]
        return sorted(seen) == sorted(counts) or bool(np.isnan(counts).all())

    every, batches = (0.0, *options.held_out), [size for size in options.batches if size]
    shares = [share for share in every if any(fits(share, size) for size in batches)]
    found = [HeldOut(share=s, by=by, seed=seed) for s in shares if s for by, seed in DRAWN]
    return [*([] if found and 0.0 not in shares else [None]), *found]


@dataclass(frozen=True)
class Outcome:
    """Explanations, best first; whether the best fits each client; and what there was no time
    for."""

    ranking: tuple[Explanation, ...]
    fits: tuple[Replay, ...]
    skipped: tuple[str, ...]

    @property
    def unfit(self) -> tuple[str, ...]:
        return tuple(r.client for r in self.fits if r.outcome == "does not fit")

    @property
    def explained(self) -> bool:
        """Whether the best recipe is what clients did, as far as replays tell."""
        return any(r.outcome == "fits" for r in self.fits) and not self.unfit

    @property
    def open(self) -> tuple[Explanation, ...]:
        """Others that explain the messages as well, or nearly; or, where the best does not fit,
        come closer with nothing random."""
        best, *others = self.ranking
        closer = [f for f in others if certain(f.program) and f.residual < best.residual]
        return tuple(f for f in others if f.as_good_as(best) or (self.unfit and f in closer))


@dataclass(frozen=True)
class Asked:
    """A recording with the table of its clients' records, the descriptions that it may have, each
    in words. named: recorded clients of whom there are
    records, to the table's names, which are anybody's until they are known."""

    recording: Recording
    dataset: Dataset
    ways: Mapping[str, Federation]
    named: dict[str, str]
    tries: Tries
    work: str

    def explanations(self, names: Iterable[str], split: Split, about: str) -> list[Explanation]:
        """Every description that fits table and messages, of these clients and after this split;
        ``about``: only that of these words, if any."""
        made, refused = dict[str, Explanation](), list[OverheardError]()
        for words, way in self.ways.items() if not about else [(about, self.ways[about])]:
            data = way.data.model_copy(update={"held_out": split})
            clients = {c: name for c, name in self.named.items() if name != c}
            whole = way.model_copy(update={"data": data, "clients": clients})
            dataset = replace(self.dataset, task=data.task or self.dataset.task)
            try:
                ready = settled(self.recording, whole, dataset, self.tries.options.trust_code)[1]
            except OverheardError as error:
                refused.append(error)
                continue
            if {*names} <= ready.clients.keys():  # else nobody knows yet who was recorded
                program, given = ready.program, dict[str, Any](ready.clients)
                if isinstance(program, Recipe):
                    given = {c: Training.of(program, NO_DEFENCE, {c: given[c]}) for c in names}
                # two are one where there is nothing in which they differ
                one = Explanation(words, whole, program, given)
                made.setdefault(program.model_dump_json(), one)
        if refused and not (made or about):
            raise refused[-1]
        return list(made.values())

    def described(self, description: Federation) -> Recording:
        """The recording by the table's names, however its clients trained."""
        out = Path(mkdtemp(dir=self.work))
        describe(self.recording, description, out, self.tries.options.trust_code)
        return self.recording.described_in(out)

    def recipes(self, splits: Sequence[Split]) -> list[Explanation]:
        """Recipes, ranked by some messages of some clients."""
        table = self.dataset.by_client()
        if table.keys().isdisjoint(self.named):
            every = self.explanations(table, splits[0], "")
            first = messages(self.described(every[0].whole), self.named.values(), 1)
            ways = self.tries.of("ways to tell who is who", product(every, (Sgd(), Adam())), 1)
            steps = (one.trained(optimiser=o, learning_rate=1e-3, batch_size=32) for one, o in ways)
            _, who = paired(steps, partial(turned, first=first))
            self.named.update(zip(self.named, who, strict=True))
        by_size = sorted(self.named.values(), key=lambda c: (len(table[c]), c))
        names = [by_size[k] for k in spread(len(by_size), self.tries.options.clients)]
        some = cache(partial(self.explanations, names))
        recorded = self.described(some(splits[0], "")[0].whole)
        seen = messages(recorded, names, self.tries.options.rounds)
        return search(some, seen, self.tries, splits)

    def programs(self, splits: Sequence[Split]) -> list[Explanation]:
        """The program that answers as the clients did. Nothing is random in it: the first that
        gives the first message of the first client is it, and who is who follows from all."""
        rng = np.random.default_rng(0)
        unknown = self.dataset.by_client().keys().isdisjoint(self.named)

        def gap(one: Explanation, client: str, name: str) -> float:
            """How far its first answer that is not off by 0 is from that on these records: 1 at
            most, and 2 where there is none, or it is known to have others."""
            with suppress(OverheardError, ArithmeticError):
                if unknown or name == self.named[client]:
                    first = islice(self.recording.releases(client), 8)
                    some = one.program.assembled([Exchange(e.number, *ways) for e, *ways in first])
                    answers = (one.program.respond(x.sent, one.given[name], rng) for x in some)
                    gaps = map(one.program.distance, (x.returned for x in some), answers)
                    return float(min(1.0, next(filter(None, gaps), 0.0)))
            return 2.0

        def off(clients: Sequence[str], one: Explanation) -> Array:
            return np.array([[gap(one, c, name) for name in one.given] for c in clients])

        every, clients = self.explanations((), splits[0], ""), [*self.named]
        of = self.tries.of("programs and what they held out", product(splits, every), 1)
        ways = (way for split, one in of for way in self.explanations((), split, one.about))
        first, _ = paired(ways, partial(off, clients[:1]))
        best, who = paired([first], partial(off, clients))
        renamed = {c: name for c, name in zip(clients, who, strict=True) if name != c}
        return [replace(best, whole=best.whole.model_copy(update={"clients": renamed}))]


def messages(recording: Recording, names: Iterable[str], rounds: int) -> Messages:
    """Some messages of these clients, from their first to their last."""
    parts, who = [], Threat("identify", frozenset({known.Messages}), "")
    for name in names:
        link = observe(recording, who, LOCAL_MODEL, name).know(known.Messages)
        link = link.only(spread(len(link), rounds))
        parts.append((link.sent, link.updates(), np.full(len(link), name)))
    return Messages(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def identify(recording: Recording, given: Mapping[str, Any], options: Options) -> Outcome:
    """The recipe that the recording shows, or else its first round. ``given``: what is known of the
    description but for [clients], its [data] at least."""
    found = _identified(recording, given, tries := Tries(options))
    if releases_arrays(recording.payload) or not found.unfit or tries.skipped:
        return found
    first = {**given, "audit": {**given.get("audit", {}), "rounds": 1}}
    alone = _identified(replace(recording, rounds=recording.rounds[:1]), first, tries)
    return alone if alone.explained else found


def _identified(recording: Recording, given: Mapping[str, Any], tries: Tries) -> Outcome:
    ways, options = dict(possible(recording, given)), tries.options
    dataset = load_data(next(iter(ways.values())))
    sizes = {c: len(records) for c, records in dataset.by_client().items()}
    reported = {c: e.weights.get(c, np.nan) for e in recording.rounds
                for way, c in e.spans if way == "returned"}  # fmt: skip
    if not reported:
        raise FixConfig(
            f"{recording.path}: holds sums of clients alone, so how each trained is unknown: fill "
            "in what `overheard init` writes without --data, and audit with --threat secure-server"
        )
    named = {c: c for c in reported if c in sizes}
    if not named and len(reported) <= len(sizes):
        named = dict(zip(reported, sizes, strict=False))  # anybody, for the time being
    rows, counts = [sizes[name] for name in named.values()], [reported[c] for c in named]
    splits, networks = held_out(rows, counts, options), not releases_arrays(recording.payload)
    with TemporaryDirectory() as work:
        asked = Asked(recording, dataset, ways, named, tries, work)
        best, *others = (asked.recipes if networks else asked.programs)(splits)
        truth = (recorded := asked.described(best.whole)).truth()
        fits = replays(recorded, best.program, truth, [*truth])
    return Outcome((best, *others), fits, tuple(tries.skipped))
