"""``python flare_trees.py OUT``: FLARE's recipe of XGBoost bagging in its simulator, recorded.

It masks the Hessians' sums, and sends only what is new.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np

ROUNDS = 4
COLUMNS, SITES = ("a", "b", "c", "s"), ("site-1", "site-2")
DESCRIPTION = """
[data]
source = "file"
path = "people.csv"
client = "site"
target = "y"
task = "classification"
scale = "none"

[model]
name = "xgboost"
eta = 0.05           # FLARE divides its learning rate, 0.1, by the number of sites
max_depth = 4

[audit]
attributes = ["s"]
"""


def people(site: str) -> tuple[np.ndarray, np.ndarray]:
    """A site's inputs (60, 4), the last of them 0 or 1, and its labels."""
    rng = np.random.default_rng(int(site[-1]))
    s = (rng.random(60) < 0.4).astype(np.float64)
    x = np.column_stack([rng.normal(size=(60, 3)), s])
    likely = 1 / (1 + np.exp(-(x @ [0.5, -0.5, 0.3, 0.8])))
    return x, (rng.random(60) < likely).astype(np.float64)


def run(out: Path) -> None:
    without_tensorboard(out / "tensorboard")
    from flare_rows import Rows  # type: ignore[import-not-found]
    from nvflare.app_opt.xgboost.recipes.bagging import XGBBaggingRecipe
    from nvflare.recipe.sim_env import SimEnv
    from nvflare.recipe.utils import set_per_site_config

    from overheard.nvflare import RecordingFilter

    recipe = XGBBaggingRecipe(
        "trees", 2, num_rounds=ROUNDS, local_subsample=1.0, nthread=1, max_depth=4
    )
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


def check(place: Path) -> None:
    """What was recorded is sound, fits, and tells of the sites' people."""
    from overheard.evaluation.audit import audit
    from overheard.federation.federation import read_config
    from overheard.recorders.describe import describe
    from overheard.transcript.store import Recording
    from overheard.transcript.threat import EAVESDROPPER
    from overheard.transcript.verify import verify

    assert verify(place / "run").sound
    bare = Recording.open(place / "run")
    assert [entry.number for entry in bare.rounds] == list(range(ROUNDS))
    observed = list(bare.releases("site-1"))
    assert list(observed[3][1]) == ["model_data.0", "model_data.1"]  # only what is new is sent
    assert b'"sum_hessian": [1.0, 1.0' in observed[3][2]["model_data"].tobytes()  # masked by FLARE
    rows = [[site, *row] for site in SITES for row in np.column_stack(people(site)).tolist()]
    lines = [",".join(["site", *COLUMNS, "y"]), *(",".join(map(str, row)) for row in rows)]
    (place / "people.csv").write_text("\n".join(lines) + "\n")
    (place / "audit.toml").write_text(DESCRIPTION)
    describe(bare, read_config(place / "audit.toml", recorded=True), place / "beside")
    record = audit(bare.described_in(place / "beside"), EAVESDROPPER, ["max_entropy"])
    assert [r.outcome for r in record.replays] == ["fits"] * 2
    for finding in record.findings:
        assert finding.calibration is not None
        assert finding.calibration.certain_right == finding.calibration.certain > 0


if __name__ == "__main__":
    run(Path(sys.argv[1]))
    sys.stdout.flush()
    os._exit(0)  # the simulator's threads do not always end by themselves
