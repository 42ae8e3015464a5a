"""``python job.py OUT``: the network of ../cnn in FLARE's simulator, as hello-pt.

One line is overheard's.
"""

import sys
from pathlib import Path

import torch
from cnn import Net
from nvflare.app_opt.pt.recipes.fedavg import FedAvgRecipe
from nvflare.recipe.sim_env import SimEnv

from overheard.nvflare import RecordingFilter


def main(out: Path) -> None:
    torch.manual_seed(1)
    recipe = FedAvgRecipe(
        name="hello-pt", min_clients=2, num_rounds=2, model=Net(), train_script="client.py"
    )
    recipe.add_server_output_filter(RecordingFilter(str(out / "run")), ["train"])
    recipe.execute(SimEnv(num_clients=2, workspace_root=str(out / "work")))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
