"""Which candidate is each record, if nothing in a client's training is random?

The answer is a point whose replay reproduces the returned model. Robust Gauss-Newton steps on what
a replay of the belief leaves come close; then the few changes that lower the residual of a real
replay are searched at the hard answer. An answer whose replay agrees with the message to rounding,
where no change of one record or of two together could go unnoticed, is *proven*.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.attacks.by_simulation import Answer
from overheard.decoding.ridge import moment_sites, tilt
from overheard.programs.course import Batches, Course, Part, batches_of, course_of
from overheard.programs.recipe import Recipe
from overheard.programs.simulated import Candidates
from overheard.transcript.knowledge import Link

Array = NDArray[np.float64]
Choice = NDArray[np.int64]
Single = NDArray[np.float32]

EQUATIONS = 8
"""Coordinates an unknown that are used at least, those that say most."""
MOST_NUMBERS = 60_000_000
"""Of all columns together, beyond which no more coordinates are used."""
_NEWTON, _POLISH = 8, 100  # passes of each kind at most
_TAILS = 4.0  # degrees of freedom of the residual's Student distribution
_SINGLE = 1e-6  # what single precision leaves of a sum of squares, relative to the largest
_MISTAKEN = 0.1, 0.3  # share of mistakes among the changes that are made at once
_FEW = 0.03  # prior variance of a change at the hard answer
_PROVEN, _NEARLY_ALL = 8.0, 0.9  # units in the last place within which a proven answer's replay
# must be, at nearly all coordinates: where a gradient is as small as its rounding, a step of Adam
# does not repeat in another order of additions
_ONES = 400  # single changes that are tried where several at once do not help
_LOOKED_AT = 5000  # pairs of changes
_BITS, _UNLIKELY = 4000, 15.0  # coordinates whose last bits are looked at; e to the minus that is
# the chance that a change leaves as few of them different as there are
_SHARPEST = 300.0  # what the records do to a coordinate, in units of its noise: more precision
# than single precision can use together with the other coordinates'
_GAIN = 1e-3  # of the sum of squares, in units of rounding's variance: less is arithmetic
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
            course_of(recipe, sent, candidates, batches_of(recipe, len(prior), order))
            for sent, order in zip(link.sent, known, strict=True)
        ]
        self.ties = _told_apart(ties, [course.batches for course in self.courses])
        self.place = [np.spacing(np.abs(r)).astype(np.float64) for r in link.returned]
        self.values = prior.shape[1]
        self.which: list[Choice] = []

    def answer(self) -> Answer | None:
        """The proven answer, or None."""
        if all(course.straight for course in self.courses) and self.candidates.present.all():
            found = self._posterior(self.prior)
            return self._proven(self._descended(self._hard(found)), found)
        belief, best, least, worse = self.prior, self._hard(self.prior), np.inf, 0
        for number in range(_NEWTON):
            found = self._posterior(belief)
            choice = self._hard(found)
            left = self._left(choice)
            worse = 0 if left < least else worse + 1
            if left < least:
                best, least = choice, left
            if worse > 1 or (best is choice and self._done(choice, left)):
                break
            belief = np.clip(found, 0.02, 0.98) if number >= 3 else (belief + found) / 2
            belief = belief / belief.sum(axis=1, keepdims=True)
        return self._proven(self._polished(best, least))

    def first_left(self) -> float:
        """What the first step's answer leaves: by far the least under the right order."""
        return self._left(self._hard(self._posterior(self.prior)))

    def repeats(self, choice: Choice) -> bool:
        """Does the replay of an answer agree with the message to rounding?"""
        self._linearised(np.eye(self.values)[choice])  # settles the coordinates
        return _agrees(np.abs(self._apart(choice)))

    def _done(self, choice: Choice, left: float) -> bool:
        """Is there nothing left, or is it rounding and no record could be otherwise?"""
        if not left:
            return True
        found = self._proven(choice)
        return found is not None and not found.notes["unseen_records"]

    def _posterior(self, belief: Array) -> Array:
        """Probabilities by one robust Gauss-Newton step: a Gaussian solve with the prior's moments,
        in which each record's own is then replaced by the discrete prior (as rung 1 does it)."""
        if self.courses[0].net.mixes:
            belief = np.eye(self.values)[belief.argmax(axis=1)]
        gram, told = _products(*self._linearised(belief))
        told = told + gram @ belief[:, 1:].ravel()
        precision, shift = moment_sites(self.prior)
        n, free = shift.shape
        blocks = gram.reshape(n, free, n, free)
        blocks[np.arange(n), :, np.arange(n)] += precision
        inverse, _ = linalg.lapack.dpotri(linalg.lapack.dpotrf(gram, lower=1)[0], lower=1)
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
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

    def _apart(self, choice: Choice) -> Array:
        """What the replay of an answer leaves where records tell, in units of the last place."""
        each, made = np.eye(self.values)[choice], []
        for number, (course, returned) in enumerate(
            zip(self.courses, self.link.returned, strict=True)
        ):
            which = self.which[number]
            left = returned[which].astype(np.float64) - course.run(each)[which]
            made.append(left / self.place[number][which])
        return np.concatenate(made)

    def _left(self, choice: Choice) -> float:
        """How much that is, a few coordinates that are far off counting little more than others."""
        return float(np.mean(np.log1p(self._apart(choice) ** 2)))

    def _linearised(self, belief: Array) -> tuple[NDArray[np.float32], Array, Array]:
        """Columns (n (K - 1), R), what the replay of the belief leaves (R,) and its robust sd."""
        made, left, places = [], [], []
        for number, (course, returned) in enumerate(
            zip(self.courses, self.link.returned, strict=True)
        ):
            end, parts = course.linearised(belief, returned)
            if len(self.which) <= number:
                self.which.append(_telling(course, parts))
            which = self.which[number]
            made.append(course.columns(parts, which).reshape(-1, len(which)))
            left.append(returned[which].astype(np.float64) - end[which])
            places.append(self.place[number][which])
        columns, residual = np.concatenate(made, axis=1), np.concatenate(left)
        # rows in units of what the records do to them; a step whose sign a replay of half-believed
        # records gets wrong moves a coordinate far: Student's tails
        reach = np.sqrt(np.einsum("nr,nr->r", columns, columns, dtype=np.float64))
        reach = np.maximum(reach, 1e-12 * float(reach.max(initial=1e-300)))
        if all(course.straight for course in self.courses):
            told = zip(self.courses, self.link.returned, self.which, strict=True)
            sd = np.concatenate([course.doubt(end)[which] for course, end, which in told])
            return columns, residual, np.maximum(sd, reach / _SHARPEST)
        scaled = residual / reach
        middle = max(float(np.median(np.abs(scaled))) / 0.6745, 1e-12)
        weight = (_TAILS + 1) / (_TAILS + np.minimum(np.abs(scaled / middle), 1e6) ** 2)
        sd = np.hypot(reach * middle / np.sqrt(weight), np.concatenate(places))
        return columns, residual, sd

    def _descended(self, choice: Choice) -> Choice:
        """Of a straight line the changes of one record, or of two together, that lower the
        residual most, until none does: no replay is needed to say so."""
        n, free, rows = len(choice), self.values - 1, np.arange(len(choice))
        gram, told = _products(*self._linearised(np.eye(self.values)[choice]))
        whole = np.zeros((n, self.values, n, self.values), np.float32)
        whole[:, 1:, :, 1:] = gram.reshape(n, free, n, free)
        left = np.column_stack([np.zeros(n), told.reshape(n, free)])
        for _ in range(len(choice)):
            record, other = np.nonzero(np.arange(self.values) != choice[:, None])
            now = choice[record]
            across = whole[record, other] - whole[record, now]  # (c, n, K)
            both = across[:, record, other] - across[:, record, now]
            alone = 2 * (left[record, other] - left[record, now]) - np.diagonal(both)
            pairs = alone[:, None] + alone[None, :] - 2 * both
            pairs[record[:, None] == record[None, :]] = -np.inf
            pairs[np.diag_indices(len(pairs))] = alone
            best = int(np.argmax(pairs))
            if pairs.flat[best] <= _GAIN:
                break
            for one in {best // len(pairs), best % len(pairs)}:
                i, a, b = record[one], now[one], other[one]
                left -= whole[i, b] - whole[i, a]
                choice = np.where(rows == i, b, choice)
        return choice

    def _polished(self, choice: Choice, least: float) -> Choice:
        """The changes that the linearised residual at the hard answer asks for, again and again:
        those that stand out, even where the residual grows for now; else those that lower it."""
        best, left, seen = choice, least, {choice.tobytes()}
        for _ in range(_POLISH):
            if best is choice and self._done(choice, left):
                break
            changed = self._better(choice, left, seen)
            if changed is None:
                break
            choice, left = changed
            seen.add(choice.tobytes())
            if left < least:
                best, least = choice, left
        return best

    def _changes(
        self, choice: Choice, columns: NDArray[np.float32]
    ) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]:
        """Every change of one record (records, candidates) and what it does (changes, R)."""
        n = len(choice)
        full = np.zeros((n, self.values, columns.shape[1]), np.float32)
        full[:, 1:] = columns.reshape(n, -1, columns.shape[1])
        record, other = np.nonzero(np.arange(self.values) != choice[:, None])
        return record, other, full[record, other] - full[record, choice[record]]

    def _better(self, choice: Choice, left: float, seen: set[bytes]) -> tuple[Choice, float] | None:
        columns, residual, sd = self._linearised(np.eye(self.values)[choice])
        record, other, change = self._changes(choice, columns)
        gram, told = _products(change, residual, sd)
        gram[np.diag_indices(len(gram))] += 1 / _FEW
        size = linalg.solve(gram, told, assume_a="pos", check_finite=False)
        order = np.argsort(-size, kind="stable")
        order = order[size[order] > 0]
        order = order[np.sort(np.unique(record[order], return_index=True)[1])]
        # noise asks for changes and against them alike: how many stand out is read off those that
        # are asked against
        wrong = np.searchsorted(np.sort(size), -size[order], side="right")
        for share in _MISTAKEN:
            outstanding = np.flatnonzero(wrong <= share * np.arange(1, len(order) + 1))
            if len(outstanding):
                made = self._with(choice, record, other, order, int(outstanding[-1]) + 1)
                if made.tobytes() not in seen:
                    return made, self._left(made)
        count = 1 << max(int(np.log2(max(len(order), 1))), 0)
        while count >= 1 and len(order):
            made = self._with(choice, record, other, order, count)
            now = self._left(made)
            if now < left * (1 - 1e-9) and made.tobytes() not in seen:
                return made, now
            count //= 2
        every = np.argsort(-size, kind="stable")
        return self._single(choice, left, (record, other, every[:_ONES]))

    def _single(
        self,
        choice: Choice,
        left: float,
        changes: tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]],
    ) -> tuple[Choice, float] | None:
        """The first single change that lowers the residual: what a change does to units that are
        switched off is in no column."""
        record, other, order = changes
        for at in range(len(order)):
            made = self._with(choice, record, other, order[at:], 1)
            now = self._left(made)
            if now < left * (1 - 1e-9):
                return made, now
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

    def _proven(self, choice: Choice, before: Array | None = None) -> Answer | None:
        """The answer, where its replay agrees to rounding. Records of which a change would go
        unnoticed keep what was known of them before (n, K), the prior if nothing else was."""
        apart = np.abs(self._apart(choice))
        if not _agrees(apart):
            return None
        columns, _, _ = self._linearised(np.eye(self.values)[choice])
        record, _, change = self._changes(choice, columns)
        place = np.concatenate([p[w] for p, w in zip(self.place, self.which, strict=True)])
        # how many coordinates a change moves, not how far: where Adam divides by almost nothing a
        # few go very far, and as many may differ in a proven answer
        far = 2 * _PROVEN
        moves = (change / place).astype(np.float32)
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


def _products(columns: Single, residual: Array, sd: Array) -> tuple[Array, Array]:
    """Inner products of the whitened columns with each other and with the residual."""
    white = columns / sd.astype(np.float32)
    gram = (white @ white.T).astype(np.float64)
    gram[np.diag_indices(len(gram))] += _SINGLE * float(np.diagonal(gram).max(initial=0.0))
    return gram, (white @ (residual / sd).astype(np.float32)).astype(np.float64)


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


def _telling(course: Course, parts: Sequence[Part]) -> Choice:
    """The coordinates in which the candidates of some records differ most."""
    n = course.candidates.inputs.shape[1]
    some = np.sort(np.random.default_rng(0).permutation(n)[:64])
    made = course.columns(parts, np.arange(len(course.sent)), some)
    power = np.einsum("nkr,nkr->r", made[some], made[some])
    live = np.flatnonzero(power > 0)
    unknowns = n * made.shape[1]
    most = max(EQUATIONS * unknowns, MOST_NUMBERS // unknowns)
    if len(live) > most:
        live = np.sort(live[np.argsort(-power[live], kind="stable")[:most]])
    return np.asarray(live)
