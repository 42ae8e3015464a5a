"""``python flare_newton.py OUT``: FLARE's logistic regression by Newton's method, recorded.

The controller is FLARE's own (`FedAvgLR`); a site answers as its hello-lr example does: a column of
ones before the inputs, gradient and Hessian of the log likelihood, in float64.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.executor import Executor
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.workflows.lr.fedavg import FedAvgLR
from nvflare.job_config.api import FedJob

ROUNDS = 5
COLUMNS = ("a", "b", "c", "s")


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


def main(out: Path) -> None:
    from overheard.nvflare import RecordingWidget

    job = FedJob(name="newton", min_clients=2)
    job.to_server(FedAvgLR(0.8, n_features=len(COLUMNS), num_clients=2, num_rounds=ROUNDS))
    job.to_server(RecordingWidget(str(out / "run"), payload="release"), id="overheard")
    job.to_clients(Site(), tasks=["train"])
    job.simulator_run(str(out / "work"), n_clients=2, threads=2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # the simulator's threads do not always end by themselves
