"""xu2021's Table 1 in small: every accuracy stands beside what the commonest class gets."""

from __future__ import annotations

import numpy as np
import pytest

from papers.data import leaf_synthetic
from papers.xu2021 import run as xu2021


def commonest(seed: int, **options: list[int]) -> list[float]:
    clients = leaf_synthetic.load(seed=seed, **options).by_client().values()  # type: ignore[arg-type]
    shares = [float(np.mean(records["label"])) for records in clients]
    return [max(share, 1 - share) for share in shares]


def test_accuracies_carry_the_majority() -> None:
    config = {
        "data": {"source": "leaf_synthetic", "options": {"sizes": [60, 40]}},
        "model": {"name": "logistic"},
        "training": {"rounds": 10, "learning_rate": 0.1, "batch_size": 0},
    }
    rows = xu2021.compare("small", config, 2, None, {}, lambda *_: None)
    wanted = np.mean([commonest(seed, sizes=[60, 40]) for seed in range(2)], axis=0)
    for row in rows:
        if row.measure != "local accuracy":
            assert row.majority is None
        elif row.client == "mean":
            assert row.majority == pytest.approx(wanted.mean())
        else:
            assert any(row.majority == pytest.approx(share) for share in wanted)
    assert sum(row.measure == "local accuracy" for row in rows) == 3 * 3
