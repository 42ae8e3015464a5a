"""What do a client's records do to the model that it returns, to first order, in any training?

A client returns F(s, omega): s its records, omega the order of its batches and whatever else is
random. To a listener who knows every candidate of a record, F is close to

    F  =  centre + sum_i J_i(s_i) - E[J_i] + noise

(docs/decoders.md section 8). Everything here is read off *simulated clients*: the client's own
training, from the model that was sent, on records drawn from what is believed.

* **Trajectory.** The update rule works entry by entry, so that the returned model's derivative by
  the gradient of step t is a vector R_t, by one backward pass of autograd through the rule along a
  simulated path. A record used at step t adds R_t / |batch| times its gradient. Steps are taken
  together in segments: J_i sums, over segments, the segment's R times the record's gradient at the
  segment's mean model. Where the order of the batches is known J_i knows it too; where it is drawn
  afresh, every record has its share of every segment.
* **Batch position.** With momentum a record of the first batches weighs several times as much as
  one of the last. So the segment of one epoch that a record fell into is a latent variable: its
  *state* is a candidate and a position, which multiplies what the record adds by a number.
* **Noise.** What is left of simulated clients (the order, their own paths, masks of dropout, second
  order) is noise, whose covariance they show (`decoding.noise`); the message and simulated clients
  that had no part in it are whitened, and turned into the directions that say most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.decoding.measurement import FLOOR
from overheard.decoding.noise import whitening
from overheard.errors import needs
from overheard.programs.networks import network
from overheard.programs.program import Candidates
from overheard.programs.recipe import Recipe
from overheard.programs.records import encode_each
from overheard.programs.rules import is_linear, rule_of
from overheard.programs.training import Shards, Trace, batch_order, local_training

Array = NDArray[np.float64]
Floats = NDArray[np.floating[Any]]
Single = NDArray[np.float32]
Indices = NDArray[np.int64]

MEMORY = 4e9
"""Bytes that decoding a round may take."""


@dataclass(frozen=True)
class LinearOptions:
    """Settings of the linearisation.

    together: numbers of the inputs of clients that are trained at once.
    segments: into which the local steps are cut, a smaller last batch not counted.
    watched: simulated clients along whose paths the rule is differentiated.
    equations, fewest, numbers: coordinates that are used, those that say most: so many an unknown,
        at least so many, and at most as make so many numbers of one candidate of all records. More
        were tried of 5,210 records, and say no more.
    candidates: of a record up to which batch positions are decoded along: more states cost too
        much.
    own: of the covariance that simulated clients show, how much is taken as uncorrelated.
    counted: standard deviation of the number of records that are known to be used.
    operations: of one sweep of a decoder over all records: directions that are kept.
    """

    together: float = 2e7
    segments: int = 12
    watched: int = 4
    equations: int = 10
    fewest: int = 3000
    numbers: float = 8e6
    candidates: int = 2
    own: float = 0.1
    counted: float = 0.3
    operations: float = 4e9


DEFAULT = LinearOptions()


@dataclass(frozen=True)
class Encoded:
    """Candidates as a network sees them: inputs (K, n, d) and labels (K, n) under each of K.

    present (K,): candidates under which the record is the client's at all (the first may not be);
    members: how many records the client trains on.
    """

    inputs: Floats
    labels: Floats
    present: NDArray[np.bool_]
    members: int

    @property
    def records(self) -> int:
        return int(self.labels.shape[1])

    def drawn(self, belief: Array, count: int, rng: np.random.Generator) -> Indices:
        """Candidates (count, n) of every record, drawn from the belief (n, K)."""
        if self.present.all():
            return _drawn(belief, count, rng)
        # exactly as many members as the client reported, at random as believed
        absent = int(np.flatnonzero(~self.present)[0])
        inside = np.clip(1 - belief[:, absent], 1e-12, 1 - 1e-12)
        keys = np.log(inside) - np.log1p(-inside) + rng.logistic(size=(count, len(belief)))
        member = np.argsort(np.argsort(-keys, axis=1), axis=1) < self.members
        given = belief * (np.arange(belief.shape[1]) != absent)
        given /= np.maximum(given.sum(axis=1, keepdims=True), 1e-300)
        return np.where(member, _drawn(given, count, rng), absent)

    def rows(self, chosen: Indices) -> Indices:
        """Which records (S, members) are a client's at all."""
        absent = ~self.present[chosen]
        return np.argsort(absent, axis=1, kind="stable")[:, : self.members]

    def shards(self, chosen: Indices, dtype: Any) -> Shards:
        """The records of clients whose candidates are ``chosen`` (S, n)."""
        rows = self.rows(chosen)
        picked = np.take_along_axis(chosen, rows, axis=1)
        sizes = np.full(len(chosen), self.members, dtype=np.int64)
        inputs, labels = (part.astype(dtype)[picked, rows] for part in (self.inputs, self.labels))
        return Shards(inputs, labels, sizes)


