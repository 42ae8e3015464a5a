"""Which candidate is each record, if nothing in a client's training is random?

The answer is a point whose replay reproduces the returned model. Robust Gauss-Newton steps on what
a replay of the belief leaves come close; then the few changes that lower the residual of a real
replay are searched at the hard answer. An answer whose replay agrees with the message to rounding,
where no change of one record or of two together could go unnoticed, is *proven*.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from overheard.attacks.by_simulation import WEAK, Answer
from overheard.decoding.measurement import from_gram
from overheard.decoding.noisy import noisy_posterior
from overheard.programs.networks import network
from overheard.programs.recipe import Recipe
from overheard.programs.response import Parts, telling
from overheard.programs.simulated import Candidates, Simulated, replay, stretches
from overheard.transcript.knowledge import Link

Array = NDArray[np.float64]
Choice = NDArray[np.int64]

_NEWTON, _POLISH = 8, 12  # passes of each kind at most
_TAILS = 4.0  # degrees of freedom of the residual's Student distribution
_FEW = 0.03  # prior variance of a change at the hard answer
_PROVEN, _NEARLY_ALL = 8.0, 0.9  # units in the last place within which a proven answer's replay
# must be, at nearly all coordinates: where a gradient is as small as its rounding, a step of Adam
# does not repeat in another order of additions
_MOVED = 0.02  # share of the coordinates, beyond those that differ, that a change must move


class Replay:
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
                gram, told + gram @ expected, 1.0, candidates=self.values, floor=WEAK
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
        # how many coordinates a change moves, not how far: where Adam divides by almost nothing a
        # few go very far, and as many may differ in a proven answer
        white = np.clip(change / place, -2 * _PROVEN, 2 * _PROVEN)
        both = white @ white.T
        alone = np.diagonal(both).copy()
        both = 2 * both + alone[:, None] + alone[None, :]
        alike = self.ties[record]  # swapping records alike changes nothing, and is not asked
        both[alike[:, None] == alike[None, :]] = np.inf
        differ = float((apart > _PROVEN).sum()) + _MOVED * len(apart)
        noticed = np.minimum(alone, both.min(axis=1)) > differ * (2 * _PROVEN) ** 2
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
