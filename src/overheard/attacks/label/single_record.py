"""The label of a client that has one record, in closed form (leprovost2023, K = 1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from overheard.attacks.label.heard import gradients, output_rows
from overheard.errors import ChooseAnotherAttack
from overheard.transcript.guess import LabelValues
from overheard.transcript.knowledge import Link, LocalTraining
from overheard.transcript.view import View


@dataclass(frozen=True)
class SingleRecord:
    """Reads a lone record's label off the last layer: the gradients of its weights and bias give
    the layer's input, hence the prediction, and the bias's gradient is twice the residual."""

    name: ClassVar[str] = "single_record"
    paper: ClassVar[str] = "leprovost2023"
    question: ClassVar[str] = "label"
    needs: ClassVar[frozenset[type[Any]]] = frozenset({Link, LocalTraining})

    def __call__(self, view: View, rng: np.random.Generator) -> LabelValues:
        recipe, link = view.know(LocalTraining).recipe, view.know(Link)
        heard = gradients(link, recipe)
        shape = output_rows(recipe, heard.models[0], np.zeros((1, recipe.model.inputs)))[1]
        last = shape.output_layer
        if not last.bias:
            raise ChooseAnotherAttack("the formula needs the last layer's bias; there is none")
        sizes = link.weights[np.isfinite(link.weights)]
        if (sizes != 1).any():
            raise ChooseAnotherAttack(
                f"the formula is for one record; the client has {sizes.max():g}"
            )
        slopes = heard.means[:, -1]
        best = int(np.argmax(np.abs(slopes) / heard.noise[:, -1]))
        slope, noise = float(slopes[best]), float(heard.noise[best, -1])
        if abs(slope) <= noise:
            raise ChooseAnotherAttack(
                "the gradient of the last bias is zero: the model already predicts this record's "
                "label, and nothing shows which it is"
            )
        block = last.block(heard.models[best, -last.width :])
        weight, bias = block[:, :-1], block[:, -1]
        features = last.block(heard.means[best, -last.width :])[0, :-1] / slope
        label = float(weight[0] @ features + bias[0] - slope / 2)
        # rounding of either gradient moves the features, and with them the prediction
        width = len(features)
        unsure = heard.noise[best, -1 - width : -1] ** 2 + (features * noise) ** 2
        sd = float(np.sqrt(weight[0] ** 2 @ unsure) / abs(slope) + noise / 2)
        target = recipe.target
        return LabelValues(
            target.decode_values(np.array([label])),
            np.array([sd * abs(target.scale)]),
            {"round": int(link.rounds[best])},
        )
