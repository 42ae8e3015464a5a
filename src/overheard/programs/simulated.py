"""Clients that are simulated to learn what a client's training does.

The listener knows the recipe and every candidate of a record (docs/decoders.md section 8). It
trains clients of its own from the model that was sent, on records drawn from what it believes: the
same training loop that the client ran, watched step by step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from overheard.errors import needs
from overheard.programs.program import Candidates
from overheard.programs.recipe import PrivateSteps, Recipe
from overheard.programs.records import encode_each
from overheard.programs.rules import is_linear, rule_of
from overheard.programs.training import Shards, batch_order, local_training

Array = NDArray[np.float64]
Wire = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]

STRETCHES = 4
"""Stretches of an epoch that are told apart, a smaller last batch not counted."""
MOST_STRETCHES = 12
"""Of all epochs together; of more epochs, some are taken together."""
RESPONDING = 4
"""Simulated clients along whose paths the rule is differentiated."""
MEMORY = 4e9
"""Bytes that decoding a round may take."""
BENT = 2
"""Simulated clients whose own paths say how far a record's contribution varies with the path."""


@dataclass(frozen=True)
class Encoded:
    """Candidates as a network sees them: inputs (K, n, d) and labels (K, n) under each of K.

    present (K,): candidates under which the record is the client's at all (the first may not be);
    members: how many records the client trains on.
    """

    inputs: Wire
    labels: Wire
    present: NDArray[np.bool_]
    members: int

    @property
    def unknowns(self) -> int:
        return int((len(self.labels) - 1) * self.labels.shape[1])

    def drawn(self, belief: Array, count: int, rng: np.random.Generator) -> Indices:
        """Candidates (count, n) of every record, drawn from the belief (n, K)."""
        draws = rng.random((count, len(belief), 1))
        chosen = (draws > belief.cumsum(axis=1)).sum(axis=2)
        chosen = np.minimum(chosen, belief.shape[1] - 1)
        if self.present.all():
            return np.asarray(chosen, dtype=np.int64)
        # exactly as many members as the client reported, at random as believed
        absent = int(np.flatnonzero(~self.present)[0])
        inside = np.clip(1 - belief[:, absent], 1e-12, 1 - 1e-12)
        keys = np.log(inside) - np.log1p(-inside) + rng.logistic(size=(count, len(belief)))
        order = np.argsort(-keys, axis=1)
        given = belief.copy()
        given[:, absent] = 0
        given /= np.maximum(given.sum(axis=1, keepdims=True), 1e-300)
        which = (rng.random((count, len(belief), 1)) > given.cumsum(axis=1)).sum(axis=2)
        made = np.full((count, len(belief)), absent, dtype=np.int64)
        rows = np.arange(count)[:, None]
        first = order[:, : self.members]
        made[rows, first] = np.minimum(which, belief.shape[1] - 1)[rows, first]
        return made

    def rows(self, chosen: Indices) -> Indices:
        """Which records (S, members) are a client's at all."""
        absent = ~self.present[chosen]
        return np.argsort(absent, axis=1, kind="stable")[:, : self.members]

    def shards(self, chosen: Indices, dtype: Any) -> Shards:
        """The records of clients whose candidates are ``chosen`` (S, n)."""
        count, rows = len(chosen), self.rows(chosen)
        picked = np.take_along_axis(chosen, rows, axis=1)
        return Shards(
            self.inputs[picked, rows].astype(dtype),
            self.labels[picked, rows].astype(dtype),
            np.full(count, self.members, dtype=np.int64),
        )


def encoded(recipe: Recipe, candidates: Candidates) -> Encoded:
    """What each record may be, as the network of a recipe sees it."""
    there = [setting for setting in candidates.settings if setting is not None]
    inputs = encode_each(recipe.encoding, candidates.known, there)
    tables = [table for table in candidates.tables if table is not None]
    labels = np.stack([recipe.target.encode_values(t[recipe.target.column]) for t in tables])
    absent = len(candidates.settings) - len(there)  # who is absent comes first, if at all
    inputs, labels = (np.concatenate([np.zeros_like(a[:absent]), a]) for a in (inputs, labels))
    return Encoded(inputs, labels, candidates.present, candidates.members)


@dataclass(frozen=True)
class Stretches:
    """Local steps taken together: ``groups[j]`` are step numbers, ``shares[j]`` the chance that a
    record falls into the stretch in its epoch, ``epochs[j]`` which (group of) epochs it is of,
    ``repeats[j]`` how many epochs that group has."""

    steps: int
    groups: tuple[Indices, ...]
    shares: Array
    epochs: Indices
    repeats: Array


