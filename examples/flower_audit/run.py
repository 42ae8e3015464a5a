"""A Flower federation of six hospitals' regions, recorded and audited: ``python run.py``.

Real people of the RAND Health Insurance Experiment (it comes with overheard) are split by site;
the sites train a network together with Flower; the recording of what they sent is audited, and
``flower-audit-out/report.html`` says what an eavesdropper of each link has learned about them.
"""

from __future__ import annotations

import argparse
import csv
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("FLWR_TELEMETRY_ENABLED", "0")
os.environ.setdefault("FLWR_DISABLE_UPDATE_CHECK", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

HERE = Path(__file__).resolve().parent


def write_records(path: Path, people: int | None) -> None:
    """The first people of each site as a CSV file, as an engineer would have them."""
    from overheard.data.randhie import load

    columns = load().records.columns
    seen: Counter[str] = Counter()
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(columns)
        for person in zip(*(values.tolist() for values in columns.values()), strict=True):
            site = person[list(columns).index("site")]
            seen[site] += 1
            if people is None or seen[site] <= people:
                table.writerow(person)


def federate() -> None:
    """Run the app in Flower's simulation, one node a site."""
    from client_app import app as client
    from flwr.simulation import run_simulation
    from server_app import SITES
    from server_app import app as server

    options = {"init_args": {"include_dashboard": False}}
    run_simulation(server, client, num_supernodes=SITES, backend_config=options)


def overheard(out: Path, *words: str) -> None:
    program = Path(sys.executable).with_name("overheard")
    subprocess.run([str(program), *words], check=True, cwd=out)


def main() -> None:
    parser = argparse.ArgumentParser(description="Record and audit a Flower federation.")
    parser.add_argument("out", nargs="?", type=Path, default=Path("flower-audit-out"))
    parser.add_argument("--people", type=int, help="take only so many of each site")
    options = parser.parse_args()
    out = options.out.resolve()
    if out.exists():
        sys.exit(f"{out} exists already; remove it or name another folder")
    out.mkdir(parents=True)
    os.environ["RECORDS"], os.environ["RECORDING"] = str(out / "records.csv"), str(out / "run")
    write_records(out / "records.csv", options.people)
    federate()
    shutil.copy(HERE / "audit.toml", out / "run")
    described = ["--with", "run/audit.toml"]
    attacks = [f"--attack={name}" for name in ("majority", "max_entropy")]
    overheard(out, "audit", "run", *described, "--out", "audit", "--no-rounds", *attacks)
    overheard(out, "report", "audit/audit.json", "--out", "report.html")
    print(f"the report: {out / 'report.html'}")


if __name__ == "__main__":
    main()
