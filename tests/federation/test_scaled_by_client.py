"""Clients that scale their own columns: the audit sees what their models saw."""

from __future__ import annotations

import numpy as np

from overheard.data.dataset import Dataset
from overheard.federation.config import parse_config
from overheard.federation.plan import plan
from overheard.programs.records import Records, encode


def test_every_client_has_mean_nought_and_deviation_one_of_its_own() -> None:
    rng = np.random.default_rng(0)
    at = np.repeat(["a", "b"], 50)
    table = {"x": rng.normal(np.where(at == "a", 3.0, -1.0), np.where(at == "a", 2.0, 0.5))}
    table |= {"flag": (rng.random(100) < 0.5).astype(float), "s": rng.choice([1.0, 2.0], 100)}
    columns = {**table, "same": np.where(at == "a", 7.0, 9.0), "y": rng.normal(size=100), "at": at}
    dataset = Dataset(
        name="t", records=Records(columns), client="at", target="y", task="regression",
        sensitive=("s",), origin="", licence="",
    )  # fmt: skip
    config = {"data": {"source": "file", "scale": "clients"}, "model": {"name": "linear"},
              "training": {"rounds": 1, "learning_rate": 0.1}}  # fmt: skip
    ready = plan(parse_config(config), dataset)
    for name in ("a", "b"):
        records = ready.clients[name]
        seen = encode(ready.recipe.of(name).encoding, records)
        x, flag, s, same = seen.T
        np.testing.assert_allclose([x.mean(), x.std()], [0, 1], atol=1e-12)
        np.testing.assert_array_equal(flag, table["flag"][at == name])
        np.testing.assert_array_equal(s, table["s"][at == name])  # a secret of two values
        np.testing.assert_array_equal(same, 0.0)  # it does not vary at this client
    assert abs(ready.recipe.target.scale - columns["y"].std()) < 1e-12