def _drawn(belief: Array, count: int, rng: np.random.Generator) -> Indices:
    draws = rng.random((count, len(belief), 1))
    chosen = (draws > belief.cumsum(axis=1)).sum(axis=2)
    return np.asarray(np.minimum(chosen, belief.shape[1] - 1), dtype=np.int64)


def encoded(recipe: Recipe, candidates: Candidates) -> Encoded:
    """What each record may be, as the network of a recipe sees it."""
    there = [setting for setting in candidates.settings if setting is not None]
    inputs = encode_each(recipe.encoding, candidates.known, there)
    tables = [table for table in candidates.tables if table is not None]
    labels = np.stack([recipe.target.encode_values(t[recipe.target.column]) for t in tables])
    if len(candidates.settings) > len(there):  # who is absent comes first, if at all
        inputs, labels = (np.concatenate([np.zeros_like(a[:1]), a]) for a in (inputs, labels))
    return Encoded(inputs, labels, candidates.present, candidates.members)


def batches_of(recipe: Recipe, records: int, order: Indices | None = None) -> list[Indices]:
    """The records of every local step, visited in this order (epochs, records)."""
    if recipe.batch_size is None:
        return [np.arange(records)] * recipe.epochs
    assert order is not None
    each = int(recipe.batches(np.array([records]))[0])
    cuts = [slice(b * recipe.batch_size, (b + 1) * recipe.batch_size) for b in range(each)]
    return [epoch[cut] for epoch in order for cut in cuts]


def segments(recipe: Recipe, members: int, options: LinearOptions = DEFAULT) -> list[Indices]:
    """The local steps of a client with so many records, cut into segments. Of one epoch a smaller
    last batch, whose records weigh more, is one by itself."""
    each = int(recipe.batches(np.array([members]))[0])
    steps = each * recipe.epochs
    uneven = not recipe.full_batch and members % (recipe.batch_size or members) > 0
    alone = int(uneven and each > 1 and recipe.epochs == 1 and not recipe.drop_last)
    made = np.array_split(np.arange(steps - alone), min(options.segments, steps - alone))
    return [*made, np.array([steps - 1])] if alone else made


@dataclass(frozen=True)
class Part:
    """Steps that may use the same records: their mean model (P,), and what a unit of gradient of
    one of the records does to the returned model (P,)."""

    records: Indices
    theta: Single
    scale: Single


@dataclass(frozen=True)
class Trained:
    """Simulated clients: what they return (S, P), the parts of their training on average, and the
    order (S, members) of each one's first epoch, none of full batches."""

    ends: Floats
    parts: list[Part]
    order: Indices | None


