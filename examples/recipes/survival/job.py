"""``python job.py OUT``: Kaplan and Meier's curves in FLARE's simulator, as in its example.

One line is overheard's.
"""

import sys
from pathlib import Path

from nvflare.job_config.api import FedJob
from nvflare.job_config.script_runner import FrameworkType, ScriptRunner
from server import KaplanMeier

from overheard.nvflare import RecordingWidget


def main(out: Path) -> None:
    job = FedJob(name="survival", min_clients=2)
    job.to_server(KaplanMeier())
    job.to_server(RecordingWidget(str(out / "run"), payload="release"))
    job.to_clients(ScriptRunner("client.py", framework=FrameworkType.NUMPY))
    job.simulator_run(str(out / "work"), n_clients=2, threads=2)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
