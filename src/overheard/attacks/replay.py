"""Which candidate is each record, if nothing in a client's training is random?

The answer is a point whose replay reproduces the returned model. Clients drawn from the belief are
trained like the client itself: the message is linearised along their paths, and what the line
misses of *their* ends is the noise with which it is solved. The next belief is narrower, and so is
that noise, until the answer is exact; a few last changes are tried by replay. An answer whose
replay agrees with the message to rounding, where no change of one record or of two together could
go unnoticed, is *proven*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.attacks.client import Client
from overheard.decoding.gaussian import match, moment_sites, tilt
from overheard.decoding.max_entropy import Posterior
from overheard.decoding.measurement import NORMAL_MEDIAN, NUMBERS
from overheard.decoding.noise import whitening
from overheard.decoding.posterior import descended
from overheard.decoding.ties import group_means
from overheard.programs.linearise import Mixing, Trajectory
from overheard.programs.networks import network
from overheard.programs.rules import is_linear

Array = NDArray[np.float64]
Choice = NDArray[np.int64]
Single = NDArray[np.float32]
Floats = NDArray[np.floating[Any]]

_SINGLE = 1e-6  # what single precision leaves of a sum of squares, relative to the largest


@dataclass(frozen=True)
class ReplayOptions:
    """Settings of the search for an answer whose replay is the message.

    equations: coordinates an unknown that are used at least, those that say most.
    fewest, most, watched: clients drawn from a belief: at first, at most, and those along whose
        paths columns are made.
    stale: passes that lower nothing before it is given up: every other one does, until the end.
    inertia: share of a belief in the next: passes that jump are overconfident.
    differ, furthest: records in which clients drawn from a belief differ from the likeliest, at
        least, and what share that may be: a wrong belief that is certain stays so; of more
        variance than that a record is in doubt.
    own: of the covariance of what columns miss, how much is taken as uncorrelated.
    strays: of the median variance of what columns miss, the least that a coordinate has.
    sweeps: over the records of one solve, each half the way.
    near: what an answer may leave, see `Replay._left`, for the line at it to say anything, and what
        a pass may leave more than the best to be believed.
    tails: degrees of freedom of the residual's Student distribution.
    proven, nearly_all: units in the last place within which a proven answer's replay must be, at
        nearly all coordinates: where a gradient is as small as its rounding, a step of Adam does
        not repeat in another order of additions.
    looked_at: pairs of changes that nearly cancel whose sum itself is looked at.
    unlikely: e to the minus that: how likely a change of a proven answer may be, on a line.
    sharpest: what the records do to a coordinate, in units of its noise: more precision than single
        precision can use together with the other coordinates'.
    some: share of the records that are proven, for an answer to be worth more than another's.
    moved: share of the coordinates, beyond those that differ, that a change must move.
    doubted, tried: of how few records a belief must be unsure for changes of the best answer to be
        tried, and how many.
    """

    equations: int = 8
    fewest: int = 64
    most: int = 128
    watched: int = 4
    stale: int = 8
    inertia: float = 0.25
    differ: float = 8.0
    furthest: float = 1 / 20
    own: float = 0.3
    strays: float = 1e-4
    sweeps: int = 8
    near: float = 8.0
    tails: float = 4.0
    proven: float = 8.0
    nearly_all: float = 0.9
    looked_at: int = 5000
    unlikely: float = 15.0
    sharpest: float = 300.0
    some: float = 0.5
    moved: float = 0.02
    doubted: int = 32
    tried: int = 64


DEFAULT = ReplayOptions()


class Replay:
    """Training on known batches: replays tell whether an answer is right.

    The first round of the client is used. order: (epochs, n) of its records; None: full batches.
    """

    def __init__(
        self, client: Client, order: Choice | None = None, options: ReplayOptions = DEFAULT
    ) -> None:
        self.options, self.prior, self.candidates = options, client.prior, client.encoded
        link, recipe = client.messages, client.recipe
        kind = Mixing if network(recipe).mixes else Trajectory
        self.at = kind(recipe, link.sent[0], self.candidates, order)
        self.straight = is_linear(recipe)
        self.ties = _separated(client.ties, self.at.batches)
        several = np.flatnonzero(np.bincount(self.ties) > 1)
        self.alike = [np.flatnonzero(self.ties == group) for group in several]
        self.rng = np.random.default_rng(0)
        some = self.candidates.drawn(self.prior, options.watched, self.rng)
        unknowns = client.candidates.unknowns
        most = max(options.equations * unknowns, NUMBERS // unknowns)
        self.which = self.at.telling(self.at.trained(some).parts, most)
        self.place = np.spacing(np.abs(link.returned[0, self.which])).astype(np.float64)
        self.returned = link.returned[0, self.which].astype(np.float64)
        self.values = self.prior.shape[1]

    def answer(self) -> Posterior | None:
        """The proven answer, or None."""
        belief, clients, stale, few = self.prior, self.options.fewest, 0, False
        best, least = self._hard(belief), np.inf
        while stale < self.options.stale:
            result = self._solved(*self._measured(belief, clients))  # one robust Gauss-Newton step
            tried = self._hard(result)[None]
            settled = _doubted(result) < self.options.doubted and stale > 0
            if settled:
                tried = np.append(tried, self._changed(best), axis=0)
            elif 0 < self._cost(tried)[0] < self.options.near:
                tried = np.append(tried, self._descended(tried[0])[None], axis=0)
            every = self._cost(tried)
            cost = float(every.min())
            if cost < least:
                best, least, stale = tried[int(every.argmin())], cost, 0
                if self._done(best, least):
                    break
            else:
                clients, stale = self.options.most, stale + 1
                if cost > least + self.options.near:
                    continue
            mixed = self.options.inertia * belief + (1 - self.options.inertia) * result
            # by turns: either way alone may stay where it is
            few = settled and not few
            belief = result if few else _opened(mixed, _doubted(result) / 2, self.options)
        return self._proven(best)

    def _descended(self, choice: Choice) -> Choice:
        """The answer after changes of one record or two, by the line at it."""
        columns, residual, _ = self._on_line(choice)
        return descended(choice, *_products(columns, residual), self.candidates.present)

    def _changed(self, choice: Choice) -> Choice:
        """The answers (S, n) with one record otherwise: by the line at it, those whose direction
        goes best with what this answer leaves, since of people nearly alike a solve is as certain
        as of anybody."""
        columns, residual, _ = self._on_line(choice)
        record, other, does = self._changes(choice, columns)
        present = self.candidates.present
        keeps = present[other] == present[choice[record]]  # as many members
        record, other, does = record[keeps], other[keeps], does[keeps]
        worth = (does @ residual) / np.sqrt(np.einsum("cr,cr->c", does, does) + 1e-30)
        best = np.argsort(-worth, kind="stable")[: self.options.tried]
        answers = np.repeat(choice[None], len(best), axis=0)
        answers[np.arange(len(best)), record[best]] = other[best]
        return np.append(answers, self._descended(choice)[None], axis=0)

    def _on_line(self, choice: Choice) -> tuple[Single, Single, Array]:
        """As `_measured`, at an answer: rounding is the only noise, and its size is known."""
        columns = self._columns(choice[None])
        reach = np.sqrt(np.einsum("nr,nr->r", columns, columns, dtype=np.float64))
        residual = self._apart(choice[None])[0] * self.place
        sd = np.maximum(self.place, reach / self.options.sharpest)
        white = columns / sd.astype(np.float32)
        return white, (residual / sd).astype(np.float32), np.eye(self.values)[choice][:, 1:].ravel()

    def _done(self, choice: Choice, cost: float) -> bool:
        """Is there nothing left, or is it rounding and no record could be otherwise?"""
        if not cost:
            return True
        result = self._proven(choice)
        return result is not None and not result.notes["unseen_records"]

    def _ends(self, chosen: Choice) -> Array:
        """What clients (S, n) return, in the coordinates that are used."""
        return self.at.ends(chosen)[:, self.which].astype(np.float64)

    def _columns(self, chosen: Choice) -> Single:
        """What each candidate of each record adds (n (K - 1), R), averaged over clients (S, n)."""
        made = self.at.columns(self.at.trained(chosen).parts, self.which)
        return (made[:, 1:] - made[:, :1]).reshape(-1, len(self.which))

    def _measured(self, belief: Array, clients: int) -> tuple[Single, Single, Array]:
        """Whitened columns (n (K - 1), R), what the message is beyond the mean of clients drawn
        from the belief (R,), and the mean of their records (n (K - 1),).

        What the columns miss of those clients' ends (signs of early steps, units that few records
        switch on, what is done through later gradients) is noise, and these clients show its
        covariance.
        """
        chosen = self.candidates.drawn(belief, clients, self.rng)
        ends = self._ends(chosen)
        columns = self._columns(chosen[: self.options.watched])
        each = np.eye(self.values)[chosen][:, :, 1:].reshape(clients, -1)
        mean, centre = each.mean(axis=0), ends.mean(axis=0)
        missed, apart = ends - centre - (each - mean) @ columns, each - mean
        # what the few in doubt do on average, these clients show: better than columns that leave
        # out what is done through later gradients
        doubted = np.flatnonzero(each.var(axis=0) > self.options.furthest)
        if 3 * len(doubted) <= clients:
            more = np.linalg.lstsq(apart[:, doubted], missed, rcond=None)[0]
            columns[doubted] += more
            missed -= apart[:, doubted] @ more
            clients -= len(doubted)
        missed /= np.sqrt(clients - 1)
        spread = np.einsum("sr,sr->r", missed, missed)
        # where none of these clients strays a message still may
        sd = np.sqrt(spread + self.options.strays * np.median(spread) + self.place**2)
        white = whitening(missed, sd, self.options.own, np.float32)
        residual = white(self.returned - centre)
        # a message strays further than these clients: by how much, and where, it says itself
        middle = max(float(np.median(np.abs(residual))) / NORMAL_MEDIAN, 1e-12)
        tails = self.options.tails
        weight = np.sqrt(tails + 1) / np.hypot(np.sqrt(tails) * middle, residual)
        return white(columns) * weight, residual * weight, mean

    def _solved(self, columns: Single, residual: Single, mean: Array) -> Array:
        """A Gaussian solve with the prior's moments, in which each record's own is then replaced by
        the discrete prior, and so are, a few times, the others'."""
        gram, cross = _products(columns, residual)
        cross = cross + gram @ mean
        n, each = len(self.prior), np.arange(len(self.prior))
        precision, shift = moment_sites(self.prior)
        # with more equations than needed the others' discreteness adds little, and makes errors
        # certain
        for _ in range(self.options.sweeps if len(residual) < 2 * shift.size else 1):
            whole = gram.copy().reshape(n, self.values - 1, n, self.values - 1)
            whole[each, :, each] += precision
            inverse = _inverse(whole.reshape(gram.shape))
            centre = (inverse @ (cross + shift.ravel())).reshape(shift.shape)
            own = np.linalg.inv(inverse.reshape(whole.shape)[each, :, each])
            cavity = own - precision, np.einsum("nkl,nl->nk", own, centre) - shift
            result = tilt(self.prior, *cavity)
            sites = match(result, *cavity)
            precision, shift = (precision + sites[0]) / 2, (shift + sites[1]) / 2
        return result

    def _hard(self, probabilities: Array) -> Choice:
        """One candidate a record; of records alike as many of each as are expected, and as many
        members as there are."""
        if self.candidates.present.all():
            made = probabilities.argmax(axis=1)
            for group in self.alike:
                share = probabilities[group].sum(axis=0)
                whole = np.floor(share).astype(np.intp)
                whole[np.argsort(whole - share)[: len(group) - whole.sum()]] += 1
                made[group] = np.repeat(np.arange(self.values), whole)
            return np.asarray(made)
        absent = int(np.flatnonzero(~self.candidates.present)[0])
        inside = probabilities.copy()
        inside[:, absent] = -1
        made = inside.argmax(axis=1)
        order = np.argsort(probabilities[:, absent], kind="stable")
        made[order[self.candidates.members :]] = absent
        return np.asarray(made)

    def _apart(self, chosen: Choice) -> Array:
        """What replays of answers (S, n) leave where records tell, in units of the last place."""
        return np.asarray((self.returned - self._ends(chosen)) / self.place)

    def _cost(self, chosen: Choice) -> Array:
        """How much that is (S,), a few coordinates that are far off counting little more than
        others."""
        return np.asarray(np.log1p(self._apart(chosen) ** 2).mean(axis=1))

    def _changes(
        self, choice: Choice, columns: Single
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], Single]:
        """Every change of one record (records, candidates) and what it does (changes, R)."""
        n = len(choice)
        full = np.zeros((n, self.values, columns.shape[1]), np.float32)
        full[:, 1:] = columns.reshape(n, -1, columns.shape[1])
        record, other = np.nonzero(np.arange(self.values) != choice[:, None])
        return record, other, full[record, other] - full[record, choice[record]]

    def _proven(self, choice: Choice) -> Posterior | None:
        """The answer, where its replay agrees to rounding. Records of which a change would go
        unnoticed keep the prior."""
        residual = self._apart(choice[None])[0]
        apart = np.abs(residual)
        if not len(apart) or (apart <= self.options.proven).mean() < self.options.nearly_all:
            return None  # more than rounding, or more than here and there
        record, _, change = self._changes(choice, self._columns(choice[None]))
        moves = (change / self.place).astype(np.float32)
        # how many coordinates a change moves, not how far: where Adam divides by almost nothing
        # a few go very far, and as many may differ in a proven answer
        far = 2 * self.options.proven
        differ = float((apart > self.options.proven).sum())
        least = (differ + self.options.moved * len(apart)) * far**2
        noticed = self._noticed(record, moves, np.zeros(len(apart)), least, far)
        if self.straight and not noticed.all():
            noticed |= self._noticed(record, moves, residual, 2 * self.options.unlikely, np.inf)
        seen = np.ones(len(choice), dtype=bool)
        np.logical_and.at(seen, record, noticed)
        if seen.mean() < self.options.some:
            return None
        probabilities = np.where(seen[:, None], np.eye(self.values)[choice], self.prior)
        notes: dict[str, float | int | str] = {
            "fit": "good",
            "proven": str(bool(seen.all())),
            "residual": float(np.median(apart)),
            "unseen_records": int((~seen).sum()),
            "rounds_used": 1,
        }
        p, unknowns = group_means(probabilities, self.ties), self.prior.size - len(self.prior)
        return Posterior(p, 0.0, unknowns, unknowns, 0, True, "replay", "", notes)

    def _noticed(
        self, record: NDArray[np.intp], change: Single, residual: Array, least: float, far: float
    ) -> NDArray[np.bool_]:
        """Would each change (c, R), alone or with any other, make the sum of squares of what is
        left (R,) larger by so much, no coordinate counting further than ``far``?"""
        cut = np.clip(change, -far, far)
        size = np.einsum("cr,cr->c", cut, cut)
        alone = size - 2 * (cut @ residual)
        both = 2 * (cut @ cut.T) + alone[:, None] + alone[None, :]
        alike = self.ties[record]  # swapping records alike changes nothing, and is not asked
        both[alike[:, None] == alike[None, :]] = np.inf
        # of changes that nearly cancel single precision has lost the sum, and what is cut off on
        # both sides seems to cancel: of such pairs the sum itself is looked at
        lost = both <= least + 100 * _SINGLE * (size[:, None] + size[None, :])
        for one, two in np.argwhere(np.triu(lost, 1))[: self.options.looked_at]:
            sum_of = np.clip(change[one].astype(np.float64) + change[two], -far, far)
            both[one, two] = both[two, one] = sum_of @ sum_of - 2 * sum_of @ residual
        return np.asarray(np.minimum(alone, both.min(axis=1)) > least)


