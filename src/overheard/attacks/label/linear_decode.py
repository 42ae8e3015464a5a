"""Every label at once, where the records' inputs are known: the gradient is linear in labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from overheard.attacks.label.heard import Gradients, gradients, output_rows
from overheard.decoding.label_solve import solve_residuals
from overheard.decoding.limits import BLOCK
from overheard.errors import ChooseAnotherAttack, FixData
from overheard.programs.gradient_rows import GradientRows
from overheard.programs.recipe import Recipe
from overheard.programs.records import encode
from overheard.transcript.guess import LabelValues
from overheard.transcript.knowledge import Link, LocalTraining, PublicRecords
from overheard.transcript.view import View

Array = NDArray[np.float64]


@dataclass(frozen=True)
class LinearDecode:
    """Solves the client's gradients, which are linear in its labels, for every label at once; knows
    the inputs, models the rounding on the wire, and says which labels are identified. Labels that
    are not (records with equal inputs, more records than equations) stay near the prediction.

    Settings: ``rounds``, how many of the rounds heard are stacked (spread evenly).
    """

    name: ClassVar[str] = "linear_decode"
    paper: ClassVar[str] = "overheard"
    question: ClassVar[str] = "label"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Link, LocalTraining, PublicRecords})

    rounds: int = 4

    def __call__(self, view: View, rng: np.random.Generator) -> LabelValues:
        recipe, link = view.know(LocalTraining).recipe, view.know(Link)
        heard = gradients(link, recipe).spread(self.rounds)
        inputs = encode(recipe.encoding, view.know(PublicRecords).records)
        sizes = link.weights[np.isfinite(link.weights)]
        if not len(inputs) or (sizes != len(inputs)).any():
            raise FixData(
                f"{len(inputs)} records are known but the client reported {sizes.max():g}; give "
                "the records that it trained on"
                if len(sizes)
                else "the client has no known records; there is nothing to decode"
            )
        reference, _ = output_rows(recipe, heard.models[0], inputs)
        precision = float(np.finfo(link.returned.dtype).eps)
        found = solve_residuals(_rows(recipe, heard, inputs, reference, precision), len(inputs))
        if found.tau == 0.0:
            raise ChooseAnotherAttack(
                "the gradients are no larger than the rounding on the wire: nothing to decode"
            )
        target = recipe.target
        return LabelValues(
            target.decode_values(reference - found.values),
            found.sd * abs(target.scale),
            {
                "identified": int(found.identified.sum()),
                "records": len(inputs),
                "prior_sd": found.tau * abs(target.scale),
                "rank": found.rank,
                "misfit": found.misfit,
                "rounds": len(heard),
            },
        )


def _rows(
    recipe: Recipe, heard: Gradients, inputs: Array, reference: Array, precision: float
) -> Iterator[tuple[Array, Array, Array]]:
    """Equations for the residuals at the first round, a block at a time.

    A later round's residual is the first's plus the change of the prediction, which is known. To
    the rounding on the wire comes that of the client's own arithmetic, in the same precision.
    """
    size = len(inputs)
    for model, mean, rounding in zip(heard.models, heard.means, heard.noise, strict=True):
        outputs, rows = output_rows(recipe, model, inputs)
        moved = outputs - reference
        loudest = float(np.sqrt(np.mean(outputs**2)) + np.sqrt(size) * _typical(mean, rows))
        units = max(1, BLOCK // size)
        for begin in range(0, rows.size, units):
            part = slice(begin, begin + units)
            columns = rows.columns(np.arange(rows.size)[part])
            features = np.asarray(columns.T, dtype=np.float64)
            strength = np.sqrt((features**2).sum(axis=1))
            noise = np.hypot(rounding[part] * size / 2, precision * loudest * strength)
            heard_sum = mean[part].astype(np.float64) * size / 2
            live = noise > 0
            yield (features[live], (heard_sum - features @ moved)[live], noise[live])


def _typical(mean: Array, rows: GradientRows) -> float:
    """Size of a residual for which the gradient would be as long as it is, if none cancelled."""
    length = sum(float(layer.lengths().sum()) for layer in rows.layers)
    return float(np.linalg.norm(mean) * len(rows) / 2 / np.sqrt(max(length, 1e-300)))
