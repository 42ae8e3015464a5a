"""``python ../flower.py APP OUT``, from an app's folder: runs it in Flower's simulation, from OUT."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

QUIET = {
    "OMP_NUM_THREADS": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}


def app(name: str, folder: Path) -> tuple[Any, Any]:
    """Its ServerApp and its ClientApp."""
    sys.path[:0] = [str(folder.resolve()), str(Path(__file__).resolve().parent)]
    modules = (importlib.import_module(f"{name}.{side}_app") for side in ("server", "client"))
    server, client = (module.app for module in modules)
    return server, client


def simulate(server: Any, client: Any, sites: int = 4) -> None:
    """Flower's simulation, which starts Ray and ends it."""
    os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
    from flwr.simulation import run_simulation

    run_simulation(server, client, num_supernodes=sites)


if __name__ == "__main__":
    apps = app(sys.argv[1], Path.cwd())
    os.chdir(sys.argv[2])
    simulate(*apps)