class Trajectory:
    """Local training from the model that was sent, in a known order (epochs, n) of the records, all
    at once, or in an order that every client draws."""

    def __init__(
        self,
        recipe: Recipe,
        sent: Floats,
        candidates: Encoded,
        order: Indices | None = None,
        options: LinearOptions = DEFAULT,
    ) -> None:
        self.recipe, self.sent, self.candidates = recipe, sent, candidates
        self.order, self.options, self.net = order, options, network(recipe)
        self.batches = [np.arange(candidates.records)]
        self.groups = segments(recipe, candidates.members, options)
        if order is not None:
            self.batches = batches_of(recipe, candidates.records, order)
            self.groups = list(np.arange(len(self.batches))[:, None])

    def ends(
        self,
        chosen: Indices,
        rng: np.random.Generator | None = None,
        trace: Trace | None = None,
        visited: list[Indices] | None = None,
    ) -> Floats:
        """What clients return (S, P) whose records are these candidates (S, n): the client itself,
        bit for bit where its library adds in the same order and nothing is random. ``visited``
        takes the orders of first epochs."""
        rng = np.random.default_rng(0) if rng is None else rng
        together = max(1, int(self.options.together / self.candidates.inputs[0].size))
        made = []
        for first in range(0, len(chosen), together):
            data = self.candidates.shards(chosen[first : first + together], self.sent.dtype)
            epochs = [] if self.recipe.full_batch else range(self.recipe.epochs)
            shape = data.labels.shape
            orders = tuple(
                batch_order(data.sizes, shape[1], rng)
                if self.order is None
                else np.broadcast_to(self.order[epoch], shape)
                for epoch in epochs
            )
            if visited is not None:
                visited.extend(orders[:1])
            data = replace(data, orders=orders)
            made.append(local_training(self.recipe, self.sent, data, rng, trace=trace))
        return np.concatenate(made)

    def trained(self, chosen: Indices, rng: np.random.Generator | None = None) -> Trained:
        """Clients (S, n) trained, and the parts of the training in which records act, on average
        over them: where Adam's steps are near-signs, one client's slopes say little of another's.
        """
        place = {int(step): j for j, group in enumerate(self.groups) for step in group}
        path = np.zeros((len(self.groups), self.sent.size))
        slopes: list[list[Single]] = [[] for _ in place]
        curved, steps = not is_linear(self.recipe), len(place)
        # of each a gradient at every step is kept
        most = int(MEMORY / 8 / (4 * max(steps, 1) * self.sent.size))
        watched = max(1, min(self.options.watched, most))

        def trace(step: int, theta: Floats, slope: Floats) -> None:
            j = place[step]
            path[j] += theta.sum(axis=0) / (len(chosen) * len(self.groups[j]))
            if curved and sum(map(len, slopes[step])) < watched:
                slopes[step].append(slope[:watched].astype(np.float32))

        visited: list[Indices] = []
        ends = self.ends(chosen, rng, trace, visited)
        watched_slopes = np.zeros((steps, 1, 1))
        if curved:
            watched_slopes = np.stack([np.concatenate(each)[:watched] for each in slopes])
        response = responses(self.recipe, self.sent, watched_slopes)
        parts = []
        for group, theta in zip(self.groups, path, strict=True):
            records = self.batches[int(group[0]) if self.order is not None else 0]
            size = self.candidates.members if self.order is None else len(records)
            scale = np.broadcast_to(response[group].sum(axis=0) / size, theta.shape)
            parts.append(Part(records, theta.astype(np.float32), scale.astype(np.float32)))
        return Trained(ends, parts, np.concatenate(visited) if visited else None)

    def columns(
        self, parts: Sequence[Part], which: Indices, records: Indices | None = None
    ) -> Single:
        """What each candidate of each record adds (n, K, R) in the coordinates ``which``; of these
        records, in ascending order."""
        asked = np.arange(self.candidates.records) if records is None else records
        # record by record last, as the rows' columns lie in memory
        made = np.zeros((len(self.candidates.present), len(which), len(asked)), np.float32)
        some = max(1, int(MEMORY / 64 / self.sent.size))  # records whose whole gradients are held
        private = self.recipe.private
        for part in parts:
            there = np.flatnonzero(np.isin(asked, part.records))
            for k in np.flatnonzero(self.candidates.present):
                inputs, labels = self.candidates.inputs[k], self.candidates.labels[k]
                for at in np.split(there, range(some, len(there), some)):
                    x, y = (a[asked[at]].astype(np.float32) for a in (inputs, labels))
                    rows = self.net.rows(part.theta, x, y)
                    rows = rows if private is None else rows.clipped(private.clip)
                    add = rows.columns(which).astype(np.float32).T * part.scale[which, None]
                    made[k][:, at if len(at) < len(asked) else slice(None)] += add
        return np.ascontiguousarray(made.transpose(2, 0, 1))

    def telling(self, parts: Sequence[Part], most: int, spread: Array | float = 1.0) -> Indices:
        """The coordinates in which candidates of some records differ most, in units of what else
        moves them (variances)."""
        some = np.random.default_rng(0).permutation(self.candidates.records)[:64]
        few = parts[:: max(1, len(parts) // 3)]
        made = self.columns(few, np.arange(self.sent.size), np.sort(some))
        apart = made[:, 1:] - made[:, :1]
        power = np.einsum("nkr,nkr->r", apart, apart, dtype=np.float64) / spread
        live = np.flatnonzero(power > 0)
        return np.sort(live[np.argsort(-power[live], kind="stable")[:most]])


class Mixing(Trajectory):
    """Records that change each other's outputs (batch normalisation) have no gradient of their own:
    each other candidate is put in a record's place, and that client is trained."""

    def trained(self, chosen: Indices, rng: np.random.Generator | None = None) -> Trained:
        scale = np.ones(1, np.float32)
        parts = [Part(one, self.sent.astype(np.float32), scale) for one in chosen]
        return Trained(self.ends(chosen), parts, None)

    def columns(
        self, parts: Sequence[Part], which: Indices, records: Indices | None = None
    ) -> Single:
        values, n, _ = self.candidates.inputs.shape
        asked = np.arange(n) if records is None else records
        made = np.zeros((len(asked), values, len(which)))
        for part in parts:
            now = part.records
            end = self.ends(now[None])[0, which].astype(np.float64)
            for at, i in enumerate(asked):
                others = np.flatnonzero(np.arange(values) != now[i])
                swapped = np.where(np.arange(n) == i, others[:, None], now)
                made[at, others] += (self.ends(swapped)[:, which] - end) / len(parts)
        return made.astype(np.float32)


def responses(recipe: Recipe, sent: Floats, slopes: Floats) -> Array:
    """Derivatives of the returned model by each step's gradient, mean over clients: (T, P), or
    (T, 1) of a rule that answers alike at every coordinate. slopes: (T, S, P), the gradients."""
    if is_linear(recipe):  # what a gradient of 1 at one of the steps leads to, from 0
        return np.asarray(_returned(recipe, np.zeros(len(slopes)), np.eye(len(slopes))))[:, None]
    with needs("torch"):
        import torch

    parts = []
    # so many coordinates are differentiated at once, all of them where a norm mixes them
    some = sent.size if recipe.clip_norm else max(1, int(MEMORY / 64 / slopes[..., 0].size))
    for begin in range(0, sent.size, some):
        part = slopes[..., begin : begin + some]
        # entry by entry, so that the derivative of the sum of all entries is each one's own
        given = torch.tensor(part, dtype=torch.float64, requires_grad=True)
        start = np.broadcast_to(sent[begin : begin + some], part.shape[1:])
        theta = torch.tensor(start.astype(np.float64))
        (made,) = torch.autograd.grad(_returned(recipe, theta, given).sum(), given)
        # where a gradient is exactly zero at every step a square root has no slope: nothing moves
        parts.append(torch.nan_to_num(made, 0.0, 0.0, 0.0).mean(dim=1).numpy())
    return np.concatenate(parts, axis=1)


def _returned(recipe: Recipe, theta: Any, slopes: Any) -> Any:
    """The model after steps with these gradients."""
    rule = rule_of(recipe)
    state = rule.init(theta)
    for slope in slopes:
        step, state = rule.update(slope, state, theta)
        theta = theta + step
    return theta


@dataclass(frozen=True)
class States:
    """What may be unknown of a record: which candidate it is, and in which segment it was used.

    candidate, position: (Z,) of every state, the first the reference; chances: of the positions, of
    which there is one where the order is all noise. Absence is the state without a position (-1).
    """

    candidate: Indices
    position: Indices
    chances: Array

    @property
    def positions(self) -> int:
        return len(self.chances)

    def prior(self, belief: Array) -> Array:
        """Probabilities (n, Z) from those of the candidates (n, K)."""
        chances = np.where(self.position < 0, 1.0, self.chances[self.position])
        return np.asarray(belief[:, self.candidate] * chances)

    @property
    def kinds(self) -> Array:
        """The candidate of every state, as columns (Z, K) of zeros and ones."""
        return np.eye(int(self.candidate.max()) + 1)[self.candidate]

    @property
    def sized(self) -> bool:
        """Is the first candidate there in any case, in a size that is unknown?"""
        return bool(self.position[0] >= 0 and self.positions > 1)

    def points(self, sizes: Array) -> Array:
        """Where the states are (Z, c), the first at zero: coefficients of a record's columns.
        Positions multiply what a record adds by ``sizes``; the columns are the first candidate's,
        where it adds anything and its size is unknown, and the others' differences to it."""
        size = np.where(self.position < 0, 0.0, sizes[self.position])[:, None]
        made = size * self.kinds[:, 1:]
        if self.sized:
            made = np.hstack([size, made])
        return np.asarray(made - made[0])

    def given(self, probabilities: Array, points: Array) -> tuple[Array, Array]:
        """Means (n, c, K) of the states' points given each candidate; and columns (n, c, c) whose
        products are what these leave of the covariance."""
        kinds = self.kinds
        sums = np.maximum(probabilities @ kinds, 1e-300)
        means = points.T @ ((probabilities / sums[:, self.candidate])[:, :, None] * kinds)
        apart = (points.T - means[:, :, self.candidate]) * np.sqrt(probabilities)[:, None]
        values, axes = np.linalg.eigh(apart @ np.swapaxes(apart, 1, 2))
        return means, axes * np.sqrt(np.maximum(values, 0.0))[:, None]

    def of(self, candidates: Encoded, chosen: Indices, order: Indices | None) -> Indices:
        """The states (S, n) of clients with these candidates that visited their records so."""
        position = np.zeros_like(chosen)
        if self.positions > 1:
            assert order is not None
            counts = np.rint(self.chances * candidates.members).astype(np.int64)
            place = np.empty_like(order)
            visited = np.repeat(np.arange(self.positions), counts)
            np.put_along_axis(place, order, np.broadcast_to(visited, order.shape), axis=1)
            np.put_along_axis(position, candidates.rows(chosen), place, axis=1)
        # states are in the order of the candidates, each one's in that of the positions
        return np.asarray(np.searchsorted(self.candidate, chosen) + position)


def states_of(
    recipe: Recipe, candidates: Encoded, options: LinearOptions = DEFAULT
) -> list[States]:
    """What of the order may be decoded along: nothing; of one epoch also the segment in which a
    record was used (or none, where a last batch that is not full is dropped)."""
    kinds, groups = [np.ones(1)], segments(recipe, candidates.members, options)
    few = candidates.present.sum() <= options.candidates and recipe.private is None
    if few and recipe.epochs == 1 and len(groups) > 1:
        used = np.cumsum([len(group) for group in groups]) * (recipe.batch_size or 1)
        ends = [0, *np.minimum(used, candidates.members), candidates.members]
        counts = np.diff(ends)
        kinds.append(counts[: len(groups) + (counts[-1] > 0)] / candidates.members)
    made = []
    for chances in kinds:
        each = [np.arange(len(chances)) if there else -np.ones(1) for there in candidates.present]
        candidate = np.repeat(np.arange(len(each)), [len(positions) for positions in each])
        made.append(States(candidate, np.concatenate(each).astype(np.int64), chances))
    return made


def coordinates(candidates: Encoded, options: LinearOptions = DEFAULT) -> int:
    """How many coordinates of the model are used at most: as many as say more than they cost."""
    values, n, _ = candidates.inputs.shape
    wanted = max(options.fewest, options.equations * n * (values - 1))
    return int(min(wanted, options.numbers / n, MEMORY / (32 * n * values)))


@dataclass(frozen=True)
class Linearised:
    """Rounds at a belief, in units of the noise, along the directions in which records differ most.

    rows: (n c, r), record-major, and points: (Z, c), their coefficients in every state. totals:
    (1 + H, r), the message's and those of held-out simulated clients, whose states are truth
    (H, n), each less what simulated clients make on average; squares: (1 + H,), of all directions.
    counted: equations among these that say how many records there are; fitted: simulated clients
    that gave the noise its shape.
    """

    rows: Array
    points: Array
    totals: Array
    squares: Array
    truth: Indices
    counted: int
    fitted: int

    def __add__(self, other: Linearised) -> Linearised:
        """Rounds stack, as their noises are independent."""
        rows, totals = _strongest(
            np.hstack([self.rows, other.rows]), np.hstack([self.totals, other.totals])
        )
        return replace(self, rows=rows, totals=totals, squares=self.squares + other.squares)


def linearise(
    at: Trajectory,
    message: tuple[Floats, Array],
    clients: tuple[Indices, int, float],
    ways: Sequence[States],
    rng: np.random.Generator,
) -> list[Linearised]:
    """A returned model (P,), with the standard deviation (P,) of its rounding and noise, as a
    linear measurement of the state of each record: one for each of the ``ways`` to tell states.

    clients: candidates (S, n) of simulated clients; how many of them, the last, are held out; and
    the standard deviation of the noise that a defence puts on their updates.
    """
    (returned, rounding), (chosen, held, declared), options = message, clients, at.options
    done = at.trained(chosen, rng)
    most = coordinates(at.candidates, options)
    apart = done.ends - done.ends.mean(axis=0)
    spread = np.einsum("sp,sp->p", apart, apart) / len(apart) + rounding**2
    which = at.telling(done.parts, most, spread)
    columns = at.columns(done.parts, which)
    columns[:, 1:] -= columns[:, :1]
    ends = done.ends[:, which].astype(np.float64)
    ends += rng.normal(0.0, declared, ends.shape) if declared else 0.0
    fitted = len(chosen) - held

    def measured(states: States) -> Linearised:
        truth = states.of(at.candidates, chosen, done.order)
        points = states.points(_sizes(at, done.parts, which, states))
        single = (columns if states.sized else columns[:, 1:]).reshape(-1, len(which))
        does = points.astype(np.float32)[truth].reshape(len(truth), -1) @ single
        missed = ends - does
        centre, early = missed.mean(axis=0), missed[:fitted].mean(axis=0)
        sd = np.sqrt(missed.var(axis=0, ddof=1) + rounding[which] ** 2 / options.own)
        white = whitening((missed[:fitted] - early) / np.sqrt(fitted - 1), sd, options.own)
        totals = np.vstack([returned[which] - centre, ends[fitted:] - early])
        rows, totals = (white(part) / np.sqrt(options.own) for part in (single, totals))
        counted = int(states.sized or not at.candidates.present[0])
        if counted:  # how much all records add up to is known, whoever they are and whenever used
            row = np.eye(points.shape[1])[0] if states.sized else np.ones(points.shape[1])
            total = (points @ row)[truth[0]].sum() / options.counted
            rows = np.column_stack([rows, np.tile(row / options.counted, at.candidates.records)])
            totals = np.column_stack([totals, np.full(1 + held, total)])
        squares = np.einsum("sr,sr->s", totals, totals)
        rows, totals = _strongest(rows, totals, options)
        return Linearised(rows, points, totals, squares, truth[fitted:], counted, fitted)

    return [measured(states) for states in ways]


def _sizes(at: Trajectory, parts: Sequence[Part], which: Indices, states: States) -> Array:
    """By what each position multiplies what a record adds in expectation, on the whole."""
    if states.positions == 1:
        return np.ones(1)
    some = np.arange(at.candidates.records)[:64]
    present = at.candidates.present
    means = [at.columns([part], which, some)[:, present].mean(axis=1) for part in parts]
    shares = np.array([np.vdot(mean, sum(means)) for mean in means])
    sizes = np.zeros(states.positions)  # who is in a batch that is dropped adds nothing
    sizes[: len(shares)] = shares / shares.sum() / states.chances[: len(shares)]
    return sizes


def _strongest(rows: Array, totals: Array, options: LinearOptions = DEFAULT) -> tuple[Array, Array]:
    """Rows (N, R) and totals (T, R) along the directions in which the rows are largest: above the
    floor, and no more than sweeps can afford."""
    wide = rows.shape[1] > rows.shape[0]
    inner = rows @ rows.T if wide else rows.T @ rows
    values, axes = linalg.eigh(inner, driver="evd", check_finite=False)
    most = int((options.operations / max(len(rows), 1)) ** 0.5)
    used = slice(max(int(np.searchsorted(values, FLOOR**2)), len(values) - most), None)
    axes = axes[:, used]
    if wide:  # inner products of the rows with their own axes need no axes
        axes = axes / np.sqrt(values[used])
        return inner @ axes, (totals @ rows.T) @ axes
    return rows @ axes, totals @ axes
