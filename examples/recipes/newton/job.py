"""``python job.py OUT``: logistic regression by Newton's method in FLARE's simulator, as hello-lr.

One line is overheard's.
"""

import sys
from pathlib import Path

from nvflare.app_common.np.recipes.lr.fedavg import FedAvgLrRecipe
from nvflare.recipe.sim_env import SimEnv

from overheard.nvflare import RecordingFilter


def main(out: Path) -> None:
    recipe = FedAvgLrRecipe(
        min_clients=2, num_rounds=4, damping_factor=0.8, num_features=17, train_script="client.py"
    )
    recipe.add_server_output_filter(RecordingFilter(str(out / "run"), payload="release"), ["train"])
    recipe.execute(SimEnv(num_clients=2, workspace_root=str(out / "work")))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
