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
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.attacks.by_simulation import Answer
from overheard.decoding.descent import descended
from overheard.decoding.limits import NORMAL_MEDIAN, NUMBERS
from overheard.decoding.ridge import moment_sites, tilt
from overheard.programs.course import Batches, Course, OneAdamStep, course_of
from overheard.programs.recipe import Recipe
from overheard.programs.simulated import Candidates
from overheard.transcript.knowledge import Link

Array = NDArray[np.float64]
Choice = NDArray[np.int64]
Single = NDArray[np.float32]
Wire = NDArray[np.floating[Any]]

EQUATIONS = 8
"""Coordinates an unknown that are used at least, those that say most."""
FEWEST, MOST, WATCHED = 64, 128, 4
"""Clients drawn from a belief: at first, at most, and those along whose paths columns are made."""
_PASSES = 48  # Adam, five epochs on 1,000 records or one on 2,000, takes a dozen or two
_POLISH = 12  # rounds of single changes: each mends at least one record
_FURTHEST = 1 / 20  # share of the records in which they are made to differ at most
_KEPT = 0.25  # of a belief, in the next: passes that jump are surer than they are right
_DIFFER = 2.0  # records in which clients drawn from a belief differ from the likeliest, at least
_LIKE_EACH = 0.3  # of the covariance of what columns miss, how much is taken as uncorrelated
_STRAYS = 1e-4  # of the median variance of what columns miss, the least that a coordinate has
_TAILS = 4.0  # degrees of freedom of the residual's Student distribution
_SINGLE = 1e-6  # what single precision leaves of a sum of squares, relative to the largest
_FEW = 0.03  # prior variance of a change at the hard answer
_PROVEN, _NEARLY_ALL = 8.0, 0.9  # units in the last place within which a proven answer's replay
# must be, at nearly all coordinates: where a gradient is as small as its rounding, a step of Adam
# does not repeat in another order of additions
_ONES = 48  # single changes that are tried beside several at once
_LOOKED_AT = 5000  # pairs of changes
_BITS, _UNLIKELY = 4000, 15.0  # coordinates whose last bits are looked at; e to the minus that is
# the chance that a change leaves as few of them different as there are
_SHARPEST = 300.0  # what the records do to a coordinate, in units of its noise: more precision
# than single precision can use together with the other coordinates'
_MOVED = 0.02  # share of the coordinates, beyond those that differ, that a change must move


