from __future__ import annotations

import numpy as np
import pytest

from experiments.data import leaf_synthetic
from overheard.errors import FixConfig


def inputs(client: object) -> np.ndarray:
    return np.column_stack([client[f"x{i}"] for i in range(10)])  # type: ignore[index]


def test_the_papers_clients() -> None:
    data = leaf_synthetic.load()
    assert [len(r) for r in data.by_client().values()] == [280, 184, 1536, 256, 208]
    assert len(data.inputs()) == 10
    assert set(data.records["label"]) == {0.0, 1.0}


def test_the_seed_decides_everything() -> None:
    one, again, two = (leaf_synthetic.load(seed=s).records for s in (3, 3, 4))
    assert (one["x0"] == again["x0"]).all()
    assert not np.isclose(one["x0"], two["x0"]).any()


def test_the_inputs_have_leafs_covariance() -> None:
    """diag(i^-1.2) within a client; clients' centres differ by a variance of 2 per feature."""
    large = leaf_synthetic.load(sizes=[200_000])
    covariance = np.cov(inputs(large.records).T)
    assert covariance == pytest.approx(np.diag(np.arange(1, 11) ** -1.2), abs=0.012)
    many = leaf_synthetic.load(sizes=[1] * 4000)
    variances = inputs(many.records).var(axis=0) - np.arange(1, 11) ** -1.2
    assert variances == pytest.approx(np.full(10, 2.0), abs=0.25)


def test_the_published_code_evens_out_the_classes() -> None:
    """Its softmax runs over records, not classes: fewer clients have one class only."""

    def rarer(labels: str) -> float:
        shares = [
            client["label"].mean()
            for seed in range(10)
            for client in leaf_synthetic.load(seed=seed, labels=labels).by_client().values()  # type: ignore[arg-type]
        ]
        return float(np.mean(np.minimum(shares, 1 - np.array(shares))))

    assert rarer("code") > 1.3 * rarer("text")


def test_wrong_options_are_named() -> None:
    for wrong in ({"sizes": [3, 0]}, {"sizes": []}, {"labels": "guess"}):
        with pytest.raises(FixConfig, match="leaf_synthetic"):
            leaf_synthetic.load(**wrong)  # type: ignore[arg-type]