def stretches(recipe: Recipe, members: int) -> Stretches:
    """The stretches of a client with so many records."""
    size = min(recipe.batch_size or members, members)
    batches = -(-members // size)
    if recipe.drop_last and members > size:
        batches = members // size
    sizes = np.full(batches, size)
    sizes[-1] = min(size, members - size * (batches - 1))
    odd = int(batches > 1 and sizes[-1] < size)
    most = MOST_STRETCHES if recipe.epochs == 1 else STRETCHES
    per = max(1, min(most, batches - odd))
    pieces = np.array_split(np.arange(batches - odd), per)
    pieces += [np.array([batches - 1])] * odd
    together = np.array_split(
        np.arange(recipe.epochs), max(1, min(recipe.epochs, MOST_STRETCHES // len(pieces)))
    )
    groups, shares, epochs, repeats = [], [], [], []
    for number, some in enumerate(together):
        for piece in pieces:
            groups.append((batches * some[:, None] + piece).ravel())
            shares.append(sizes[piece].sum() / members)
            epochs.append(number)
            repeats.append(len(some))
    return Stretches(
        batches * recipe.epochs,
        tuple(groups),
        np.array(shares),
        np.array(epochs),
        np.array(repeats, dtype=np.float64),
    )


@dataclass(frozen=True)
class Simulated:
    """Clients trained from the model that was sent: candidates (S, n), ends (S, P), the mean model
    (Q, P) of each stretch and the response (Q, P) of the returned model to its gradients, summed
    over the stretch's steps. paths (BENT, Q, P): the first clients' own. data: their records and
    orders; private: what bounds a record's gradient."""

    chosen: Indices
    ends: Wire
    path: Array
    response: Array
    paths: Wire
    data: Shards | None = None
    private: PrivateSteps | None = None


def simulate(
    recipe: Recipe,
    sent: Wire,
    candidates: Encoded,
    chosen: Indices,
    rng: np.random.Generator,
) -> Simulated:
    """Train clients whose candidates are ``chosen`` (S, n) from ``sent`` (P,)."""
    times = stretches(recipe, candidates.members)
    place = {int(step): j for j, group in enumerate(times.groups) for step in group}
    path = np.zeros((len(times.groups), sent.size))
    paths = np.zeros((BENT, *path.shape), np.float32)
    gradients: list[Wire] = []
    curved = not is_linear(recipe)
    # of each a gradient at every step is kept
    responding = max(1, min(RESPONDING, int(MEMORY / 8 / (4 * times.steps * sent.size))))

    def trace(step: int, theta: Wire, gradient: Wire) -> None:
        j = place[step]
        path[j] += theta.mean(axis=0) / len(times.groups[j])
        paths[: len(theta), j] += theta[:BENT] / len(times.groups[j])
        if curved:
            gradients.append(gradient[:responding].astype(np.float32))

    data = candidates.shards(chosen, sent.dtype)
    longest = data.inputs.shape[1]
    epochs = 0 if recipe.full_batch else recipe.epochs
    data = replace(data, orders=tuple(batch_order(data.sizes, longest, rng) for _ in range(epochs)))
    ends = local_training(recipe, sent, data, rng, trace=trace)
    if not curved:
        gradients = [np.zeros((1, 1))] * times.steps
    # coordinates that are differentiated at once: all of them where a norm mixes them
    some = sent.size if recipe.clip_norm else max(1, int(MEMORY / 64 / (times.steps * responding)))
    response = np.zeros((len(times.groups), gradients[0].shape[1]))
    for begin in range(0, response.shape[1], some):
        part = slice(begin, begin + some)
        steps = responses(recipe, sent[part], np.stack([g[:, part] for g in gradients]))
        response[:, part] = [steps[group].sum(axis=0) for group in times.groups]
    return Simulated(
        chosen, ends, path, np.broadcast_to(response, path.shape), paths, data, recipe.private
    )


def responses(recipe: Recipe, sent: Wire, slopes: Wire) -> Array:
    """Derivatives of the returned model by each step's gradient, mean over clients: (T, P), or
    (T, 1) of a rule that answers alike at every coordinate. slopes: (T, S, P)."""
    if is_linear(recipe):  # what a gradient of 1 at one of the steps leads to, from 0
        return np.asarray(_returned(recipe, np.zeros(len(slopes)), np.eye(len(slopes))))[:, None]
    with needs("torch"):
        import torch

    # entry by entry, so that the derivative of the sum of all entries is each one's own
    given = torch.tensor(slopes, dtype=torch.float64, requires_grad=True)
    theta = torch.tensor(np.broadcast_to(sent, slopes.shape[1:]).astype(np.float64))
    (made,) = torch.autograd.grad(_returned(recipe, theta, given).sum(), given)
    # where a gradient is exactly zero at every step a square root has no slope: nothing moves there
    return np.asarray(torch.nan_to_num(made, 0.0, 0.0, 0.0).mean(dim=1).numpy())


def _returned(recipe: Recipe, theta: Any, slopes: Any) -> Any:
    """The model after steps with these gradients."""
    rule = rule_of(recipe)
    state = rule.init(theta)
    for slope in slopes:
        step, state = rule.update(slope, state, theta)
        theta = theta + step
    return theta


def drawn(probabilities: Array, columns: Array, rng: np.random.Generator) -> Indices:
    """A candidate (m,) of each record, as probable as (m, K) says, that goes with its public
    columns (m, d): which way and how closely is drawn too.

    Secrets drawn record by record would go with nothing, which people's secrets seldom do, and
    what many records have in common does not average out of an update.
    """
    return placed(probabilities, columns, rng)[0]


def placed(probabilities: Array, columns: Array, rng: np.random.Generator) -> tuple[Indices, Array]:
    """As :func:`drawn`, with the place (m,) between 0 and 1 that each record has within."""
    apart = columns - columns.mean(axis=0)
    apart = apart / np.maximum(apart.std(axis=0), 1e-12)
    score = apart @ rng.normal(size=columns.shape[1])
    score = score / max(float(score.std()), 1e-12)
    close = rng.random()
    latent = close * score + np.sqrt(1 - close**2) * rng.normal(size=len(columns))
    level = norm.cdf(latent)
    above = np.cumsum(probabilities, axis=1)
    chosen = np.minimum((level[:, None] > above).sum(axis=1), probabilities.shape[1] - 1)
    each = np.arange(len(chosen))
    share = np.maximum(probabilities[each, chosen], 1e-12)
    place = 1 - (above[each, chosen] - level) / share
    return np.asarray(chosen, dtype=np.int64), np.clip(place, 1e-3, 1 - 1e-3)
