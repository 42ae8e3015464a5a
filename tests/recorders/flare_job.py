"""``python flare_job.py OUT``: an NVIDIA FLARE job in its simulator, recorded.

Its arithmetic is exact; see `exact_training`. Each site leaves the digest of what it returns.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import exact_training
import numpy as np
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.executor import Executor
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.job_config.api import FedJob

ROUNDS = 2
STEPS = {"site-1": 1, "site-2": 3}


class Site(Executor):
    """Trains as told and leaves a digest of what it returns."""

    def __init__(self, digests: str) -> None:
        super().__init__()
        self.digests = digests

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        site = fl_ctx.get_identity_name()
        model = {n: np.asarray(a) for n, a in from_shareable(shareable).data.items()}
        after = exact_training.trained(model, list(STEPS).index(site))
        Path(self.digests, f"{site}-{exact_training.digest(after)}").touch()
        meta = {"NUM_STEPS_CURRENT_ROUND": STEPS[site], "initial_metrics": {"loss": 0.5}}
        reply = DXO(DataKind.WEIGHTS, after, meta).to_shareable()
        reply.set_header(
            AppConstants.CURRENT_ROUND, shareable.get_header(AppConstants.CURRENT_ROUND)
        )
        return reply


class SavingFedAvg(FedAvg):
    """FedAvg that keeps its model as numpy arrays."""

    def __init__(self, outcome: str, num_clients: int = 3, num_rounds: int = 5) -> None:
        super().__init__(persistor_id="", num_clients=num_clients, num_rounds=num_rounds)
        self.outcome = outcome

    def run(self) -> None:
        self.model = exact_training.initial()
        super().run()

    def save_model(self, model: Any) -> None:
        np.savez(self.outcome, **{n: np.asarray(a) for n, a in model.params.items()})


def run(out: Path) -> None:
    from overheard.nvflare import RecordingWidget

    (out / "digests").mkdir(parents=True)
    job = FedJob(name="recorded", min_clients=len(STEPS))
    job.to_server(SavingFedAvg(str(out / "final.npz"), num_clients=len(STEPS), num_rounds=ROUNDS))
    job.to_server(RecordingWidget(str(out / "run")), id="overheard")
    job.to_clients(Site(str(out / "digests")), tasks=["train"])
    job.simulator_run(str(out / "work"), n_clients=len(STEPS), threads=len(STEPS))


def check(place: Path) -> None:
    from overheard.transcript.store import Recording
    from overheard.transcript.view import in_the_clear

    exact_training.check(place, ROUNDS, tuple(STEPS.values()))
    recording = Recording.open(place / "run")
    assert [r.weights for r in recording.rounds] == [{"site-1": 1.0, "site-2": 3.0}] * 2
    notes = in_the_clear(recording).sentences()
    assert any("broadcast tells every site the weight" in note for note in notes)
    assert any("'weight told to all sites' of 2 client(s)" in note for note in notes)
    assert any("'loss'" in note for note in notes)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # the simulator's threads do not always end by themselves
