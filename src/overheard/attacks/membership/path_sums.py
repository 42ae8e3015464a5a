"""What each record of a pool would add to a client's update, were it a member.

The update of many local steps is a sum over members of gradients along the path that the model took
while the client trained; the path is given here, the gradients are kept as factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.membership.local_path import timetable
from overheard.attacks.membership.replays import weights_of
from overheard.decoding.matrix_noise import MatrixNoise
from overheard.decoding.noisy_gram import Sums
from overheard.programs.dense import split
from overheard.programs.gradient_rows import Difference, Differences
from overheard.programs.private import record_factors
from overheard.programs.recipe import Recipe

Array = NDArray[np.float64]
Wire = NDArray[np.floating[Any]]
Indices = NDArray[np.int64]

_COUNT_SD = 0.1  # how exactly the number of members is known, in records


class PathSums:
    """A pool (mean inputs (n, d), labels (n,)) and a recipe, ready for any path.

    ``weights`` and ``chances``: how heavily a member may weigh in the update, and how likely;
    ``usual``: the mean weight, which all gradients carry.
    """

    def __init__(self, recipe: Recipe, inputs: Array, labels: Array, members: int) -> None:
        self.recipe, self.inputs, self.labels, self.members = recipe, inputs, labels, members
        self.times = timetable(members, recipe.batch_size, recipe.epochs)
        self.weights, self.chances = weights_of(recipe, members)
        self.usual = float(self.weights @ self.chances)

    def sums(
        self, sent: Wire, returned: Wire, path: Array, noises: Sequence[MatrixNoise], left: float
    ) -> Sums:
        """An update's white equations, and one more: how many members there are.

        left: mean square that noise leaves in them.
        """
        heard = self.blocks(sent, returned, path)
        blocks = [noise.white(block) for noise, block in zip(noises, heard, strict=True)]
        white = Differences(tuple(self.white(path, noises)))
        precision = _COUNT_SD**-2
        return Sums(
            white.gram(white) + precision,
            white.project(blocks) + self.members * precision,
            sum(float(np.sum(block**2)) for block in blocks) + self.members**2 * precision,
            sum(block.size for block in blocks) + 1,
            left,
        )

    def white(self, path: Array, noises: Sequence[MatrixNoise]) -> list[Difference]:
        """The pool's gradients along the path, in units of the noise."""
        pairs = zip(noises, self.layers(path), strict=True)
        return [Difference(*n.white_factors(layer.errors, layer.inputs)) for n, layer in pairs]

    def residual(
        self, sent: Wire, returned: Wire, path: Array, who: Indices, weights: Array
    ) -> list[Array]:
        """What members ``who`` (m,) of these weights leave unexplained of an update."""
        layers = self.layers(path, who)
        return [
            block - _total(layer, weights / self.usual)
            for block, layer in zip(self.blocks(sent, returned, path), layers, strict=True)
        ]

    def layers(self, path: Array, who: Indices | slice = slice(None)) -> list[Difference]:
        """What each record adds if it is a member: gradients averaged along the path.

        To first order in time both factors move linearly, so the mean of their product is the
        product of means plus a product of slopes: two parts a layer, however many moments.
        """
        shares = self.times.shares.ravel()
        time = np.array([group.mean() for epoch in self.times.groups for group in epoch])
        time = (time - shares @ time) / self.times.steps
        spread = float(shares @ time**2)
        recipe, thetas = self.recipe, path.reshape(len(shares), -1)
        inputs, labels = self.inputs[who], self.labels[who]
        layers = []
        for a, delta in record_factors(recipe, thetas, inputs, labels):
            errors = [np.tensordot(shares, delta, 1)]
            fed = [np.tensordot(shares, a, 1) if a.ndim == 3 else a]
            if a.ndim == 3 and spread > 0:
                slopes = shares * time / spread
                errors.append(spread * np.tensordot(slopes, delta, 1))
                fed.append(np.tensordot(slopes, a, 1))
            if recipe.dense.bias:
                # the bias is fed a one, which does not move
                ones = [float(not part) for part in range(len(fed))]
                fed = [
                    np.column_stack([x, np.full(len(x), one)])
                    for x, one in zip(fed, ones, strict=True)
                ]
            layers.append(Difference(self.usual * np.stack(errors), np.stack(fed)))
        return layers

    def blocks(self, sent: Wire, returned: Wire, path: Array) -> list[Array]:
        """Sum of the gradients of all local steps, layer by layer."""
        recipe, start = self.recipe, sent.astype(np.float64)
        total = (start - returned.astype(np.float64)) / recipe.learning_rate
        if recipe.pull:
            middle = np.einsum("gq,gqp->p", self.times.shares, path)
            total = total - recipe.pull * self.times.steps * (middle - start)
        return self.split(total)

    def split(self, flat: Array) -> list[Array]:
        """Per layer the weights (fan_out, fan_in), with the bias as a last column."""
        return [
            np.column_stack([weight, *(() if bias is None else (bias,))]).astype(np.float64)
            for weight, bias in split(self.recipe.dense, flat)
        ]


def _total(layer: Difference, weights: Array) -> Array:
    """Weighted sum over records of one layer's gradients."""
    parts = [(weights[:, None] * e).T @ x for e, x in zip(layer.errors, layer.inputs, strict=True)]
    return np.asarray(sum(parts))