def _separated(ties: NDArray[np.intp], batches: Sequence[Choice]) -> NDArray[np.intp]:
    """Records alike that are never in different batches: an order tells others apart."""
    for batch in batches:
        inside = np.zeros(len(ties), dtype=np.intp)
        inside[batch] = 1
        ties = np.unique(ties * 2 + inside, return_inverse=True)[1].astype(np.intp)
    return ties


def _doubted(belief: Array) -> float:
    """In how many records a client drawn from a belief differs from the likeliest one."""
    return float((1 - belief.max(axis=1)).sum())


def _opened(belief: Array, differ: float, options: ReplayOptions) -> Array:
    """The belief with no candidate below a probability: clients drawn from it differ."""
    n = len(belief)
    belief = np.maximum(belief, max(differ / n, min(options.differ / n, options.furthest)))
    return np.asarray(belief / belief.sum(axis=1, keepdims=True))


def _products(columns: Single, residual: Single) -> tuple[Array, Array]:
    """Inner products of the whitened columns with each other and with the residual."""
    upper = np.triu(linalg.blas.ssyrk(1.0, columns.T, trans=1).astype(np.float64))
    gram = upper + np.triu(upper, 1).T
    gram[np.diag_indices(len(gram))] += _SINGLE * float(np.diagonal(gram).max(initial=0.0))
    return gram, (columns @ residual).astype(np.float64)


def _inverse(gram: Array) -> Array:
    """Of a positive definite matrix."""
    made, _ = linalg.lapack.dpotri(linalg.lapack.dpotrf(gram, lower=1)[0], lower=1)
    return np.asarray(np.tril(made) + np.tril(made, -1).T)
