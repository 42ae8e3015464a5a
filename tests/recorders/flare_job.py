"""``python flare_job.py OUT``: an NVIDIA FLARE job in its simulator, recorded.

Its arithmetic is exact (multiples of 2^-20, weights that sum to a power of two), so the outcome
does not depend on who answers first. Each site leaves the digest of what it returns.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.executor import Executor
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.workflows.fedavg import FedAvg
from nvflare.job_config.api import FedJob

SITES = 2
ROUNDS = 2
STEPS = {"site-1": 1, "site-2": 3}


def exact(array: np.ndarray) -> np.ndarray:
    return np.round(array * 2.0**20) / 2.0**20


def initial() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(7)
    return {"w": exact(rng.normal(size=(3, 5))), "b": exact(rng.normal(size=3))}


def trained(model: dict[str, np.ndarray], site: str) -> dict[str, np.ndarray]:
    return {n: exact(np.tanh(a + 0.1 * STEPS[site])) for n, a in model.items()}


def expected() -> dict[str, np.ndarray]:
    """The model that the federation must end in, without any FLARE."""
    model = initial()
    for _ in range(ROUNDS):
        made = {site: trained(model, site) for site in STEPS}
        total = sum(STEPS.values())
        model = {n: sum(made[s][n] * w for s, w in STEPS.items()) / total for n in model}
    return model


def digest(arrays: dict[str, np.ndarray]) -> str:
    return hashlib.sha256(b"".join(a.tobytes() for a in arrays.values())).hexdigest()


class Site(Executor):
    """Trains as told and leaves a digest of what it returns."""

    def __init__(self, digests: str) -> None:
        super().__init__()
        self.digests = digests

    def execute(self, task_name: str, shareable: Any, fl_ctx: Any, abort_signal: Any) -> Any:
        site = fl_ctx.get_identity_name()
        model = {n: np.asarray(a) for n, a in from_shareable(shareable).data.items()}
        after = trained(model, site)
        Path(self.digests, f"{site}-{digest(after)}").touch()
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
        self.model = initial()
        super().run()

    def save_model(self, model: Any) -> None:
        np.savez(self.outcome, **{n: np.asarray(a) for n, a in model.params.items()})


def run(out: Path) -> None:
    from overheard.nvflare import RecordingWidget

    (out / "digests").mkdir(parents=True)
    np.savez(out / "expected.npz", **expected())
    job = FedJob(name="recorded", min_clients=SITES)
    job.to_server(SavingFedAvg(str(out / "final.npz"), num_clients=SITES, num_rounds=ROUNDS))
    job.to_server(RecordingWidget(str(out / "run")), id="overheard")
    job.to_clients(Site(str(out / "digests")), tasks=["train"])
    job.simulator_run(str(out / "work"), n_clients=SITES, threads=SITES)


def check(place: Path) -> None:
    """The global model is as without a recorder, and every digest as the site had it."""
    from overheard.transcript.store import Recording
    from overheard.transcript.verify import verify
    from overheard.transcript.view import in_the_clear

    assert verify(place / "run").sound
    recording = Recording.open(place / "run")
    recorded = {
        f"{who}-{digest(arrays)}"
        for heard in recording.rounds
        for who in heard.participants or ()
        for arrays in recording.messages(heard, [("returned", who)])
    }
    assert recorded == {p.name for p in (place / "digests").iterdir()}
    assert len(recorded) == 4
    with np.load(place / "expected.npz") as want, np.load(place / "final.npz") as after:
        assert set(want) == set(after) == {"w", "b"}
        for name in want:
            np.testing.assert_array_equal(want[name], after[name])
    assert [r.weights for r in recording.rounds] == [{"site-1": 1.0, "site-2": 3.0}] * 2
    notes = in_the_clear(recording).sentences()
    assert any("broadcast tells every site the weight" in note for note in notes)
    assert any("'weight told to all sites' of 2 client(s)" in note for note in notes)
    assert any("'loss'" in note for note in notes)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # the simulator's threads do not always end by themselves
