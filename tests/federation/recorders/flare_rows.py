"""The rows of a FLARE site, as XGBoost takes them; its recipe copies this file to the sites."""

from __future__ import annotations

from typing import Any

import numpy as np
import xgboost
from nvflare.app_opt.xgboost.data_loader import XGBDataLoader

COLUMNS, SITES = ("a", "b", "c", "s"), ("site-1", "site-2")


def people(site: str) -> tuple[np.ndarray, np.ndarray]:
    """A site's inputs (60, 4), the last of them 0 or 1, and its labels."""
    rng = np.random.default_rng(int(site[-1]))
    s = (rng.random(60) < 0.4).astype(np.float64)
    x = np.column_stack([rng.normal(size=(60, 3)), s])
    likely = 1 / (1 + np.exp(-(x @ [0.5, -0.5, 0.3, 0.8])))
    return x, (rng.random(60) < likely).astype(np.float64)


class Rows(XGBDataLoader):  # type: ignore[misc]  # nvflare has no types
    def load_data(self) -> tuple[Any, Any]:
        rows, labels = people(self.client_id)
        data = xgboost.DMatrix(rows, label=labels)
        return data, data
