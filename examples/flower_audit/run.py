"""A Flower federation of six hospitals' regions, recorded and audited: ``python run.py``.

Real people of the RAND Health Insurance Experiment (bundled in statsmodels) are split by site;
the sites train a network together with Flower; the recording of what they sent is audited, and
``flower-audit-out/report.html`` says what an eavesdropper of each link has learned about them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

HERE = Path(__file__).resolve().parent
OUT = Path(sys.argv[1] if len(sys.argv) > 1 else "flower-audit-out").resolve()


def write_records(path: Path) -> None:
    """The people as a CSV file, as an engineer would have them."""
    import pandas as pd

    from overheard.data.randhie import load

    pd.DataFrame(load().records.columns).to_csv(path, index=False)


def federate() -> None:
    """Run the app in Flower's simulation, one node a site."""
    from client_app import app as client
    from flwr.simulation import run_simulation
    from server_app import SITES
    from server_app import app as server

    options = {"init_args": {"include_dashboard": False}}
    run_simulation(server, client, num_supernodes=SITES, backend_config=options)


def overheard(*words: str) -> None:
    program = Path(sys.executable).with_name("overheard")
    subprocess.run([str(program), *words], check=True, cwd=OUT)


if __name__ == "__main__":
    if OUT.exists():
        sys.exit(f"{OUT} exists already; remove it or name another folder")
    OUT.mkdir(parents=True)
    os.environ["RECORDS"], os.environ["RECORDING"] = str(OUT / "records.csv"), str(OUT / "run")
    write_records(OUT / "records.csv")
    federate()
    shutil.copy(HERE / "audit.toml", OUT / "run")
    attacks = [f"--attack={name}" for name in ("majority", "model_based_global", "max_entropy")]
    overheard("audit", "run", "--out", "audit", *attacks)
    overheard("report", "audit/audit.json", "--out", "report.html")
    print(f"report     {OUT / 'report.html'}")
