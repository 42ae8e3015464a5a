"""LEAF's synthetic classification task, with the five clients of xu2021.

The generator of LEAF (Caldas et al. 2018, appendix A): clusters j have means mu_j in R^k; a
client draws its cluster and u ~ N(mu_j, 0.1^2 I), its true model is w = Q u with one Q for all,
its inputs are N(v, Sigma) with v ~ N(B, I), B ~ N(0, 1) and Sigma = diag(i^-1.2), and a label is
the largest of [1, x] w + N(0, 0.1^2). xu2021: 10 features, 2 classes, 5 clusters, clients of 280,
184, 1536, 256 and 208 records.

Until 2019 LEAF's code divided exp(score) by its sum over the *records* of a class, where appendix A
has the softmax over classes. The largest entry then moves: each class is handicapped by the log
of its total, which evens out the classes within a client. ``labels = "before 2019"`` does the same
(the default: xu2021's figures are nearer to it, and it does not say which code it ran);
``labels = "published"`` follows the appendix and the code since. Clusters are equally likely:
xu2021 does not give their probabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from experiments.data import SOURCES
from overheard.data.dataset import Dataset
from overheard.errors import FixConfig
from overheard.programs.records import Records
from overheard.randomness import stream

SOURCE = SOURCES["leaf_synthetic"]
SIZES, FEATURES, CLASSES, CLUSTERS = (280, 184, 1536, 256, 208), 10, 2, 5


def load(
    folder: str | Path | None = None,
    seed: int = 0,
    sizes: Sequence[int] = SIZES,
    labels: Literal["before 2019", "published"] = "before 2019",
) -> Dataset:
    """A draw of the generator; ``folder`` is not needed. Every client has a stream of its own."""
    if not sizes or min(sizes) < 1:
        raise FixConfig(f"leaf_synthetic: sizes {list(sizes)} must be at least 1")
    if labels not in ("before 2019", "published"):
        raise FixConfig(f"leaf_synthetic: labels {labels!r} is not one of before 2019, published")
    shared = stream(seed, "leaf", "federation")
    weights = shared.normal(size=(FEATURES + 1, CLASSES, CLUSTERS))  # Q
    means = shared.normal(size=(CLUSTERS, 1)) + shared.normal(size=(CLUSTERS, CLUSTERS))  # mu
    drawn = [
        _client(stream(seed, "leaf", "client", c), size, weights, means, labels)
        for c, size in enumerate(sizes)
    ]
    inputs = np.concatenate([x for x, _ in drawn])
    names = np.repeat(
        [f"client {c:0{len(str(len(sizes) - 1))}d}" for c in range(len(sizes))], sizes
    )
    return SOURCE.dataset(
        Records(
            {
                "client": names,
                **{f"x{i}": inputs[:, i] for i in range(FEATURES)},
                "label": np.concatenate([y for _, y in drawn]).astype(np.float64),
            }
        ),
        client="client",
        target="label",
        task="classification",
        sensitive=(),
    )


def _client(
    rng: np.random.Generator,
    size: int,
    weights: NDArray[np.float64],
    means: NDArray[np.float64],
    labels: str,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Inputs (size, features) and labels (size,) of one client."""
    task = means[rng.integers(len(means))]
    model = weights @ (task + 0.1 * rng.normal(size=task.shape))  # w = Q u, (features + 1, classes)
    centre = rng.normal() + rng.normal(size=FEATURES)
    spread = np.arange(1, FEATURES + 1) ** -0.6  # standard deviations: square root of i^-1.2
    inputs = centre + spread * rng.normal(size=(size, FEATURES))
    scores = model[0] + inputs @ model[1:] + 0.1 * rng.normal(size=(size, CLASSES))
    if labels == "before 2019":
        scores = scores - np.logaddexp.reduce(scores, axis=0)
    return inputs, scores.argmax(axis=1)
