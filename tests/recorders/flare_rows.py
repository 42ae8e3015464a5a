"""The rows of a FLARE site, as XGBoost takes them; its recipe copies this file to the sites."""

from __future__ import annotations

from typing import Any

import xgboost
from flare_trees import people  # type: ignore[import-not-found]
from nvflare.app_opt.xgboost.data_loader import XGBDataLoader


class Rows(XGBDataLoader):  # type: ignore[misc]  # nvflare has no types
    def load_data(self) -> tuple[Any, Any]:
        rows, labels = people(self.client_id)
        data = xgboost.DMatrix(rows, label=labels)
        return data, data
