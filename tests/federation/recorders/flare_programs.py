"""``python flare_programs.py newton|trees|statistics OUT``: FLARE's own workflows that train no
network, each recorded by one line in its simulator.

newton: the controller of its hello-lr example, whose sites answer with gradient and Hessian of the
log likelihood, a column of ones before the inputs. trees: its recipe of XGBoost bagging, which
masks the Hessians' sums. statistics: its recipe of counts, sums, means and histograms.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.executor import Executor
from nvflare.app_common.abstract.statistics_spec import (
    Bin,
    DataType,
    Feature,
    Histogram,
    HistogramType,
    Statistics,
)
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.workflows.lr.fedavg import FedAvgLR
from nvflare.job_config.api import FedJob

from overheard.nvflare import RecordingFilter, RecordingWidget

COLUMNS = ("a", "b", "c", "s")
SITES = ("site-1", "site-2")
ROUNDS = {"newton": 5, "trees": 4, "statistics": 2}


def people(site: str) -> tuple[np.ndarray, np.ndarray]:
    """A site's inputs (60, 4), the last of them 0 or 1, and its labels."""
    rng = np.random.default_rng(int(site[-1]))
    s = (rng.random(60) < 0.4).astype(np.float64)
    x = np.column_stack([rng.normal(size=(60, 3)), s])
    likely = 1 / (1 + np.exp(-(x @ [0.5, -0.5, 0.3, 0.8])))
    return x, (rng.random(60) < likely).astype(np.float64)


class Site(Executor):
    """Gradient and Hessian of a site's own people."""

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        x, y = people(fl_ctx.get_identity_name())
        x = np.concatenate([np.ones((len(x), 1)), x], axis=1)
        theta = np.asarray(from_shareable(shareable).data["numpy_key"])
        p = 1 / (1 + np.exp(-(x @ theta)))
        data = {"gradient": x.T @ (y[:, None] - p), "hessian": x.T @ (x * p * (1 - p))}
        reply = DXO(DataKind.WEIGHTS, data, {"NUM_STEPS_CURRENT_ROUND": len(x)}).to_shareable()
        reply.set_header(
            AppConstants.CURRENT_ROUND, shareable.get_header(AppConstants.CURRENT_ROUND)
        )
        return reply


def newton(out: Path) -> None:
    job = FedJob(name="newton", min_clients=2)
    rounds = ROUNDS["newton"]
    job.to_server(FedAvgLR(0.8, n_features=len(COLUMNS), num_clients=2, num_rounds=rounds))
    job.to_server(RecordingWidget(str(out / "run"), payload="release"), id="overheard")
    job.to_clients(Site(), tasks=["train"])
    job.simulator_run(str(out / "work"), n_clients=2, threads=2)


def trees(out: Path) -> None:
    without_tensorboard(out / "tensorboard")
    from flare_rows import Rows  # type: ignore[import-not-found]
    from nvflare.app_opt.xgboost.recipes.bagging import XGBBaggingRecipe
    from nvflare.recipe.sim_env import SimEnv
    from nvflare.recipe.utils import set_per_site_config

    recipe = XGBBaggingRecipe(
        "trees", 2, num_rounds=ROUNDS["trees"], local_subsample=1.0, nthread=1,
        max_depth=4,
    )  # fmt: skip
    set_per_site_config(recipe, {site: {"data_loader": Rows()} for site in SITES})
    recorder = RecordingFilter(str(out / "run"), payload="release")
    recipe.add_server_output_filter(recorder, ["train"])
    recipe.execute(SimEnv(clients=list(SITES), workspace_root=str(out / "work")))


def without_tensorboard(place: Path) -> None:
    """FLARE's package of XGBoost imports TensorBoard for its histograms; bagging does without."""
    if importlib.util.find_spec("tensorboard"):
        return
    names = {
        "compat/proto/event_pb2": "Event", "compat/proto/summary_pb2": "Summary",
        "plugins/text/summary_v2": "text_pb", "summary/writer/event_file_writer": "EventFileWriter",
    }  # fmt: skip
    for name, thing in names.items():
        file = place / f"tensorboard/{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{thing} = None\n")
    sys.path.insert(0, str(place))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(place), os.environ.get("PYTHONPATH", "")])


class Described(Statistics):
    """A site's columns: how many, their sums, and how they are spread."""

    def initialize(self, fl_ctx: Any) -> None:
        x, _ = people(fl_ctx.get_identity_name())
        self.columns = dict(zip(COLUMNS, x.T, strict=True))

    def features(self) -> dict[str, list[Feature]]:
        return {"people": [Feature(name, DataType.FLOAT) for name in COLUMNS]}

    def count(self, dataset_name: str, feature_name: str) -> int:
        return len(self.columns[feature_name])

    def sum(self, dataset_name: str, feature_name: str) -> float:
        return float(self.columns[feature_name].sum())

    def histogram(
        self, dataset_name: str, feature_name: str, num_of_bins: int, low: float, high: float
    ) -> Histogram:
        counts, edges = np.histogram(self.columns[feature_name], num_of_bins, (low, high))
        cut = zip(edges[:-1].tolist(), edges[1:].tolist(), counts.tolist(), strict=True)
        return Histogram(HistogramType.STANDARD, [Bin(*one) for one in cut])


def statistics(out: Path) -> None:
    from nvflare.recipe.fedstats import FedStatsRecipe
    from nvflare.recipe.sim_env import SimEnv

    asked = {
        "count": {}, "sum": {}, "mean": {}, "histogram": {"*": {"bins": 2, "range": [0.0, 1.0]}}
    }  # fmt: skip
    recipe = FedStatsRecipe("statistics", "stats.json", list(SITES), asked, Described())
    recorder = RecordingFilter(str(out / "run"), task="fed_stats", payload="release")
    recipe.add_server_output_filter(recorder, ["fed_stats"])
    recipe.execute(SimEnv(clients=list(SITES), workspace_root=str(out / "work")))


if __name__ == "__main__":
    {"newton": newton, "trees": trees, "statistics": statistics}[sys.argv[1]](Path(sys.argv[2]))
    sys.stdout.flush()
    os._exit(0)  # the simulator's threads do not always end by themselves