class Replay:
    """Training on known batches: replays tell whether an answer is right.

    orders: (epochs, n) for every round of the link; none of full batches.
    """

    def __init__(
        self,
        link: Link,
        recipe: Recipe,
        candidates: Candidates,
        prior: Array,
        ties: NDArray[np.intp],
        orders: Sequence[Choice] = (),
    ) -> None:
        self.link, self.prior, self.candidates = link, prior, candidates
        known: Sequence[Choice | None] = orders or [None] * len(link)
        self.courses = [
            course_of(recipe, sent, returned, candidates, order)
            for sent, returned, order in zip(link.sent, link.returned, known, strict=True)
        ]
        self.lines = [course for course in self.courses if isinstance(course, OneAdamStep)]
        self.ties = _told_apart(ties, [course.batches for course in self.courses])
        self.rng = np.random.default_rng(0)
        some = candidates.drawn(prior, WATCHED, self.rng)
        self.which = [_telling(course, some) for course in self.courses]
        self.place = self._taken(np.spacing(np.abs(link.returned)))
        self.returned = self._taken(link.returned)
        self.values = prior.shape[1]

    def answer(self) -> Answer | None:
        """The proven answer, or None."""
        if self.lines:
            return self._straight()
        belief, clients, differ = self.prior, FEWEST, _DIFFER
        best, least = self._hard(belief), np.inf
        for _ in range(_PASSES):
            found = self._posterior(belief, clients)
            choice = self._hard(found)
            if clients == MOST and np.array_equal(choice, best):
                choice, left = self._polished(best, least)
                found = np.eye(self.values)[choice]
            else:
                left = float(self._left(choice[None])[0])
            if left < least:
                best, least, differ = choice, left, max(differ / 2, _DIFFER)
                if self._done(best, least):
                    break
            elif clients < MOST:
                clients *= 2
            elif differ < _FURTHEST * len(belief):
                differ *= 2  # sure of what is wrong: clients that differ more see further
            else:
                break
            unsure = max(differ / len(belief), float(1 - found.max(axis=1).mean()) / 2)
            belief = _opened(_KEPT * belief + (1 - _KEPT) * found, unsure)
        return self._proven(self._polished(best, least)[0])

    def _straight(self) -> Answer | None:
        """One step of Adam: a Gaussian solve, and the changes that lower its residual."""
        found = self._solved(*self._on_line(self._hard(self.prior)))
        choice = self._hard(found)
        columns, residual, _ = self._on_line(choice)
        choice = descended(choice, *_products(columns, residual), self.candidates.present)
        return self._proven(choice, found)

    def _on_line(self, choice: Choice) -> tuple[Single, Single, Array]:
        """As `_measured`, at an answer: rounding is the only noise, and its size is known."""
        columns = self._columns(choice[None])
        reach = np.sqrt(np.einsum("nr,nr->r", columns, columns, dtype=np.float64))
        sd = np.maximum(self._taken([line.doubt for line in self.lines]), reach / _SHARPEST)
        left = self._taken([line.unexplained(choice) for line in self.lines]) / sd
        white = columns / sd.astype(np.float32)
        return white, left.astype(np.float32), np.eye(self.values)[choice][:, 1:].ravel()

    def first_left(self) -> float:
        """What the answer of a first, rough pass leaves: by far the least under the right order."""
        found = self._posterior(self.prior, FEWEST // 4)
        return float(self._left(self._hard(found)[None])[0])

    def repeats(self, choice: Choice) -> bool:
        """Does the replay of an answer agree with the message to rounding?"""
        return _agrees(np.abs(self._apart(choice[None])[0]))

    def _done(self, choice: Choice, left: float) -> bool:
        """Is there nothing left, or is it rounding and no record could be otherwise?"""
        if not left:
            return True
        found = self._proven(choice)
        return found is not None and not found.notes["unseen_records"]

    def _taken(self, models: Sequence[Wire] | Wire) -> Array:
        """The coordinates that are used of a model (..., P) of every round, one after the other."""
        used = [model[..., which] for model, which in zip(models, self.which, strict=True)]
        return np.concatenate(used, axis=-1).astype(np.float64)

    def _columns(self, chosen: Choice) -> Single:
        """What each candidate of each record adds (n (K - 1), R), averaged over clients (S, n)."""
        made = [
            course.columns(course.parts(chosen), which).reshape(-1, len(which))
            for course, which in zip(self.courses, self.which, strict=True)
        ]
        return np.concatenate(made, axis=1)

    def _measured(self, belief: Array, clients: int) -> tuple[Single, Single, Array]:
        """Whitened columns (n (K - 1), R), what the message is beyond the mean of clients drawn
        from the belief (R,), and the mean of their records (n (K - 1),).

        What the columns miss of those clients' ends (signs of early steps, units that few records
        switch on, what is done through later gradients) is noise, and these clients show its
        covariance.
        """
        chosen = self.candidates.drawn(belief, clients, self.rng)
        ends = self._taken([course.ends(chosen) for course in self.courses])
        columns = self._columns(chosen[:WATCHED])
        each = np.eye(self.values)[chosen][:, :, 1:].reshape(clients, -1)
        mean, centre = each.mean(axis=0), ends.mean(axis=0)
        missed = (ends - centre - ((each - mean) @ columns)) / np.sqrt(clients - 1)
        spread = np.einsum("sr,sr->r", missed, missed)
        # where none of these clients strays a message still may
        sd = np.sqrt(spread + _STRAYS * np.median(spread) + self.place**2)
        common = missed / sd * np.sqrt(1 - _LIKE_EACH)
        _, size, basis = np.linalg.svd(common, full_matrices=False)
        shrunk = 1 - np.sqrt(_LIKE_EACH / (_LIKE_EACH + size**2))

        def white(rows: Any) -> Single:
            made = (rows / sd).astype(np.float32)
            return np.asarray(made - ((made @ basis.T) * shrunk).astype(np.float32) @ basis)

        basis, sd = basis.astype(np.float32), sd.astype(np.float32)
        residual = white(self.returned - centre)
        # a message strays further than these clients: by how much, and where, it says itself
        middle = max(float(np.median(np.abs(residual))) / NORMAL_MEDIAN, 1e-12)
        weight = np.sqrt((_TAILS + 1) / (_TAILS + (residual / middle) ** 2)) / middle
        return white(columns) * weight, residual * weight, mean

    def _posterior(self, belief: Array, clients: int) -> Array:
        """Probabilities by one robust Gauss-Newton step."""
        return self._solved(*self._measured(belief, clients))

    def _solved(self, columns: Single, residual: Single, mean: Array) -> Array:
        """A Gaussian solve with the prior's moments, in which each record's own is then replaced by
        the discrete prior (as rung 1 does it)."""
        gram, told = _products(columns, residual)
        told = told + gram @ mean
        precision, shift = moment_sites(self.prior)
        n, free = shift.shape
        blocks = gram.reshape(n, free, n, free)
        blocks[np.arange(n), :, np.arange(n)] += precision
        inverse = _inverse(gram)
        mean = (inverse @ (told + shift.ravel())).reshape(n, free)
        own = np.linalg.inv(inverse.reshape(n, free, n, free)[np.arange(n), :, np.arange(n)])
        return tilt(self.prior, own - precision, np.einsum("nkl,nl->nk", own, mean) - shift)

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

    def _apart(self, chosen: Choice) -> Array:
        """What replays of answers (S, n) leave where records tell, in units of the last place."""
        ends = self._taken([course.ends(chosen) for course in self.courses])
        return np.asarray((self.returned - ends) / self.place)

    def _left(self, chosen: Choice) -> Array:
        """How much that is (S,), a few coordinates that are far off counting little more than
        others."""
        return np.asarray(np.log1p(self._apart(chosen) ** 2).mean(axis=1))

    def _polished(self, choice: Choice, left: float) -> tuple[Choice, float]:
        """The changes that clients who differ from the answer in a few records ask for, as long as
        the best of them lower the residual of a real replay."""
        for _ in range(_POLISH):
            if not left:
                break
            tried = self._better(choice)
            every = self._left(tried)
            if every.min(initial=np.inf) >= left * (1 - 1e-9):
                break
            choice, left = tried[int(every.argmin())], float(every.min())
        return choice, left

    def _changes(
        self, choice: Choice, columns: Single
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], Single]:
        """Every change of one record (records, candidates) and what it does (changes, R)."""
        n = len(choice)
        full = np.zeros((n, self.values, columns.shape[1]), np.float32)
        full[:, 1:] = columns.reshape(n, -1, columns.shape[1])
        record, other = np.nonzero(np.arange(self.values) != choice[:, None])
        return record, other, full[record, other] - full[record, choice[record]]

    def _better(self, choice: Choice) -> Choice:
        """Answers (S, n) to try: the best 2, 4, ... changes together, and the best ones alone."""
        each = np.eye(self.values)[choice]
        columns, residual, mean = self._measured(_opened(each, _DIFFER / len(each)), MOST)
        residual = residual - (each[:, 1:].ravel() - mean).astype(np.float32) @ columns
        record, other, change = self._changes(choice, columns)
        gram, told = _products(change, residual)
        gram[np.diag_indices(len(gram))] += 1 / _FEW
        inverse = _inverse(gram)
        own = 1 / np.diagonal(inverse)
        # log odds of each change, its own prior taken out: of one that hardly shows they are even,
        # and it is tried before those that would show and do not
        odds = own * (inverse @ told) - (own - 1 / _FEW) / 2
        order = np.argsort(-odds, kind="stable")
        order = order[np.sort(np.unique(record[order], return_index=True)[1])]
        together = 2 ** np.arange(1, max(int((odds > 0).sum()), 1).bit_length())
        made = [self._with(choice, record, other, order, int(count)) for count in together]
        made += [self._with(choice, record, other, order[at:], 1) for at in range(_ONES)]
        return np.array([one for one in made if not np.array_equal(one, choice)])

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

    def _proven(self, choice: Choice, before: Array | None = None) -> Answer | None:
        """The answer, where its replay agrees to rounding. Records of which a change would go
        unnoticed keep what was known of them before (n, K), the prior if nothing else was."""
        apart = np.abs(self._apart(choice[None])[0])
        if not _agrees(apart):
            return None
        record, _, change = self._changes(choice, self._columns(choice[None]))
        # how many coordinates a change moves, not how far: where Adam divides by almost nothing a
        # few go very far, and as many may differ in a proven answer
        far = 2 * _PROVEN
        moves = (change / self.place).astype(np.float32)
        white = np.clip(moves, -far, far)
        both = white @ white.T
        alone = np.diagonal(both).copy()
        both = 2 * both + alone[:, None] + alone[None, :]
        alike = self.ties[record]  # swapping records alike changes nothing, and is not asked
        both[alike[:, None] == alike[None, :]] = np.inf
        least = (float((apart > _PROVEN).sum()) + _MOVED * len(apart)) * far**2
        # what is cut off on both sides seems to cancel: of such pairs the sum itself is looked at
        close = np.argwhere(np.triu(both <= least, 1))
        for one, two in close[:_LOOKED_AT]:
            sum_of = np.clip(moves[one] + moves[two], -far, far)
            both[one, two] = both[two, one] = sum_of @ sum_of
        noticed = np.minimum(alone, both.min(axis=1)) > least
        if not noticed.all():
            noticed |= _bits_changed(moves, apart, alike)
        seen, known = np.ones(len(choice), dtype=bool), self.prior if before is None else before
        np.logical_and.at(seen, record, noticed)
        probabilities = np.where(seen[:, None], np.eye(self.values)[choice], known)
        return Answer(
            tied(probabilities, self.ties),
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


def tied(probabilities: Array, ties: NDArray[np.intp]) -> Array:
    """Records alike share their probabilities."""
    sizes = np.bincount(ties)
    sums = np.stack([np.bincount(ties, p) for p in probabilities.T], axis=1)
    return np.asarray((sums / sizes[:, None])[ties])


def _told_apart(ties: NDArray[np.intp], rounds: Sequence[Batches]) -> NDArray[np.intp]:
    """Records alike that are never in different batches: an order tells others apart."""
    for batches in rounds:
        for batch in batches:
            inside = np.zeros(len(ties), dtype=np.intp)
            inside[batch] = 1
            ties = np.unique(ties * 2 + inside, return_inverse=True)[1].astype(np.intp)
    return ties


def _opened(belief: Array, least: float) -> Array:
    """The belief with no candidate below a probability: clients drawn from it differ."""
    belief = np.maximum(belief, least)
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


def _bits_changed(moves: Single, apart: Array, alike: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Changes (c,) that, alone or with any other, would have changed the last bits of the message.

    A change that moves a coordinate by a tenth of a unit in the last place changes what it is
    rounded to one time in ten.
    """
    some = np.argsort(-np.abs(moves).sum(axis=0), kind="stable")[:_BITS]
    moves, differ = moves[:, some], float((apart[some] >= 0.5).sum())

    def told(bits: Single) -> NDArray[np.bool_]:
        """Would so many of them that change on the average have left as few that differ?"""
        changed = np.minimum(np.abs(bits), 1).sum(axis=1)
        return np.asarray(changed - differ > np.sqrt(2 * _UNLIKELY * changed))

    noticed = told(moves)
    for one in range(len(moves) - 1):
        quiet = ~told(moves[one + 1 :] + moves[one]) & (alike[one + 1 :] != alike[one])
        noticed[one] &= not quiet.any()
        noticed[one + 1 :] &= ~quiet
    return np.asarray(noticed)


def _agrees(apart: Array) -> bool:
    """Is that rounding, nearly everywhere?"""
    return bool(len(apart)) and float((apart <= _PROVEN).mean()) >= _NEARLY_ALL


def _telling(course: Course, clients: Choice) -> Choice:
    """The coordinates in which the candidates of some records differ most, of clients (S, n)."""
    n = course.candidates.inputs.shape[1]
    some = np.sort(np.random.default_rng(0).permutation(n)[:64])
    made = course.columns(course.parts(clients), np.arange(len(course.sent)), some)
    power = np.einsum("nkr,nkr->r", made[some], made[some])
    live = np.flatnonzero(power > 0)
    unknowns = n * made.shape[1]
    most = max(EQUATIONS * unknowns, NUMBERS // unknowns)
    if len(live) > most:
        live = np.sort(live[np.argsort(-power[live], kind="stable")[:most]])
    return np.asarray(live)
