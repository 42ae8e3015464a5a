"""``python ../flower.py APP OUT [KEY=VALUE...]``, from an app's folder: Flower's simulation of it.

The app is a package, or a module of which `fedavg.py` makes one. It records to OUT/run; other
settings are the app's own, as `flwr run --run-config` has them.
"""

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
    "RAY_ADDRESS": "local",  # a Ray of its own: not one that another program has started
}


def app(name: str, folder: Path, out: Path, *settings: str) -> tuple[Any, Any]:
    """Its ServerApp, told its settings, and its ClientApp."""
    from flwr.serverapp import ServerApp

    sys.path[:0] = [str(folder.resolve()), str(Path(__file__).resolve().parent)]
    module = importlib.import_module(name)
    if hasattr(module, "__path__"):
        parts = [importlib.import_module(f"{name}.{part}_app") for part in ("server", "client")]
        server, client = (part.app for part in parts)
    else:
        fedavg = importlib.import_module("fedavg")
        server, client = fedavg.server_app(module), fedavg.client_app(module)
    config = {"recording": str(out.resolve() / "run"), **dict(s.split("=") for s in settings)}
    told = ServerApp()

    @told.main()
    def main(grid: Any, context: Any) -> None:
        context.run_config.update(config)
        server(grid, context)

    return told, client


def simulate(server: Any, client: Any, sites: int = 4) -> None:
    """Flower's simulation, which starts Ray and ends it."""
    os.environ.update({name: value for name, value in QUIET.items() if name not in os.environ})
    from flwr.simulation import run_simulation

    run_simulation(server, client, num_supernodes=sites)


if __name__ == "__main__":
    name, out, *settings = sys.argv[1:]
    simulate(*app(name, Path.cwd(), Path(out), *settings))
