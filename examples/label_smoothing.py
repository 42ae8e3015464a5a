"""A defence in one file that acts inside local training: label smoothing.

Each record is trained on as a mixture of its own label and all others (Szegedy et al. 2016). Use it
from a config in this folder, or announce it by an entry point of the group ``overheard.defences``::

    [[defence]]
    name = "label_smoothing:LabelSmoothing"
    share = 0.2

    overheard --trust label_smoothing:LabelSmoothing simulate federation.toml --out run
"""

from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field

from overheard.errors import FixConfig
from overheard.federation.defences.contract import Claim, Defence, Stage
from overheard.programs.training import Batch, LocalStep


class LabelSmoothing(Defence):
    """``share``: the part of a label that is spread over all classes."""

    name: Literal["label_smoothing"] = "label_smoothing"
    share: float = Field(gt=0, lt=1)

    @property
    def claim(self) -> Claim:
        promise = f"clients train on labels of which {self.share:g} is spread over all classes"
        return Claim(self.name, Stage.TRAINING, promise)

    def step(self, step: LocalStep) -> LocalStep:
        if not step.classes:
            raise FixConfig("label_smoothing: the target is a number; smooth the labels of classes")

        def smoothed(batch: Batch, rng: np.random.Generator) -> Batch:
            """Every record once under its own label, and once under each of the classes."""
            inputs, labels, weights = batch
            every = [labels, *(np.full_like(labels, k) for k in range(step.classes))]
            shares = [1 - self.share, *[self.share / step.classes] * step.classes]
            return (
                np.concatenate([inputs] * len(every), axis=-2),
                np.concatenate(every, axis=-1),
                np.concatenate([share * weights for share in shares], axis=-1),
            )

        return replace(step, batches=(*step.batches, smoothed))
