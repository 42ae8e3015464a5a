"""A site: how many people it has, the sums of their columns, and how these are spread."""

from typing import Any

import numpy as np
import people
from nvflare.app_common.abstract import statistics_spec as spec

COLUMNS = ("xage", "num", "female", "black")


class PeopleStatistics(spec.Statistics):
    def initialize(self, fl_ctx: Any) -> None:
        self.columns = people.sites()[f"site {fl_ctx.get_identity_name()[-1]}"]

    def features(self) -> dict[str, list[spec.Feature]]:
        return {"people": [spec.Feature(name, spec.DataType.FLOAT) for name in COLUMNS]}

    def count(self, dataset_name: str, feature_name: str) -> int:
        return len(self.columns[feature_name])

    def sum(self, dataset_name: str, feature_name: str) -> float:
        return float(self.columns[feature_name].sum())

    def histogram(
        self, dataset_name: str, feature_name: str, num_of_bins: int, low: float, high: float
    ) -> spec.Histogram:
        counts, edges = np.histogram(self.columns[feature_name], num_of_bins, (low, high))
        cut = zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
        return spec.Histogram(spec.HistogramType.STANDARD, [spec.Bin(*one) for one in cut])
