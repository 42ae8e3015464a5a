"""``python job.py OUT``: federated statistics in FLARE's simulator, as hello-stats.

One line is overheard's.
"""

import sys
from pathlib import Path

from client import PeopleStatistics
from nvflare.recipe.fedstats import FedStatsRecipe
from nvflare.recipe.sim_env import SimEnv

from overheard.nvflare import RecordingFilter

SITES = ["site-1", "site-2"]
ASKED = {
    "count": {},
    "sum": {},
    "mean": {},
    "histogram": {"*": {"bins": 2, "range": [0.0, 1.0]}, "xage": {"bins": 7, "range": [0, 70]}},
}


def main(out: Path) -> None:
    recipe = FedStatsRecipe("people", "statistics.json", SITES, ASKED, PeopleStatistics())
    recorder = RecordingFilter(str(out / "run"), task="fed_stats", payload="release")
    recipe.add_server_output_filter(recorder, ["fed_stats"])
    recipe.execute(SimEnv(clients=SITES, workspace_root=str(out / "work")))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
